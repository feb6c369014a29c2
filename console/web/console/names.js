import { useEffect, useReducer } from "../assets/preact.js";
import { list, send } from "../assets/api.js";

const known = new Map(); // by driver id: a name, or null where there is none
const most = 2000;
const asked = new Map();
let together = null; // what is asked for in the same turn
const few = 8; // more than that are looked for in the list first

function keep(id, name) {
  if (!known.has(id) && known.size >= most) known.delete(known.keys().next().value);
  known.set(id, name);
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

/** A driver's name, or the id where there is none. It throws where nobody can be asked. */
export async function nameDriver(id) {
  if (!known.has(id)) await ask(id);
  return known.get(id) ?? id;
}

/**
 * Names drivers, as soon as they are known.
 * @param {string[]} ids
 * @returns {(id: string) => string} the name, or the id while nobody knows the name
 */
export function useNames(ids) {
  const [, again] = useReducer((n) => n + 1, 0);
  const missing = ids.filter((id) => id && !known.has(id));
  useEffect(() => {
    let here = true;
    // A name that can't be had leaves the id, which says as much.
    Promise.allSettled(missing.map(ask)).then(() => here && missing.length > 0 && again());
    return () => { here = false; };
  }, [missing.join(" ")]);
  return (id) => known.get(id) ?? id;
}
