import { useEffect, useLayoutEffect, useState } from "../assets/preact.js";

/** Returns parameters in the form behind an address' ?, without the empty ones. */
export const queryOf = (parameters) => new URLSearchParams(Object.entries(parameters).filter(([, value]) => value !== "")).toString();

const read = () => new URLSearchParams(location.hash.split("?")[1] ?? "");

/**
 * Filters in the address, behind its ?, so that a link, a reload and the browser's back button show the same.
 * @param {string[]} names
 * @returns {[Object<string, string>, (changes: Object<string, string>) => void]} "" for an unset filter
 */
export function useQuery(names) {
  const [query, set] = useState(read);
  useLayoutEffect(() => { // a change before the first paint is heard too
    const changed = () => set(read());
    addEventListener("hashchange", changed);
    return () => removeEventListener("hashchange", changed);
  }, []);
  const change = (changes) => {
    const next = read();
    for (const [name, value] of Object.entries(changes)) value ? next.set(name, value) : next.delete(name);
    const text = next.toString();
    history.replaceState(null, "", (location.hash.split("?")[0] || "#/") + (text && "?" + text));
    set(next);
  };
  return [Object.fromEntries(names.map((n) => [n, query.get(n) ?? ""])), change];
}

/** Returns the last value that stayed the same for ms. */
export function useSettled(value, ms = 300) {
  const [settled, set] = useState(value);
  useEffect(() => {
    const timer = setTimeout(() => set(value), ms);
    return () => clearTimeout(timer);
  }, [value, ms]);
  return settled;
}
