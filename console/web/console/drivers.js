import { html } from "../assets/preact.js";

export function Drivers() {
  return html`<h1>Drivers</h1>`;
}
