// What went wrong, in the reader's language, and the dialogs that ask before something is changed. The service's codes and its English
// texts are for programs: none is shown.
import { html, useEffect, useRef, useState } from "../assets/preact.js";
import { Problem, Unreachable } from "../assets/api.js";
import { useLanguage } from "../assets/language.js";
import { Dialog } from "../assets/ui.js";
import { named } from "../assets/words.js";

/** An error whose text a page has itself. say returns it in a language, so that the text follows when the reader changes that. */
export class PageError extends Error {
  /** @param {(reader: Reader) => string} say */
  constructor(say) {
    super("an error of the page");
    this.name = "PageError";
    this.say = say;
  }
}

// What the service writes about a field, and the name of the text for it; the parts in brackets are given to the text.
/** @type {[RegExp, keyof Texts["rules"]][]} */
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

/** @param {string|((...parts: string[]) => string)} text @param {string[]} parts */
const said = (text, ...parts) => (typeof text === "string" ? text : text(...parts));

/** Returns a field's name in words. @param {Texts} t @param {string} name as in the API: "regions[1]", "fee.amount" @returns {string} */
export const fieldIn = (t, name) => named(t.fields, name.replace(/\[.*/, "")) ?? name;

/**
 * Returns what is wrong with a field in words.
 * @param {Texts} t @param {string} message the service's, or the page's in the same words @returns {string}
 */
export function ruleIn(t, message) {
  for (const [pattern, rule] of rules) {
    const found = pattern.exec(message);
    if (found) return said(t.rules[rule], ...found.slice(1).map((part) => named(t.fields, part) ?? part));
  }
  return t.rules.other;
}

/**
 * Returns the text of an error. Without an answer the outcome of a change is unknown; a reading has no outcome.
 * @param {Error} error
 * @param {Reader} language
 */
export function explain(error, language, reading = false) {
  const { t } = language;
  if (error instanceof PageError) return error.say(language);
  if (error instanceof Unreachable) return reading ? t.unreachable : t.unreachableChange;
  if (!(error instanceof Problem)) return t.pageFailed;
  if (error.body.errors) return error.body.errors.map((e) => t.wrongField(fieldIn(t, e.field), ruleIn(t, e.message))).join("; ");
  return named(t.codes, error.code) ?? t.codes.INTERNAL;
}

/** Sets the tab's title as soon as the name is known, until the page changes. @param {string} [name] */
export function useTitle(name) {
  const { t } = useLanguage();
  useEffect(() => {
    if (name) document.title = t.titleOf(name);
  }, [name, t]);
}

/**
 * Shows an error in a live region that exists before the error does, so that screen readers read it.
 * @param {{error?: Error|null, reading?: boolean}} props reading: a reading failed, and not a change
 */
export function Trouble({ error, reading }) {
  const language = useLanguage();
  return html`<div class="trouble" role="alert">${error && explain(error, language, reading)}</div>`;
}

/** Shows that a request that takes long is still under way. @param {{busy: boolean}} props */
export function StillAsking({ busy }) {
  const { t } = useLanguage();
  const [slow, setSlow] = useState(false);
  useEffect(() => {
    setSlow(false);
    const timer = busy ? setTimeout(setSlow, 1500, true) : undefined;
    return () => clearTimeout(timer);
  }, [busy]);
  return slow && html`<p class="soft" role="status">${t.noAnswerYet}</p>`;
}

/**
 * Asks for confirmation, acts, and closes after a success. It shows a failure.
 * @param {{title: string, word: string, danger?: boolean, act: () => Promise<unknown>, onClose: (done: boolean) => void, children?: unknown}} props
 * word is the verb on the button that acts
 */
export function Ask({ title, word, danger, act, onClose, children }) {
  const { t } = useLanguage();
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState(/** @type {Failure|null} */ (null));
  const submit = async (/** @type {SubmitEvent} */ e) => {
    e.preventDefault();
    setBusy(true);
    try {
      await act();
    } catch (err) {
      setError(err);
      setBusy(false);
      return;
    }
    onClose(true);
  };
  return html`<${Dialog} title=${title} onClose=${() => onClose(false)}>
    <form class="stack" onSubmit=${submit}>
      ${children}
      <${Trouble} error=${error} />
      <${StillAsking} busy=${busy} />
      <div class="row">
        <button type="submit" class=${danger ? "danger" : "primary"} disabled=${busy}>${word}</button>
        <button type="button" onClick=${() => onClose(false)}>${t.back}</button>
      </div>
    </form>
  <//>`;
}

/**
 * Shows a secret that is shown only once, with a button that copies it.
 * @param {{label: string, value: string}} props
 */
export function Secret({ label, value }) {
  const { t } = useLanguage();
  /** @type {Ref<HTMLInputElement>} */
  const field = useRef(null);
  const [said, say] = useState(/** @type {""|"copied"|"selected"} */ (""));
  const copy = async () => {
    field.current.select();
    try {
      await navigator.clipboard.writeText(value); // works only over https and on localhost
      say("copied");
    } catch {
      say("selected");
    }
  };
  return html`<div class="secret">
    <label class="field">${label} <input ref=${field} readonly value=${value} onFocus=${() => field.current.select()} /></label>
    <button type="button" onClick=${copy}>${t.secret.copy}</button>
    <span role="status" class="soft">${said && t.secret[said]}</span>
  </div>`;
}

/**
 * Shows a text that the service wrote for its operator. It is English in every language, as the log that has the rest of it.
 * @param {{text: string|null}} props
 */
export const Logged = ({ text }) => html`<span lang="en">${text}</span>`;
