// An entry of the audit trail in words.
import { named } from "../assets/words.js";
import { fieldIn } from "./dialogs.js";

/** @typedef {Record<string, unknown>} Details */

/** @param {unknown} value @param {Reader} language @returns {string} */
export function words(value, language) {
  const { t, whenExactly } = language;
  if (value === null) return t.audit.none;
  if (typeof value === "boolean") return value ? t.audit.yes : t.audit.no;
  if (Array.isArray(value)) return t.list(value.map((v) => words(v, language)));
  if (isDetails(value)) return t.list(Object.entries(value).map(([name, v]) => `${nameOf(name, t)} ${words(v, language)}`));
  const text = String(value);
  return /^\d{4}-\d\d-\d\dT[\d:.]+Z$/.test(text) ? whenExactly(text) : named(t.roles, text) ?? named(t.events, text) ?? named(t.audit.values, text) ?? text;
}

/** Returns an entry's details as a text of one line for each. @param {Details} detail @param {Reader} language @returns {string} */
export function detailText(detail, language) {
  return Object.entries(detail).map(([name, value]) => `${nameOf(name, language.t)} ${
    changed(value) ? `${words(value.from, language)} → ${words(value.to, language)}`
    : name === "last" && isDetails(value) ? detailText(value, language).replaceAll("\n", "; ") : words(value, language)}`).join("\n");
}

/** @param {string} name @param {Texts} t */
export const nameOf = (name, t) => named(t.audit.fields, name) ?? fieldIn(t, name);

/** Reports whether value holds a field's old and new value. @param {unknown} value @returns {value is {from: unknown, to: unknown}} */
export const changed = (value) => typeof value === "object" && value !== null && "from" in value && "to" in value;

/** @param {unknown} value @returns {value is Details} */
export const isDetails = (value) => typeof value === "object" && value !== null;
