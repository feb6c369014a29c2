// How drivers are named and marked wherever they are shown.
import { html, useEffect } from "../assets/preact.js";
import { list, now, send } from "../assets/api.js";
import { useLanguage } from "../assets/language.js";
import { useTurn } from "../assets/ui.js";

/** @type {Map<string, string|null>} */
const known = new Map(); // by driver id: a name, or null without one
const most = 2000;
/** @type {Map<string, Promise<void>>} */
const asked = new Map();
/** @type {{ids: string[], read: Promise<void>}|null} */
let together = null; // the ids requested in the same turn
const few = 8; // for more ids the list is read first

// Not other characters, separators and marks alone, and not the letters and the symbol that show nothing.
const visible = /[^\p{C}\p{Z}\p{M}\u115f\u1160\u3164\uffa0\u2800]/u;

/**
 * Returns a stored text, or otherwise the id if nothing of the text shows: a link would have nothing to click on.
 * @param {string|null|undefined} text @param {string} id @returns {string}
 */
export const shown = (text, id) => (text && visible.test(text) ? text : id);

/** @param {string} id @param {string|null} name */
function keep(id, name) {
  if (!known.has(id) && known.size >= most) known.delete([...known.keys()][0] ?? "");
  known.set(id, name && shown(name, id));
}

/** @param {string} id */
async function read(id) {
  try {
    keep(id, (await send("GET", `/v1/admin/drivers/${encodeURIComponent(id)}`)).data.name);
  } catch (err) {
    if (err.status !== 404) throw err;
    keep(id, null);
  }
}

/** @param {string[]} ids */
async function readAll(ids) {
  if (ids.length > few) {
    for (const d of (await list("/v1/admin/drivers", most / 2)).items) keep(d.id, d.name);
  }
  for (const id of ids) if (!known.has(id)) await read(id);
}

/** @param {string} id */
function ask(id) {
  if (!asked.has(id)) {
    if (!together) {
      /** @type {string[]} */
      const ids = [];
      together = { ids, read: Promise.resolve().then(() => {
        together = null;
        return readAll(ids);
      }) };
    }
    together.ids.push(id);
    asked.set(id, together.read.finally(() => asked.delete(id)));
  }
  return asked.get(id);
}

/** Returns a driver's name, or the id without one. It throws if the service can't be reached. @param {string} id */
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
  const [, again] = useTurn();
  const missing = ids.filter((id) => id && !known.has(id));
  useEffect(() => {
    let here = true;
    // Without a name the page shows the id.
    Promise.allSettled(missing.map(ask)).then(() => here && missing.length > 0 && again());
    return () => { here = false; };
  }, [missing.join(" ")]);
  return (id) => known.get(id) ?? id;
}

export const forever = Date.parse("9999-12-31T00:00:00Z"); // the API's time for a suspension without an end

/** @param {string|null} until @returns {until is string} */
export const suspended = (until) => until !== null && Date.parse(until) > now();

/** @param {{on: boolean}} props */
export function Duty({ on }) {
  const { t } = useLanguage();
  return html`<span class=${"badge " + (on ? "good" : "soft")}>${on ? t.drivers.onBadge : t.drivers.offBadge}</span>`;
}

/** Shows the end of a driver's suspension, and nothing without a suspension. @param {{until: string|null}} props */
export function Suspension({ until }) {
  const { t, when } = useLanguage();
  if (!suspended(until)) return null;
  return html`<span class="badge bad">${Date.parse(until) >= forever ? t.drivers.suspendedOpen : t.drivers.suspendedUntil(when(until))}</span>`;
}
