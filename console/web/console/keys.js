import { html, useMemo, useRef, useState } from "../assets/preact.js";
import { send } from "../assets/api.js";
import { Ask, Dialog, Trouble, when } from "../assets/ui.js";
import { Field, beside, useFirstWrong, wrongFields } from "./fields.js";
import { useKeptForm } from "./kept.js";
import { Unsettled, useMaking } from "./making.js";
import { More, usePages } from "./paging.js";
import { Secret } from "./secret.js";

const path = "/v1/admin/api-keys";
const first = "key_first"; // the key from the settings

const roles = {
  viewer: "viewer: reads", dispatcher: "dispatcher: makes and changes dispatches", admin: "admin: everything",
};

/** The API keys, with their names and roles. */
export function Keys({ session }) {
  const pages = usePages(path);
  const [revoking, revoke] = useState(null);
  return html`<div class="admin stack"><h1>API keys</h1>
    <${NewKey} session=${session} onMade=${pages.reload} />
    <${Trouble} error=${pages.error} reading />
    <div class="scroll card" tabindex="0" role="region" aria-label="API keys"><table>
      <thead><tr><th scope="col">Name</th><th scope="col">Role</th><th scope="col">Made</th><th scope="col">ID</th><th scope="col">State</th></tr></thead>
      <tbody>${pages.items.map((k) => html`<${Row} key=${k.id} of=${k} mine=${k.id === session.key_id} revoke=${() => revoke(k)} />`)}</tbody>
    </table></div>
    <${More} pages=${pages} one="key" many="keys" />
    ${revoking && html`<${Revoke} of=${revoking} mine=${revoking.id === session.key_id} onClose=${() => { revoke(null); pages.reload(); }} />`}
  </div>`;
}

function Row({ of, mine, revoke }) {
  return html`<tr>
    <th scope="row">${of.name}${mine && html` <span class="badge soft">yours</span>`}</th>
    <td>${of.role}</td><td class="nowrap">${when(of.created_at)}</td><td><code>${of.id}</code></td>
    <td>${of.revoked_at && html`<span class="badge bad">revoked ${when(of.revoked_at)}</span>`}
      ${of.id === first && html`<span class="soft">The first key: it is replaced in FIRSTTAP_ADMIN_KEY.</span>`}
      ${!of.revoked_at && of.id !== first && html`<button class="danger" aria-label=${`Revoke ${of.name}`} onClick=${revoke}>Revoke</button>`}</td>
  </tr>`;
}

function Revoke({ of, mine, onClose }) {
  return html`<${Ask} title=${`Revoke ${of.name}?`} word="Revoke" danger act=${() => send("DELETE", `${path}/${encodeURIComponent(of.id)}`)} onClose=${onClose}>
    <p>Nothing is answered to this key any more, and who is signed in with it is turned out. That can't be undone.</p>
    ${mine && html`<p class="warn">You are signed in with this key yourself.</p>`}
  <//>`;
}

function NewKey({ session, onMade }) {
  const [form, change, clear] = useKeptForm(`firsttap.key.${session.key_id}`, { name: "", role: "viewer" });
  const { make, busy, error, unsettled } = useMaking(path, `firsttap.key.${session.key_id}.sent`);
  const [made, setMade] = useState(null);
  const wrong = useMemo(() => wrongFields(error), [error]);
  const element = useRef(null);
  useFirstWrong(element, wrong);
  const submit = async (e) => {
    e.preventDefault();
    const key = await make({ name: form.name.trim(), role: form.role });
    if (!key) return;
    clear();
    setMade(key);
    onMade();
  };
  return html`<section class="card"><h2>New key</h2>
    <form ref=${element} class="stack" noValidate onSubmit=${submit} aria-label="New key">
      <div class="fields">
        <${Field} name="name" label="Name" value=${form.name} wrong=${wrong.name} hint="Whose key it is." onInput=${(name) => change({ name })} />
        <${Field} name="role" label="Role" control="select" value=${form.role} wrong=${wrong.role} onInput=${(role) => change({ role })}>
          ${Object.entries(roles).map(([role, text]) => html`<option key=${role} value=${role}>${text}</option>`)}
        <//>
      </div>
      <${Trouble} error=${error && beside(error, wrong, ["name", "role"])} />
      <${Unsettled} unsettled=${unsettled && !busy} thing="key" />
      <div class="row"><button type="submit" class="primary" disabled=${busy}>Make key</button></div>
    </form>
    ${made && html`<${Dialog} title=${`The key of ${made.name}`} onClose=${() => setMade(null)}>
      <div class="stack">
        <p>It is shown here only. Keep it where secrets are kept.</p>
        <${Secret} label="Key" value=${made.key} />
        <div class="row"><button onClick=${() => setMade(null)}>Done</button></div>
      </div>
    <//>`}
  </section>`;
}
