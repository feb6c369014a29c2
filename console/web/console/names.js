import { useEffect, useReducer } from "../assets/preact.js";
import { get } from "../assets/api.js";

const known = new Map(); // by driver id: a name, or null where there is none
const most = 2000;
const asked = new Map();

function ask(id) {
  if (!asked.has(id)) {
    asked.set(id, get(`/v1/admin/drivers/${encodeURIComponent(id)}`).then((d) => d.name, (err) => {
      if (err.status === 404) return null;
      throw err;
    }).then((name) => {
      if (known.size >= most) known.delete(known.keys().next().value);
      known.set(id, name);
    }).finally(() => asked.delete(id)));
  }
  return asked.get(id);
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
