import { html, useRef, useState } from "../assets/preact.js";

/**
 * Shows a secret that is shown only once, with a button that copies it.
 * @param {{label: string, value: string}} props
 */
export function Secret({ label, value }) {
  const field = useRef(null);
  const [said, say] = useState("");
  const copy = async () => {
    field.current.select();
    try {
      await navigator.clipboard.writeText(value); // works only over https and on localhost
      say("Copied.");
    } catch {
      say("It is selected: copy it with Ctrl+C.");
    }
  };
  return html`<div class="secret">
    <label class="field">${label} <input ref=${field} readonly value=${value} onFocus=${(e) => e.target.select()} /></label>
    <button type="button" onClick=${copy}>Copy</button>
    <span role="status" class="soft">${said}</span>
  </div>`;
}
