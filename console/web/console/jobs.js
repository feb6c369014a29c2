import { html } from "../assets/preact.js";

export function Jobs() {
  return html`<h1>Jobs</h1>`;
}
