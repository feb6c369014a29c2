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
      <p>Whoever has the token is this driver to the service. It ends by itself, or with all of the driver's tokens.</p>
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

/** Revokes every token that the driver was issued. */
export function EndTokens({ driver, path, onClose }) {
  const act = () => send("DELETE", path + "/tokens");
  return html`<${Ask} title=${`End all of ${driver.name}'s tokens?`} word="End all tokens" danger act=${act} onClose=${onClose}>
    <p>Whoever signed in with one is signed out on every device, within a minute. A new token signs in again at once. It does not
      suspend the driver: what they have accepted stays theirs.</p>
    ${driver.firebase_uid && html`<p>They can sign in again with Firebase: to keep them out, disable the user there or suspend the driver.</p>`}
  <//>`;
}
