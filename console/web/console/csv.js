// Comma-separated values, as RFC 4180 has them, and as a spreadsheet opens them.

// A spreadsheet runs a cell that begins with one of these as a formula, and whoever names a driver would choose the formula. The wide
// forms are what Korean and Japanese keyboards type for them.
const runs = /^[=+\-@\t\r\n＝＋－＠]/;
const quoted = /[",;\t\r\n]|^\s|\s$/;

/** Returns one cell. A text that a spreadsheet would run gets an apostrophe before it; a number is never run. @param {any} value */
export function cell(value) {
  if (typeof value === "number") return String(value);
  const text = String(value ?? "");
  const harmless = runs.test(text) ? `'${text}` : text;
  return quoted.test(harmless) ? `"${harmless.replaceAll('"', '""')}"` : harmless;
}

const line = (cells) => cells.map(cell).join(",") + "\r\n";

/** Returns the parts of a file. The mark at the beginning makes Excel read it as UTF-8. @param {string[]} titles @param {any[][]} rows */
export const csv = (titles, rows) => ["\ufeff", line(titles), ...rows.map(line)];

const two = (n) => String(n).padStart(2, "0");

/**
 * Returns a time of the API in the reader's zone: "2026-11-26T21:03:27.123+09:00", and "" for null.
 * @param {string|null} at
 * @param {(at: Date) => number} zone minutes that the zone is behind UTC then, as the browser's
 */
export function isoTime(at, zone = (date) => date.getTimezoneOffset()) {
  if (!at) return "";
  const date = new Date(at), behind = Math.round(zone(date)), ahead = Math.abs(behind);
  const local = new Date(date.getTime() - behind * 60_000).toISOString().slice(0, -1);
  return `${local}${behind > 0 ? "-" : "+"}${two(Math.floor(ahead / 60))}:${two(ahead % 60)}`;
}

/** Returns a time for the name of a file, without what a file system refuses: "20261126-210327". @param {number} at ms */
export const stamp = (at) => isoTime(new Date(at).toISOString()).slice(0, 19).replaceAll(/[-:]/g, "").replace("T", "-");

/**
 * Reads a list page by page, the newest first, until it ends, or a number of items was looked at.
 * @param {(query: string) => Promise<{items: any[], next_cursor: string|null}>} page reads a page
 * @param {{most: number, size: number, keep?: (item: any) => boolean, onRead?: (looked: number, kept: number) => void}} options
 * @returns {Promise<{items: any[], looked: number, more: boolean}>} more: there are items that nobody looked at
 */
export async function readAll(page, { most, size, keep = () => true, onRead = () => {} }) {
  const items = [];
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
