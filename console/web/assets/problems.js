// Says in the reader's language what went wrong. The service's codes and its English texts are for programs: none is shown.
import { Problem, Unreachable } from "./api.js";

/** An error whose text a page has itself. say returns it in a language, so that the text follows when the reader changes that. */
export class PageError extends Error {
  /** @param {(language: ReturnType<typeof import("./language.js").useLanguage>) => string} say */
  constructor(say) {
    super("an error of the page");
    this.name = "PageError";
    this.say = say;
  }
}

// What the service writes about a field, and the name of the text for it; the parts in brackets are given to the text.
const rules = [
  [/^is required$/, "required"],
  [/^is required with (\w+)$/, "requiredWith"],
  [/^must be at least (\S+)(?: (\w+))?$/, "atLeast"],
  [/^must be at most (\S+)(?: (\w+))?$/, "atMost"],
  [/^must be more than (\S+)$/, "moreThan"],
  [/^must be after opens_at and in the future$/, "window"],
  [/^must be after (\w+)$/, "after"],
  [/^must not be after (\w+)$/, "notAfter"],
  [/^must be before (\w+)$/, "before"],
  [/^must be later than it is$/, "later"],
  [/^must be in the future$/, "future"],
  [/^must be (?:from the year 1 to 9999|before the year 10000), in UTC$/, "year"],
  [/^must be a number like (\S+)$/, "number"],
  [/^must be a whole number like (\S+)$/, "whole"],
  [/^must be an amount like (\S+)$/, "amount"],
  [/^must be a URL like (\S+)$/, "url"],
  [/^must have a host that has an address$/, "noAddress"],
  [/^must be in the past$/, "past"],
  [/^must be a phone number .* without an extension$/, "extension"],
  [/^must be a phone number like (\S+)/, "phone"],
  [/^must be a language like (\S+)$/, "language"],
  [/^must be a currency like (\S+)$/, "currency"],
  [/^is the number of (drv_\w+)$/, "ofDriver"],
  [/^is the number of another of these drivers$/, "ofAnother"],
  [/^must not have several regions/, "oneRegion"],
  [/^must not have .*: (U\+[0-9A-F]+) at (\d+)$/, "character"],
  [/^must not repeat$/, "repeats"],
  [/^must be printable ASCII without spaces$/, "ascii"],
  [/^must not be null$/, "required"],
];

/** Returns a field's name in words. @param {string} name as in the API: "regions[1]", "fee.amount" */
export const fieldIn = (t, name) => t.fields[name.replace(/\[.*/, "")] ?? name;

/** Returns what is wrong with a field in words. @param {string} message the service's, or the page's in the same words */
export function ruleIn(t, message) {
  for (const [pattern, rule] of rules) {
    const found = pattern.exec(message);
    if (found) return typeof t.rules[rule] === "string" ? t.rules[rule] : t.rules[rule](...found.slice(1).map((part) => t.fields[part] ?? part));
  }
  return t.rules.other;
}

/**
 * Returns the text of an error. Without an answer the outcome of a change is unknown; a reading has no outcome.
 * @param {Error} error
 * @param {{t: any}} language what useLanguage returns
 */
export function explain(error, language, reading = false) {
  const { t } = language;
  if (error instanceof PageError) return error.say(language);
  if (error instanceof Unreachable) return reading ? t.unreachable : t.unreachableChange;
  if (!(error instanceof Problem)) return t.pageFailed;
  if (error.body.errors) return error.body.errors.map((e) => t.wrongField(fieldIn(t, e.field), ruleIn(t, e.message))).join("; ");
  return t.codes[error.code] ?? t.codes.INTERNAL;
}
