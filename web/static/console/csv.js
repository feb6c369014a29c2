// Comma-separated values, as RFC 4180 has them, and as a spreadsheet opens them.
import { ahead } from "../assets/zone.js";

// A spreadsheet runs a cell that begins with one of these as a formula, and whoever names a driver would choose the formula. The wide
// forms are what Korean and Japanese keyboards type for them. Where a spreadsheet splits at semicolons or tabs, as in many countries, a
// cell begins within a text too, also behind the quotes that it drops.
const runs = /^(?=[\t\r\n])|(?<=^|[;,\t\r\n])(?="*[=+\-@＝＋－＠])/g;
const phone = /^\+\d+$/;
const quoted = /[",;\t\r\n]|^\s|\s$/;

/**
 * Returns one cell. Where a spreadsheet would run a text it gets an apostrophe; a number is never run, and neither is a phone number, which
 * other programs read.
 * @param {unknown} value
 * @param {"phone"} [kind] of the column
 */
export function cell(value, kind) {
  const text = String(value ?? "");
  if (typeof value === "number" || (kind === "phone" && phone.test(text))) return text;
  const harmless = text.replaceAll(runs, "'");
  return quoted.test(harmless) ? `"${harmless.replaceAll('"', '""')}"` : harmless;
}

/** @param {unknown[]} cells @param {("phone"|undefined)[]} [kinds] */
const line = (cells, kinds = []) => cells.map((value, i) => cell(value, kinds[i])).join(",") + "\r\n";

/**
 * Returns the parts of a file. The mark at the beginning makes Excel read it as UTF-8.
 * @param {string[]} titles
 * @param {unknown[][]} rows
 * @param {("phone"|undefined)[]} [kinds] of the columns
 */
export const csv = (titles, rows, kinds) => ["\ufeff", line(titles), ...rows.map((row) => line(row, kinds))];

const two = (/** @type {number} */ n) => String(n).padStart(2, "0");

/** Returns a time of the API in the zone of the sites: "2026-11-26T21:03:27.123+09:00", and "" for null. @param {string|null} at */
export function isoTime(at) {
  if (!at) return "";
  const ms = Date.parse(at), by = Math.round(ahead(ms) / 60_000), minutes = Math.abs(by);
  const local = new Date(ms + by * 60_000).toISOString().slice(0, -1);
  return `${local}${by < 0 ? "-" : "+"}${two(Math.floor(minutes / 60))}:${two(minutes % 60)}`;
}

/** Returns a time for the name of a file, without what a file system refuses: "20261126-210327". @param {number} at ms */
export const stamp = (at) => isoTime(new Date(at).toISOString()).slice(0, 19).replaceAll(/[-:]/g, "").replace("T", "-");

/**
 * Reads a list page by page, the newest first, until it ends, or a number of items was looked at.
 * @template T
 * @param {(query: string) => Promise<{items: T[], next_cursor: string|null}>} page reads a page
 * @param {{most: number, size: number, keep?: (item: T) => boolean, onRead?: (looked: number, kept: number) => void}} options
 * @returns {Promise<{items: T[], looked: number, more: boolean}>} more: there are items that nobody looked at
 */
export async function readAll(page, { most, size, keep = () => true, onRead = () => {} }) {
  const items = /** @type {T[]} */ ([]);
  let looked = 0, cursor = "";
  do {
    const query = `limit=${Math.min(size, most - looked)}${cursor && `&cursor=${encodeURIComponent(cursor)}`}`;
    const read = await page(query);
    looked += read.items.length;
    for (const item of read.items) if (keep(item)) items.push(item);
    cursor = read.next_cursor ?? "";
    onRead(looked, items.length);
  } while (cursor && looked < most);
  return { items, looked, more: Boolean(cursor) };
}
