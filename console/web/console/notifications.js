import { html } from "../assets/preact.js";

export function Notifications() {
  return html`<h1>Notifications</h1>`;
}
