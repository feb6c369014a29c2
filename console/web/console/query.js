import { useEffect, useState } from "../assets/preact.js";

/** Parameters as an address has them behind its ?, without those that are "". */
export const queryOf = (parameters) => new URLSearchParams(Object.entries(parameters).filter(([, value]) => value !== "")).toString();

const read = () => new URLSearchParams(location.hash.split("?")[1] ?? "");

/**
 * Filters that stand in the address, behind its ?, so that a link, a reload and the way back show the same.
 * @param {string[]} names
 * @returns {[Object<string, string>, (changes: Object<string, string>) => void]} "" for a filter that is not set
 */
export function useQuery(names) {
  const [query, set] = useState(read);
  useEffect(() => {
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

/** A value as it was when it last stayed the same for ms. */
export function useSettled(value, ms = 300) {
  const [settled, set] = useState(value);
  useEffect(() => {
    const timer = setTimeout(() => set(value), ms);
    return () => clearTimeout(timer);
  }, [value, ms]);
  return settled;
}
