// What outlives a page: its filters in the address, and its forms in the tab's storage.
import { useEffect, useLayoutEffect, useState } from "../assets/preact.js";

/** Returns parameters in the form behind an address' ?, without the empty ones. @param {Record<string, string>} parameters */
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
  const change = (/** @type {Record<string, string>} */ changes) => {
    const next = read();
    for (const [name, value] of Object.entries(changes)) value ? next.set(name, value) : next.delete(name);
    const text = next.toString();
    history.replaceState(null, "", (location.hash.split("?")[0] || "#/") + (text && "?" + text));
    set(next);
  };
  return [Object.fromEntries(names.map((n) => [n, query.get(n) ?? ""])), change];
}

/** Returns the last value that stayed the same for ms. @template T @param {T} value */
export function useSettled(value, ms = 300) {
  const [settled, set] = useState(value);
  useEffect(() => {
    const timer = setTimeout(() => set(value), ms);
    return () => clearTimeout(timer);
  }, [value, ms]);
  return settled;
}

// A browser that forbids storage keeps the values only here, until a reload.
const memory = new Map();

/** Returns the value stored by this name in this tab, or null. @param {string} name @returns {any} */
export function kept(name) {
  if (memory.has(name)) return memory.get(name);
  try {
    return JSON.parse(sessionStorage.getItem(name) ?? "null");
  } catch {
    return null;
  }
}

/** Stores a value in this tab, so that it outlives a reload. @param {string} name @param {unknown} value */
export function keep(name, value) {
  memory.set(name, value);
  try {
    sessionStorage.setItem(name, JSON.stringify(value));
  } catch {
    // The storage is full or forbidden: memory has the value.
  }
}

/** Deletes a stored value. @param {string} name */
export function forget(name) {
  memory.delete(name);
  try {
    sessionStorage.removeItem(name);
  } catch {
    // The storage is forbidden, so it has no value either.
  }
}

/** Deletes everything that this tab has stored: the next user must not read this user's input. */
export function forgetAll() {
  memory.clear();
  try {
    sessionStorage.clear();
  } catch {
    // The storage is forbidden, so it has no value either.
  }
}

/**
 * A form that outlives its page: the input is there again after an error, another page or a reload.
 * @param {string} name
 * @template {object} F
 * @param {F} blank the empty form
 * @returns {[F, (changes: Partial<F>) => void, () => void]} the form, a function that changes fields, and one that empties it
 */
export function useKeptForm(name, blank) {
  const [form, set] = useState(() => ({ ...blank, ...kept(name) }));
  const change = (/** @type {Partial<F>} */ changes) => set((/** @type {F} */ before) => {
    const form = { ...before, ...changes };
    keep(name, form);
    return form;
  });
  const clear = () => {
    forget(name);
    set(blank);
  };
  return [form, change, clear];
}
