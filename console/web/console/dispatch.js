import { html } from "../assets/preact.js";

export function Dispatch() {
  return html`<h1>Dispatch</h1>`;
}
