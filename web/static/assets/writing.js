// How a language writes money, numbers, times and durations. Times are in the zone of the sites.
import { abroad, zone } from "./zone.js";

/** @typedef {Record<"us"|"ms"|"s"|"min"|"h"|"d", (n: number|string) => string> & {minSec: (min: number, s: string) => string}} Units */
/** @typedef {string|number|null|undefined} At a time of the API, or ms */

/** @type {Map<string, Intl.NumberFormat>} */
const currencies = new Map(); // creating a format takes longer than the rest of a board's card

/** "₩350,000": amount is in the currency's minor unit. @param {Schemas["Money"]} money @param {string} locale */
export function money({ amount, currency }, locale) {
  const key = `${locale} ${currency}`;
  let format = currencies.get(key);
  if (!format) {
    if (currencies.size >= 50) currencies.clear();
    currencies.set(key, format = new Intl.NumberFormat(locale, { style: "currency", currency }));
  }
  return format.format(amount / 10 ** (format.resolvedOptions().maximumFractionDigits ?? 0));
}

/** @typedef {Intl.DateTimeFormatOptions} Options */

/** @type {Options} */
const two = { hour: "2-digit", minute: "2-digit" };
/** @type {Options} */
const day = { year: "numeric", month: "2-digit", day: "2-digit" };

// The office compares times in columns: each is as long as the others, and its day goes from the year down. English has no such
// form of its own that all its readers read alike, so it takes the one of ISO 8601, as Sweden does.
/** @type {Record<string, {columns: string, span: string}>} */
const office = { en: { columns: "sv-SE", span: "en-GB" }, ko: { columns: "ko-KR", span: "ko-KR" } };

/** A duration in the units of a dictionary. @param {Units} units */
function durations(units) {
  const short = (/** @type {number} */ n) => String(Number(n.toPrecision(3)));
  return {
    /** The rough time since or until a moment: "3 min". @param {number} ms */
    roughly(ms) {
      const s = Math.abs(ms) / 1000;
      if (s < 1) return units.ms(Math.round(Math.abs(ms)));
      if (s < 60) return units.s(Math.round(s));
      if (s < 3600) return units.min(Math.round(s / 60));
      if (s < 172800) return units.h(Math.round(s / 3600));
      return units.d(Math.round(s / 86400));
    },
    /** As short as possible: "840 µs", "1.24 ms", "3.4 s", "2:05 min", "3.1 h". @param {number} us */
    duration(us) {
      if (us < 1000) return units.us(Math.round(us));
      if (us < 999_500) return units.ms(short(us / 1000));
      if (us < 60e6) return units.s(short(us / 1e6));
      if (us >= 3600e6) return units.h(short(us / 3600e6));
      const s = Math.round(us / 1e6);
      return units.minSec(Math.floor(s / 60), String(s % 60).padStart(2, "0"));
    },
  };
}

/**
 * Returns the formats of a language. A reader's own variant of it, as en-US, decides where variants differ.
 * @param {string} lang
 * @param {{units?: Units, [name: string]: unknown}} t its texts: durations have units, which the driver's page does not write
 * @param {readonly string[]} readers the languages of the browser
 */
export function writing(lang, t, readers) {
  const locale = readers.find((l) => l.toLowerCase().startsWith(lang)) ?? (lang === "ko" ? "ko-KR" : "en");
  const { columns, span: spans } = office[lang];
  /** @param {string} where @param {Options} options */
  const format = (where, options) => new Intl.DateTimeFormat(where, { timeZone: zone(), ...options });
  /** @type {Options} */
  const named = abroad() ? { timeZoneName: "short" } : {}; // for a reader whose clock shows another time
  const year = format("en", { year: "numeric" });
  /** A span of time, with the year unless it is this year's. @param {string} where @param {Options} options */
  const span = (where, options) => {
    const plain = format(where, { ...options, ...named }), dated = format(where, { year: "numeric", ...options, ...named });
    return (/** @type {string} */ from, /** @type {string} */ to) => {
      const [a, b] = [new Date(from), new Date(to)], now = year.format(new Date());
      return (year.format(a) === now && year.format(b) === now ? plain : dated).formatRange(a, b);
    };
  };
  // "1:05 AM" and "01:05": a clock of 24 hours has two digits, which "numeric" alone does not say.
  /** @type {Options} */
  const time = { hour: format(locale, { hour: "numeric" }).resolvedOptions().hour12 ? "numeric" : "2-digit", minute: "2-digit" };
  const second = format(locale, { ...time, second: "2-digit", ...named });
  const minute = format(locale, { year: "numeric", month: "short", day: "numeric", ...time, ...named });
  const number = new Intl.NumberFormat(locale, { maximumFractionDigits: 1 });
  /** @type {Options} */
  const h23 = { hourCycle: "h23" };
  const when = format(columns, { ...day, ...two, ...h23 });
  const exactly = format(columns, { ...day, ...two, second: "2-digit", ...h23 });
  const clock = format(columns, { ...two, second: "2-digit", ...h23 });
  const clockShort = format(columns, { ...two, ...h23 });
  const date = format(spans, { month: "short", day: "numeric" });
  const shown = (/** @type {Intl.DateTimeFormat} */ f) => (/** @type {At} */ at) => (at ? f.format(new Date(at)) : "–");
  return {
    money: (/** @type {Schemas["Money"]} */ m) => money(m, locale),
    number: (/** @type {number} */ n) => number.format(n),
    // a driver's page, as its reader's phone writes times
    span: span(locale, { weekday: "short", month: "short", day: "numeric", ...two }),
    second: shown(second),
    minute: shown(minute),
    // the console; an en dash for null
    /** "2026-11-22 14:03" */
    when: shown(when),
    /** "2026-11-22 14:03:27" */
    whenExactly: shown(exactly),
    /** "14:03:27" */
    clock: shown(clock),
    /** "14:03" */
    clockShort: shown(clockShort),
    /** "22 Nov" */
    date: shown(date),
    /** "22 Nov, 14:03 – 17:03" */
    fromTo: span(spans, { day: "numeric", month: "short", ...two, ...h23 }),
    .../** @type {ReturnType<typeof durations>} */ (t.units && durations(t.units)),
  };
}
