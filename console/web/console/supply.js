import { html } from "../assets/preact.js";

export function Supply() {
  return html`<h1>Supply</h1>`;
}
