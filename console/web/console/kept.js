import { useState } from "../assets/preact.js";

// What is kept is kept here too, for a browser that lets no page store anything: there it does not outlive a reload.
const memory = new Map();

/** What was kept by this name in this tab; null where nothing was. */
export function kept(name) {
  if (memory.has(name)) return memory.get(name);
  try {
    return JSON.parse(sessionStorage.getItem(name));
  } catch {
    return null;
  }
}

/** Keeps a value in this tab, over reloads. */
export function keep(name, value) {
  memory.set(name, value);
  try {
    sessionStorage.setItem(name, JSON.stringify(value));
  } catch {
    // Full or forbidden: see memory.
  }
}

/** Lets go of what was kept. */
export function forget(name) {
  memory.delete(name);
  try {
    sessionStorage.removeItem(name);
  } catch {
    // Then it was not stored either.
  }
}

/**
 * A form that outlives its page: what was typed is there again after an error, another page or a reload.
 * @param {string} name
 * @param {object} blank the form with nothing typed
 * @returns {[object, (changes: object) => void, () => void]} the form, what changes some of its fields, what empties it
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
