import { html, useRef, useState } from "../assets/preact.js";
import { useLanguage } from "../assets/language.js";

/**
 * Shows a secret that is shown only once, with a button that copies it.
 * @param {{label: string, value: string}} props
 */
export function Secret({ label, value }) {
  const { t } = useLanguage();
  const field = useRef(null);
  const [said, say] = useState("");
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
    <label class="field">${label} <input ref=${field} readonly value=${value} onFocus=${(e) => e.target.select()} /></label>
    <button type="button" onClick=${copy}>${t.secret.copy}</button>
    <span role="status" class="soft">${t.secret[said]}</span>
  </div>`;
}
