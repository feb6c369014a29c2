import { html } from "../assets/preact.js";
import { send } from "../assets/api.js";
import { useLanguage } from "../assets/language.js";
import { PageError } from "../assets/problems.js";
import { Ask } from "../assets/ui.js";

/** Erases the driver's personal data, for good. */
export function Erase({ driver, path, onClose }) {
  const { t: { erase } } = useLanguage();
  const act = async () => {
    try {
      await send("POST", path + "/erase", { body: {} });
    } catch (err) {
      throw err.code === "DRIVER_BUSY" ? new PageError(({ t }) => t.erase.hasJob) : err;
    }
  };
  return html`<${Ask} title=${erase.title(driver.name)} word=${erase.word} danger act=${act} onClose=${onClose}>
    <p>${erase.gone}</p>
    <p>${erase.kept}</p>
  <//>`;
}
