// The zone of the sites, as the service names it. The hours of work are written and typed in it, wherever the reader is.
import { get } from "./api.js";

const kept = "firsttap.timezone";
const two = "2-digit";
/** @type {Intl.DateTimeFormatOptions} */
const office = { year: "numeric", month: two, day: two, hour: two, minute: two, second: two, hourCycle: "h23" };

/** @type {string|undefined} */
let name; // undefined until it is known: the reader's own zone stands for it
let clock = new Intl.DateTimeFormat("sv-SE", office);

/** The zone's name, undefined for the reader's own. */
export const zone = () => name;

/** Shows times in that zone, undefined for the reader's. It throws if the browser does not know it. @param {string|undefined} timeZone */
export function setZone(timeZone) {
  clock = new Intl.DateTimeFormat("sv-SE", { ...office, timeZone });
  name = timeZone;
}

/**
 * Learns the zone before the page is shown. A page that has been open on this device knows it, and loads again in the rare case that it was
 * changed. Without an answer within 2 s, times are the reader's.
 */
export async function learnZone() {
  /** @type {string|undefined} */
  let before;
  try {
    before = localStorage.getItem(kept) ?? undefined;
    setZone(before);
  } catch {
    // no storage, or a zone that this browser does not know
  }
  const learning = get("/v1/sign-in", { timeout: 2000 }).then(({ timezone }) => {
    if (timezone === name) return;
    setZone(timezone);
    localStorage.setItem(kept, timezone);
    if (before) location.reload();
  }).catch((err) => console.warn("the zone of the sites can't be learned or kept:", err.message));
  if (!name) await learning;
}

/** Formats a moment for <input type="datetime-local">: in the zone, to the second. @param {string|number|Date} at */
export const localInput = (at) => clock.format(new Date(at)).replace(" ", "T");

/** Returns by how much the zone's clock is ahead of UTC then. @param {number} at ms @returns {number} ms */
export function ahead(at) {
  const second = Math.floor(at / 1000) * 1000;
  return Date.parse(`${localInput(second)}Z`) - second;
}

/** Reports whether the reader's clock shows another time than the zone's. */
export const abroad = (at = Date.now()) => ahead(at) !== -new Date(at).getTimezoneOffset() * 60_000;

const day = 86_400_000;

/**
 * Returns the moment of a datetime-local's time in the API's form, undefined for an empty or impossible one. Of two hours that look
 * alike it is the first. A time that the clock skips counts on from before.
 * @param {string} [text]
 */
export function typedTime(text) {
  const wall = Date.parse(`${text}Z`);
  if (!text || Number.isNaN(wall)) return undefined;
  const moments = [ahead(wall - day), ahead(wall + day)].map((by) => wall - by);
  const shown = moments.filter((at) => at + ahead(at) === wall);
  return new Date(shown.length > 0 ? Math.min(...shown) : moments[0]).toISOString();
}

/** Returns the zone by its name and its offset at that time: "Asia/Seoul, GMT+9". @param {string} [text] of a datetime-local */
export function zoneAt(text) {
  const format = new Intl.DateTimeFormat("en", { timeZone: name, timeZoneName: "shortOffset" });
  const offset = format.formatToParts(new Date(typedTime(text) ?? Date.now())).find((p) => p.type === "timeZoneName")?.value;
  return `${format.resolvedOptions().timeZone}, ${offset}`;
}
