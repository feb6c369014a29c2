import { html } from "../assets/preact.js";
import { send } from "../assets/api.js";
import { Ask } from "../assets/ui.js";

/** Erases the driver's personal data, for good. */
export function Erase({ driver, path, onClose }) {
  return html`<${Ask} title=${`Erase ${driver.name}?`} word="Erase for good" danger act=${() => send("POST", path + "/erase", { body: {} })} onClose=${onClose}>
    <p>Name, phone number, Firebase UID, language, regions, vehicle and devices are deleted, also from the audit. The driver is signed out
      everywhere, and gets no offers and no pushes any more.</p>
    <p>Jobs, taps and events stay, under the driver's ID and a pseudonym. It can't be undone: whoever comes back is a new driver.</p>
  <//>`;
}
