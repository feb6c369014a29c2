import { html, useState } from "../assets/preact.js";
import { send } from "../assets/api.js";
import { useLanguage } from "../assets/language.js";
import { Ask, Dialog } from "../assets/ui.js";
import { Secret } from "./secret.js";

/** Issues a token that signs in as the driver, and shows it once. */
export function IssueToken({ driver, path, onClose }) {
  const { t: { done, token }, when } = useLanguage();
  const [made, setMade] = useState(null);
  const act = async () => setMade((await send("POST", path + "/tokens")).data);
  if (!made) {
    return html`<${Ask} title=${token.title(driver.name)} word=${token.word} act=${act} onClose=${(issued) => issued || onClose()}>
      <p>${token.more}</p>
    <//>`;
  }
  return html`<${Dialog} title=${token.made(driver.name)} onClose=${onClose}>
    <div class="stack">
      <p>${token.good(when(made.expires_at))}</p>
      <${Secret} label=${token.token} value=${made.token} />
      <div class="row">
        <a class="button" href=${"/driver/#token=" + made.token} target="_blank" rel="noopener">${token.open}</a>
        <button onClick=${onClose}>${done}</button>
      </div>
    </div>
  <//>`;
}

/** Revokes every token that the driver was issued. */
export function EndTokens({ driver, path, onClose }) {
  const { t: { drivers, token } } = useLanguage();
  const act = () => send("DELETE", path + "/tokens");
  return html`<${Ask} title=${token.endTitle(driver.name)} word=${drivers.endTokens} danger act=${act} onClose=${onClose}>
    <p>${token.endMore}</p>
    ${driver.firebase_uid && html`<p>${token.firebase}</p>`}
  <//>`;
}
