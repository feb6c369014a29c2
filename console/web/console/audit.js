import { html } from "../assets/preact.js";

export function Audit() {
  return html`<h1>Audit</h1>`;
}
