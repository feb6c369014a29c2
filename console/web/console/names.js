import { useEffect, useReducer } from "../assets/preact.js";
import { list, send } from "../assets/api.js";

const known = new Map(); // by driver id: a name, or null without one
const most = 2000;
const asked = new Map();
let together = null; // the ids requested in the same turn
const few = 8; // for more ids the list is read first

// Not other characters, separators and marks alone, and not the letters and the symbol that show nothing.
const visible = /[^\p{C}\p{Z}\p{M}\u115f\u1160\u3164\uffa0\u2800]/u;

/** Returns a stored text, or otherwise the id if nothing of the text shows: a link would have nothing to click on. */
export const shown = (text, id) => (visible.test(text ?? "") ? text : id);

function keep(id, name) {
  if (!known.has(id) && known.size >= most) known.delete(known.keys().next().value);
  known.set(id, name && shown(name, id));
}

async function read(id) {
  try {
    keep(id, (await send("GET", `/v1/admin/drivers/${encodeURIComponent(id)}`)).data.name);
  } catch (err) {
    if (err.status !== 404) throw err;
    keep(id, null);
  }
}

async function readAll(ids) {
  if (ids.length > few) {
    for (const d of (await list("/v1/admin/drivers", most / 2)).items) keep(d.id, d.name);
  }
  for (const id of ids) if (!known.has(id)) await read(id);
}

function ask(id) {
  if (!asked.has(id)) {
    if (!together) {
      const ids = together = [];
      together.read = Promise.resolve().then(() => {
        together = null;
        return readAll(ids);
      });
    }
    together.push(id);
    asked.set(id, together.read.finally(() => asked.delete(id)));
  }
  return asked.get(id);
}

/** Returns a driver's name, or the id without one. It throws if the service can't be reached. */
export async function nameDriver(id) {
  if (!known.has(id)) await ask(id);
  return known.get(id) ?? id;
}

/**
 * Names drivers as soon as their names are known.
 * @param {string[]} ids
 * @returns {(id: string) => string} the name, or the id until the name is known
 */
export function useNames(ids) {
  const [, again] = useReducer((n) => n + 1, 0);
  const missing = ids.filter((id) => id && !known.has(id));
  useEffect(() => {
    let here = true;
    // Without a name the page shows the id.
    Promise.allSettled(missing.map(ask)).then(() => here && missing.length > 0 && again());
    return () => { here = false; };
  }, [missing.join(" ")]);
  return (id) => known.get(id) ?? id;
}
