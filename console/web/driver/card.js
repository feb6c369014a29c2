// The parts that offers and jobs share: the terms, the state of a change, and the question for a reason.
import { html, useState } from "../assets/preact.js";
import { Dialog } from "../assets/ui.js";
import { useLanguage } from "../assets/language.js";

/** The terms of a dispatch, in the reader's language. @returns {{name: string, text: string}[]} the terms that are set */
function termsOf(dispatch, { t, span, number }) {
  const height = dispatch.min_working_height_m;
  return [
    { name: "when", text: span(dispatch.work_starts_at, dispatch.work_ends_at) },
    { name: "vehicle", text: dispatch.vehicle_class },
    { name: "height", text: height === null ? "" : t.atLeast(number(height)) },
    { name: "region", text: dispatch.region },
    { name: "note", text: dispatch.note ?? "" },
  ];
}

/** Shows the terms. With before, the terms of an earlier round, it shows the changes since then. */
export function Terms({ dispatch, before }) {
  const language = useLanguage();
  const { t, money } = language;
  const old = before ? termsOf(before, language) : null;
  const was = (now, then) => (before && now !== then ? html` <span class="was">${t.was(then || "–")}</span>` : "");
  return html`
    <h2 id=${`at-${dispatch.id}`}>${dispatch.site_address}</h2>${was(dispatch.site_address, before?.site_address)}
    <p class="fee"><span class="hidden">${t.fee} </span>${money(dispatch.fee)}${was(money(dispatch.fee), before && money(before.fee))}</p>
    <dl class="terms">${termsOf(dispatch, language).map(({ name, text }, i) => (text || old?.[i].text) && html`
      <div key=${name}><dt>${t[name]}</dt><dd>${text || "–"}${was(text, old?.[i].text)}</dd></div>`)}</dl>`;
}

/** Shows that a change is under way, has an unknown outcome, or failed. */
export function Deed({ deed }) {
  const { t } = useLanguage();
  let text = "";
  if (deed?.error) text = t.notDone(t.codes[deed.error.code] ?? t.codes.INTERNAL);
  else if (deed) text = deed.unknown ? t.unknown : t.underWay[deed.what];
  return html`<p class=${deed?.error ? "bad" : "soft"} role="status">${text}</p>`;
}

/** Asks for a reason before an action. @param {{title: string, word: string, reasons: Record<string, string>, onReason: (code: string) => void, onClose: () => void}} props */
export function AskWhy({ title, word, reasons, children, onReason, onClose }) {
  const { t } = useLanguage();
  const [code, setCode] = useState(Object.keys(reasons)[0]);
  const submit = (e) => {
    e.preventDefault();
    onReason(code);
  };
  return html`<${Dialog} title=${title} onClose=${onClose}>
    <form class="stack" onSubmit=${submit}>
      ${children}
      <fieldset class="stack"><legend>${t.why}</legend>${Object.entries(reasons).map(([value, text]) => html`
        <label key=${value} class="choice"><input type="radio" name="reason" value=${value} checked=${value === code}
          onChange=${() => setCode(value)} /> ${text}</label>`)}</fieldset>
      <button class="danger big">${word}</button>
      <button type="button" class="big" onClick=${onClose}>${t.back}</button>
    </form>
  <//>`;
}
