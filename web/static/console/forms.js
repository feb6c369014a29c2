// The parts of the forms, and how they are sent.
import { html, useEffect, useMemo, useRef, useState } from "../assets/preact.js";
import { Problem, Unreachable, freshKey, get, list, request, send } from "../assets/api.js";
import { useLanguage } from "../assets/language.js";
import { useLoaded } from "../assets/ui.js";
import { PageError, ruleIn } from "./dialogs.js";
import { forget, keep, kept } from "./kept.js";

/** @typedef {unknown} Wrong what is wrong with a field: the service's text, the page's in the same words, or a part of the page */

/** Returns an error's messages by field name, or {} if it is not about fields. @param {Failure|null} error @returns {Record<string, string>} */
export function wrongFields(error) {
  if (!(error instanceof Problem) || !error.body.errors) return {};
  return Object.fromEntries(error.body.errors.map((e) => [e.field.replace(/\[.*/, ""), e.message]));
}

/**
 * Returns an error without the messages that stand beside a field: the rest is for Trouble.
 * @param {Failure} error @param {Record<string, unknown>} wrong @param {string[]} names @returns {Failure}
 */
export function beside(error, wrong, names) {
  const fields = Object.keys(wrong);
  if (fields.length === 0 || fields.some((f) => !names.includes(f))) return error;
  return new PageError(({ t }) => t.wrongFields(fields.length));
}

/** Moves the focus to the first wrong field after each answer. @param {Ref<HTMLElement>} form @param {unknown} wrong */
export function useFirstWrong(form, wrong) {
  useEffect(() => {
    /** @type {HTMLElement|null} */ (form.current?.querySelector("[aria-invalid=true]"))?.focus();
  }, [wrong]);
}

// An input drops the line ends of a pasted text, and joins the words around them.
/** @param {ClipboardEvent} e */
function pasteInOneLine(e) {
  const text = e.clipboardData?.getData("text/plain").trim() ?? "";
  if (!/[\r\n]/.test(text)) return;
  e.preventDefault();
  document.execCommand("insertText", false, text.replaceAll(/\s*[\r\n]\s*/g, " ")); // which can be undone, and fires input
}

/**
 * One control with its label, a hint, and its error.
 * @param {{name: string, label: string, value: string, onInput: (value: string, e: InputEvent) => void, wrong?: Wrong, hint?: unknown,
 *
 optional?: boolean, control?: string, children?: unknown}} props
 * wrong is the service's text about the field, or the page's in the same words; control is the element, input by default; the other props become its attributes
 */
export function Field({ name, label, value, onInput, wrong, hint, optional, control = "input", children, ...more }) {
  const { t } = useLanguage();
  const id = `field-${name.replaceAll(/[._]/g, "-")}`;
  const about = [hint && `${id}-hint`, wrong && `${id}-wrong`].filter(Boolean).join(" ");
  return html`<div class="field">
    <label for=${id}>${label}${optional && html`<span class="soft"> ${t.optional}</span>`}</label>
    <${control} id=${id} name=${name} value=${value} onInput=${(e) => onInput(e.target.value, e)} required=${!optional}
      onPaste=${control === "input" ? pasteInOneLine : undefined}
      aria-invalid=${wrong ? "true" : undefined} aria-describedby=${about || undefined} autocomplete="off" ...${more}>${children}<//>
    ${hint && html`<p class="hint soft" id=${`${id}-hint`}>${hint}</p>`}
    ${wrong && html`<p class="wrong bad" id=${`${id}-wrong`}>${typeof wrong === "string" ? ruleIn(t, wrong) : wrong}</p>`}
  </div>`;
}

/**
 * A choice of one from a few.
 * @param {{label: string, name: string, value: string, choices: Record<string, string>, onInput: (value: string) => void, children?: unknown}} props
 */
export function Choice({ label, name, value, choices, onInput, children }) {
  return html`<fieldset class="choice"><legend>${label}</legend>
    <div class="row">${Object.entries(choices).map(([choice, text]) => html`<label key=${choice}>
      <input type="radio" name=${name} value=${choice} checked=${value === choice} onChange=${() => onInput(choice)} /> ${text}</label>`)}</div>
    ${children}
  </fieldset>`;
}

const decimal = /^[+-]?\d+(\.\d+)?(e[+-]?\d+)?$/; // a stored 0.0000001 is shown as 1e-7

/** Returns a typed number: undefined for an empty text, NaN for an invalid one. @param {string} text */
export function typedNumber(text) {
  const typed = text.trim();
  if (typed === "") return undefined;
  return decimal.test(typed) ? Number(typed) : NaN;
}

/** Returns the number of a currency's digits behind the point. The service refuses an unknown currency. @param {string} currency */
export function fractionDigits(currency) {
  try {
    return new Intl.NumberFormat("en", { style: "currency", currency }).resolvedOptions().maximumFractionDigits ?? 0;
  } catch {
    return 0;
  }
}

/**
 * Returns a typed amount in the currency's minor unit, or NaN. It reads the digits, because 0.1 is not exact in a double.
 * @param {string} text @param {string} currency
 */
export function minorUnits(text, currency) {
  const digits = fractionDigits(currency);
  // A comma is between thousands only: where it is written for a point, 350,00 would be a hundredfold.
  const [, typed, fraction = ""] = /^(\d+|\d{1,3}(?:[,\s]\d{3})+)(?:\.(\d+))?$/.exec(text.trim()) ?? [];
  const whole = typed?.replaceAll(/\D/g, "");
  const amount = whole === undefined || fraction.length > digits ? NaN : Number(whole + fraction.padEnd(digits, "0"));
  return Number.isSafeInteger(amount) ? amount : NaN;
}

/** Returns the error text for an invalid amount. @param {string} currency */
export const amountHint = (currency) => (fractionDigits(currency) ? "must be an amount like 350.00" : "must be a whole number like 350000");

const sample = 200; // drivers: enough to know the regions and classes in use

/** @param {string[]} words */
const sorted = (words) => [...new Set(words)].sort();

/** @param {AbortSignal} signal */
async function load(signal) {
  const [board, drivers] = await Promise.all([get("/v1/admin/board", { signal }), list("/v1/admin/drivers", sample, { signal })]);
  return {
    regions: sorted([...board.regions.map((/** @type {{region: string}} */ r) => r.region), ...drivers.items.flatMap((d) => d.regions)]),
    classes: sorted(drivers.items.map((d) => d.vehicle_class)),
  };
}

/**
 * Returns the regions and classes in use, undefined until they are read.
 * @param {{regions: string[], vehicle_class: string}} [driver] the driver that is edited
 */
export function useKnown(driver) {
  const { data } = useLoaded(load, []);
  return data && driver ? { regions: [...data.regions, ...driver.regions], classes: [...data.classes, driver.vehicle_class] } : data;
}

/**
 * Says which of the typed words are not in use yet, as most of those are misspelt.
 * @param {string[]|undefined} known
 * @param {string[]} typed
 * @param {Texts} t
 */
export function newTo(known, typed, t) {
  const fresh = typed.map((word) => word.trim()).filter((word) => word && known?.includes(word) === false);
  return fresh.length > 0 && t.notInUse(t.list(fresh));
}

/** The lists that inputs name in `list`. Every text can be typed nevertheless. @param {{known: ReturnType<typeof useKnown>}} props */
export function Suggestions({ known }) {
  const options = (/** @type {string[]} */ words = []) => sorted(words).map((w) => html`<option key=${w} value=${w} />`);
  return html`<datalist id="regions">${options(known?.regions)}</datalist>
    <datalist id="classes">${options(known?.classes)}</datalist>`;
}

// What people type and paste between the items of a list. A point or a slash may be a part of a name: 종로·중구.
const separators = /[,，、;；|\r\n\t]+/;

/** Returns the regions with those of a typed or pasted text, each once. @param {string[]} regions @param {string} text */
export const withTyped = (regions, text) => [...new Set([...regions, ...text.split(separators).map((r) => r.trim()).filter(Boolean)])];

/**
 * The regions of a driver: each is an item of its own, which is chosen, typed, or pasted in a list.
 * @param {{form: {regions: string[], region: string}, wrong?: string, known?: string[], change: (changes: {regions?: string[], region?: string}) => void}} props
 */
export function Regions({ form: { regions, region }, wrong, known, change }) {
  const { t: { fields, drivers }, t } = useLanguage();
  const add = (/** @type {string} */ text) => change({ regions: withTyped(regions, text), region: "" });
  const remove = (/** @type {string} */ name) => change({ regions: regions.filter((r) => r !== name) });
  const composing = (/** @type {KeyboardEvent|InputEvent} */ e) => e.isComposing || "keyCode" in e && e.keyCode === 229; // Safari says that it is over before the key that ends it
  const chosen = (/** @type {string} */ text, /** @type {InputEvent} */ e) => known?.includes(text) && (!e.inputType || e.inputType === "insertReplacementText"); // from the list
  const more = {
    // What is typed last stays typed until it is sent: an item that appears moves the button that is being clicked.
    onInput: (/** @type {string} */ text, /** @type {InputEvent} */ e) => ((separators.test(text) && !composing(e)) || chosen(text, e) ? add(text) : change({ region: text })),
    onKeyDown(/** @type {KeyboardEvent} */ e) {
      if (e.key !== "Enter" || composing(e) || region.trim() === "") return;
      e.preventDefault();
      add(region);
    },
    onPaste(/** @type {ClipboardEvent} */ e) { // an input would join the lines of a pasted list
      const text = e.clipboardData?.getData("text/plain") ?? "";
      if (!separators.test(text)) return;
      e.preventDefault();
      add(`${region}${text}`);
    },
  };
  const hint = html`${drivers.regionsHint} ${newTo(known, withTyped(regions, region), t)}`;
  return html`<div class="stack">
    <${Field} name="regions" label=${fields.regions} value=${region} wrong=${wrong} hint=${hint} list="regions"
      required=${regions.length === 0} ...${more} />
    ${regions.length > 0 && html`<ul class="chips row">${regions.map((name) => html`<li key=${name} class="badge"><bdi>${name}</bdi>
      <button type="button" class="quiet" aria-label=${drivers.removeRegion(name)} onClick=${() => remove(name)}>×</button>
    </li>`)}</ul>`}
  </div>`;
}

// Reports whether an answer is about the request itself. Any other leaves the outcome of an earlier try of the request open.
/** @param {unknown} err */
export const settles = (err) => err instanceof Problem && err.status < 500 && ![401, 403, 429].includes(err.status) &&
  err.code !== "IDEMPOTENCY_KEY_IN_USE";

/** @param {Failure} err */
const unknown = (err) => err instanceof Unreachable || (err.status ?? 0) >= 500 || err.code === "IDEMPOTENCY_KEY_IN_USE";

/**
 * Creates something by POST, once. Until an answer comes the same body is sent with the same Idempotency-Key, also after a
 * reload; another body gets another key. It begins no second creation while one is under way.
 *
 * @param {string} path
 * @param {string} name the name under which the unanswered request is stored
 * @returns {{make: (body: unknown) => Promise<any>, busy: boolean, error: Error|null, unsettled: boolean}}
 * make returns the created object, or undefined after a failure, which error then holds; unsettled: the last outcome is
 * unknown
 */
export function useMaking(path, name) {
  const [state, set] = useState(() => ({ busy: false, error: /** @type {Failure|null} */ (null), unsettled: kept(name) !== null }));
  const underWay = useRef(/** @type {AbortController|null} */ (null));
  // Leaving the page aborts the request. Its key stays stored, so that it can be sent again.
  useEffect(() => () => underWay.current?.abort(), []);

  const make = async (/** @type {unknown} */ body) => {
    if (underWay.current) return undefined; // the second click of a double click comes before the button is disabled
    const { signal } = underWay.current = new AbortController();
    const said = JSON.stringify(body);
    const before = kept(name);
    const { key } = before?.said === said ? before : { key: freshKey() };
    keep(name, { said, key });
    set((s) => ({ ...s, busy: true }));
    try {
      const { data } = await send("POST", path, { body, idempotencyKey: key, signal });
      forget(name);
      set({ busy: false, error: null, unsettled: false });
      return data;
    } catch (error) {
      if (signal.aborted) return undefined;
      if (settles(error)) forget(name);
      set({ busy: false, error, unsettled: unknown(error) });
      return undefined;
    } finally {
      underWay.current = null;
    }
  };
  return { ...state, make };
}

/** Shows the next step while the outcome of a creation is unknown. @param {{unsettled: boolean, thing: "dispatch"|"driver"|"key"|"webhook"}} props */
export function Unsettled({ unsettled, thing }) {
  const { t } = useLanguage();
  return html`<div role="status" class="unsettled">${unsettled && t.making[thing]}</div>`;
}

/** @param {unknown} a @param {unknown} b */
const same = (a, b) => JSON.stringify(a) === JSON.stringify(b); // some fields are lists

/**
 * Returns the names of the fields that differ.
 * @template {string} N @param {N[]} names @param {Partial<Record<N, unknown>>} a @param {Partial<Record<N, unknown>>} b @returns {N[]}
 */
export const differ = (names, a, b) => names.filter((name) => !same(a[name], b[name]));

/**
 * Edits something by a PATCH with the fields that were edited, and no others: what a form can't show, or shows in another form, stays as it
 * is. It sends them once and never repeats them by itself: a second request would take its own change for another user's.
 *
 * @template {{version: number}} T
 * @template F
 * @template {string} N
 * @param {T} opened what is edited: its later versions do not change the form
 * @param {string} path
 * @param {{names: N[], formOf: (of: T) => F, valuesOf: (form: F) => {values: Record<N, unknown>, wrong: Record<string, string>},
 *
 movedBy?: (before: T, after: T) => Failure, onClose: () => void}} options
 * valuesOf: the form in the API's types, and the inputs that no request can carry; movedBy: the error about another user's changes
 */
export function useEditing(opened, path, { names, formOf, valuesOf, movedBy, onClose }) {
  const [first] = useState(opened);
  const [seen, setSeen] = useState(opened);
  const [form, setForm] = useState(() => formOf(opened));
  const [state, set] = useState(/** @type {{busy: boolean, error: Failure|null, unsaid: Record<string, string>|null}} */ ({ busy: false, error: null, unsaid: null }));
  const wrong = useMemo(() => state.unsaid ?? wrongFields(state.error), [state]);
  /** @type {Ref<HTMLFormElement>} */
  const element = useRef(null);
  useFirstWrong(element, wrong);

  const save = async (/** @type {Record<string, unknown>} */ changes) => {
    try {
      await request("PATCH", path, { body: changes, version: seen.version });
    } catch (error) {
      if (error.status !== 412) throw error;
      const after = await get(path);
      setSeen(after);
      if (differ(Object.keys(changes), changes, after).length === 0) return; // by an unanswered try
      throw movedBy?.(seen, after) ?? error;
    }
  };
  const onSubmit = async (/** @type {SubmitEvent} */ e) => {
    e.preventDefault();
    const { values, wrong: found } = valuesOf(form);
    const edited = differ(names, values, valuesOf(formOf(first)).values);
    const unsaid = Object.fromEntries(edited.filter((name) => found[name]).map((name) => [name, found[name]]));
    if (Object.keys(unsaid).length > 0) {
      set({ busy: false, error: null, unsaid });
      return;
    }
    set({ busy: true, error: null, unsaid: null });
    try {
      if (edited.length > 0) await save(Object.fromEntries(edited.map((name) => [name, values[name]])));
      onClose();
    } catch (error) {
      set({ busy: false, error, unsaid: null });
    }
  };
  return {
    element, form, wrong, onSubmit, busy: state.busy, error: state.error && beside(state.error, wrong, names),
    change: (/** @type {Partial<F>} */ changes) => setForm((/** @type {F} */ before) => ({ ...before, ...changes })),
  };
}
