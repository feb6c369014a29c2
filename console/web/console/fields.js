import { html, useEffect } from "../assets/preact.js";
import { Problem } from "../assets/api.js";

/** What an error says of single fields, by their names; {} where it is about something else. */
export function wrongFields(error) {
  if (!(error instanceof Problem) || !error.body.errors) return {};
  return Object.fromEntries(error.body.errors.map((e) => [e.field.replace(/\[.*/, ""), e.message]));
}

/** An error without what stands beside a field already: what is left for a Trouble to say. */
export function beside(error, wrong, names) {
  const fields = Object.keys(wrong);
  if (fields.length === 0 || fields.some((f) => !names.includes(f))) return error;
  return new Error(fields.length === 1 ? "One field is not right." : `${fields.length} fields are not right.`);
}

/** Takes the reader to the first field that is wrong, whenever there is another answer. */
export function useFirstWrong(form, wrong) {
  useEffect(() => {
    form.current?.querySelector("[aria-invalid=true]")?.focus();
  }, [wrong]);
}

/**
 * One control with its label, a hint, and what is wrong with it.
 * @param {{name: string, label: string, value: string, onInput: (value: string) => void, wrong?: any, hint?: any,
 *   optional?: boolean, control?: string, children?: any}} props
 *   control is the element, input where it is left out; what is not named here becomes its attributes
 */
export function Field({ name, label, value, onInput, wrong, hint, optional, control = "input", children, ...more }) {
  const id = `field-${name.replaceAll(/[._]/g, "-")}`;
  const about = [hint && `${id}-hint`, wrong && `${id}-wrong`].filter(Boolean).join(" ");
  return html`<div class="field">
    <label for=${id}>${label}${optional && html`<span class="soft"> (optional)</span>`}</label>
    <${control} id=${id} name=${name} value=${value} onInput=${(e) => onInput(e.target.value)} required=${!optional}
      aria-invalid=${wrong ? "true" : undefined} aria-describedby=${about || undefined} autocomplete="off" ...${more}>${children}<//>
    ${hint && html`<p class="hint soft" id=${`${id}-hint`}>${hint}</p>`}
    ${wrong && html`<p class="wrong bad" id=${`${id}-wrong`}>${wrong}</p>`}
  </div>`;
}

/** A few choices of which one is taken. @param {{label: string, name: string, value: string, choices: Object<string, string>, onInput: (value: string) => void, children?: any}} props */
export function Choice({ label, name, value, choices, onInput, children }) {
  return html`<fieldset class="choice"><legend>${label}</legend>
    <div class="row">${Object.entries(choices).map(([choice, text]) => html`<label key=${choice}>
      <input type="radio" name=${name} value=${choice} checked=${value === choice} onChange=${() => onInput(choice)} /> ${text}</label>`)}</div>
    ${children}
  </fieldset>`;
}

const decimal = /^[+-]?\d+(\.\d+)?$/;

/** A number that was typed: undefined for nothing, NaN for what is none. */
export function typedNumber(text) {
  const typed = text.trim();
  if (typed === "") return undefined;
  return decimal.test(typed) ? Number(typed) : NaN;
}

/** A time of a datetime-local, which is in the reader's own zone, as the API takes it; undefined for none. */
export function typedTime(text) {
  const at = new Date(text);
  return text === "" || Number.isNaN(at.getTime()) ? undefined : at.toISOString();
}

/** The reader's zone, by name and by what it is ahead at that time: "Asia/Seoul, GMT+9". */
export function zoneAt(text) {
  const at = text ? new Date(text) : new Date();
  const format = new Intl.DateTimeFormat("en", { timeZoneName: "shortOffset" });
  const offset = format.formatToParts(Number.isNaN(at.getTime()) ? new Date() : at).find((p) => p.type === "timeZoneName").value;
  return `${format.resolvedOptions().timeZone}, ${offset}`;
}
