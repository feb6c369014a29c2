import { html } from "../assets/preact.js";

export function Keys() {
  return html`<h1>Keys</h1>`;
}
