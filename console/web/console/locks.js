import { html } from "../assets/preact.js";

export function Locks() {
  return html`<h1>Locks</h1>`;
}
