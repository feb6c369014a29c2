import { html, useEffect } from "../assets/preact.js";
import { Problem } from "../assets/api.js";
import { useLanguage } from "../assets/language.js";
import { PageError, ruleIn } from "../assets/problems.js";

/** Returns an error's messages by field name, or {} if it is not about fields. */
export function wrongFields(error) {
  if (!(error instanceof Problem) || !error.body.errors) return {};
  return Object.fromEntries(error.body.errors.map((e) => [e.field.replace(/\[.*/, ""), e.message]));
}

/** Returns an error without the messages that stand beside a field: the rest is for Trouble. */
export function beside(error, wrong, names) {
  const fields = Object.keys(wrong);
  if (fields.length === 0 || fields.some((f) => !names.includes(f))) return error;
  return new PageError(({ t }) => t.wrongFields(fields.length));
}

/** Moves the focus to the first wrong field after each answer. */
export function useFirstWrong(form, wrong) {
  useEffect(() => {
    form.current?.querySelector("[aria-invalid=true]")?.focus();
  }, [wrong]);
}

// An input drops the line ends of a pasted text, and joins the words around them.
function pasteInOneLine(e) {
  const text = e.clipboardData.getData("text/plain").trim();
  if (!/[\r\n]/.test(text)) return;
  e.preventDefault();
  document.execCommand("insertText", false, text.replaceAll(/\s*[\r\n]\s*/g, " ")); // which can be undone, and fires input
}

/**
 * One control with its label, a hint, and its error.
 * @param {{name: string, label: string, value: string, onInput: (value: string, e: InputEvent) => void, wrong?: any, hint?: any,
 *   optional?: boolean, control?: string, children?: any}} props
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

/** A choice of one from a few. @param {{label: string, name: string, value: string, choices: Object<string, string>, onInput: (value: string) => void, children?: any}} props */
export function Choice({ label, name, value, choices, onInput, children }) {
  return html`<fieldset class="choice"><legend>${label}</legend>
    <div class="row">${Object.entries(choices).map(([choice, text]) => html`<label key=${choice}>
      <input type="radio" name=${name} value=${choice} checked=${value === choice} onChange=${() => onInput(choice)} /> ${text}</label>`)}</div>
    ${children}
  </fieldset>`;
}

const decimal = /^[+-]?\d+(\.\d+)?(e[+-]?\d+)?$/; // a stored 0.0000001 is shown as 1e-7

/** Returns a typed number: undefined for an empty text, NaN for an invalid one. */
export function typedNumber(text) {
  const typed = text.trim();
  if (typed === "") return undefined;
  return decimal.test(typed) ? Number(typed) : NaN;
}
