import { html } from "../assets/preact.js";
import { send } from "../assets/api.js";
import { useLanguage } from "../assets/language.js";
import { Ask } from "../assets/ui.js";

/** Erases the driver's personal data, for good. */
export function Erase({ driver, path, onClose }) {
  const { t: { erase } } = useLanguage();
  return html`<${Ask} title=${erase.title(driver.name)} word=${erase.word} danger act=${() => send("POST", path + "/erase", { body: {} })} onClose=${onClose}>
    <p>${erase.gone}</p>
    <p>${erase.kept}</p>
  <//>`;
}
