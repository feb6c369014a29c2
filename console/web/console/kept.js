import { useState } from "../assets/preact.js";

// A browser that forbids storage keeps the values only here, until a reload.
const memory = new Map();

/** Returns the value stored by this name in this tab, or null. */
export function kept(name) {
  if (memory.has(name)) return memory.get(name);
  try {
    return JSON.parse(sessionStorage.getItem(name));
  } catch {
    return null;
  }
}

/** Stores a value in this tab, so that it outlives a reload. */
export function keep(name, value) {
  memory.set(name, value);
  try {
    sessionStorage.setItem(name, JSON.stringify(value));
  } catch {
    // The storage is full or forbidden: memory has the value.
  }
}

/** Deletes a stored value. */
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
 * @param {object} blank the empty form
 * @returns {[object, (changes: object) => void, () => void]} the form, a function that changes fields, and one that empties it
 */
export function useKeptForm(name, blank) {
  const [form, set] = useState(() => ({ ...blank, ...kept(name) }));
  const change = (changes) => set((before) => {
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
