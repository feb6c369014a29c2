import { html } from "../assets/preact.js";

export function Board() {
  return html`<h1>Board</h1>`;
}
