import { html } from "../assets/preact.js";

export function Create() {
  return html`<h1>Create</h1>`;
}
