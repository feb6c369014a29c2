import { html, useState } from "../assets/preact.js";
import { send } from "../assets/api.js";
import { Ask, Dialog, when } from "../assets/ui.js";
import { Secret } from "./secret.js";

/** Issues a token that signs in as the driver, and shows it once. */
export function IssueToken({ driver, path, onClose }) {
  const [made, setMade] = useState(null);
  const act = async () => setMade((await send("POST", path + "/tokens")).data);
  if (!made) {
    return html`<${Ask} title=${`A token for ${driver.name}?`} word="Issue" act=${act} onClose=${(done) => done || onClose()}>
      <p>Whoever has the token is this driver to the service. It can't be taken back before it ends.</p>
    <//>`;
  }
  return html`<${Dialog} title=${`${driver.name}'s token`} onClose=${onClose}>
    <div class="stack">
      <p>It is good until ${when(made.expires_at)}, and shown here only.</p>
      <${Secret} label="Token" value=${made.token} />
      <div class="row">
        <a class="button" href=${"/driver/#token=" + made.token} target="_blank" rel="noopener">Open this driver's phone</a>
        <button onClick=${onClose}>Done</button>
      </div>
    </div>
  <//>`;
}
