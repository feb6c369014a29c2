import { html, useMemo, useRef, useState } from "../assets/preact.js";
import { send } from "../assets/api.js";
import { useLanguage } from "../assets/language.js";
import { Dialog } from "../assets/ui.js";
import { Ask, Secret, Trouble } from "./dialogs.js";
import { Field, Unsettled, beside, useFirstWrong, useMaking, wrongFields } from "./forms.js";
import { useKeptForm } from "./kept.js";
import { shown } from "./names.js";
import { Export, More, usePages } from "./reading.js";

const path = "/v1/admin/api-keys";
const first = "key_first"; // the key from the settings

/** The API keys, with their names and roles. @param {PageProps} props */
export function Keys({ session }) {
  const { t } = useLanguage();
  const { keys, fields } = t;
  const pages = usePages(path);
  const [revoking, revoke] = useState(/** @type {Schemas["Key"]|null} */ (null));
  return html`<div class="admin stack"><div class="row"><h1>${t.page.keys}</h1><${Export} list="keys" /></div>
    <${NewKey} session=${session} onMade=${pages.reload} />
    <${Trouble} error=${pages.error} reading />
    <div class="scroll card" tabindex="0" role="region" aria-label=${t.page.keys}><table>
      <thead><tr>${[fields.name, fields.role, keys.made, keys.id, keys.state].map((title) => html`<th key=${title} scope="col">${title}</th>`)}</tr></thead>
      <tbody>${pages.items.map((/** @type {Schemas["Key"]} */ k) => html`<${Row} key=${k.id} of=${k} mine=${k.id === session.key_id} revoke=${() => revoke(k)} />`)}</tbody>
    </table></div>
    <${More} pages=${pages} of="keys" />
    ${revoking && html`<${Revoke} of=${revoking} mine=${revoking.id === session.key_id} onClose=${() => { revoke(null); pages.reload(); }} />`}
  </div>`;
}

/** @param {{of: Schemas["Key"], mine: boolean, revoke: () => void}} props */
function Row({ of, mine, revoke }) {
  const { t: { keys, roles }, when } = useLanguage();
  return html`<tr>
    <th scope="row"><bdi>${shown(of.name, of.id)}</bdi>${mine && html` <span class="badge soft">${keys.yours}</span>`}</th>
    <td>${roles[of.role]}</td><td class="nowrap">${when(of.created_at)}</td><td><code>${of.id}</code></td>
    <td>${of.revoked_at && html`<span class="badge bad">${keys.revoked(when(of.revoked_at))}</span>`}
      ${of.id === first && html`<span class="soft">${keys.first}</span>`}
      ${!of.revoked_at && of.id !== first && html`<button class="danger" aria-label=${keys.revokeOf(of.name)} onClick=${revoke}>${keys.revoke}</button>`}</td>
  </tr>`;
}

/** @param {{of: Schemas["Key"], mine: boolean, onClose: () => void}} props */
function Revoke({ of, mine, onClose }) {
  const { t: { keys } } = useLanguage();
  return html`<${Ask} title=${keys.revokeTitle(of.name)} word=${keys.revoke} danger act=${() => send("DELETE", `${path}/${encodeURIComponent(of.id)}`)} onClose=${onClose}>
    <p>${keys.revokeMore}</p>
    ${mine && html`<p class="warn">${keys.revokeMine}</p>`}
  <//>`;
}

/** @param {{session: Schemas["Session"], onMade: () => void}} props */
function NewKey({ session, onMade }) {
  const { t } = useLanguage();
  const { keys, fields } = t;
  const [form, change, clear] = useKeptForm(`firsttap.key.${session.key_id}`, { name: "", role: "viewer" });
  const { make, busy, error, unsettled } = useMaking(path, `firsttap.key.${session.key_id}.sent`);
  const [made, setMade] = useState(/** @type {Schemas["CreatedKey"]|null} */ (null));
  const wrong = useMemo(() => wrongFields(error), [error]);
  /** @type {Ref<HTMLFormElement>} */
  const element = useRef(null);
  useFirstWrong(element, wrong);
  const submit = async (/** @type {SubmitEvent} */ e) => {
    e.preventDefault();
    const key = await make({ name: form.name.trim(), role: form.role });
    if (!key) return;
    clear();
    setMade(key);
    onMade();
  };
  return html`<section class="card"><h2>${keys.newKey}</h2>
    <form ref=${element} class="stack" noValidate onSubmit=${submit} aria-label=${keys.newKey}>
      <div class="fields">
        <${Field} name="name" label=${fields.name} value=${form.name} wrong=${wrong.name} hint=${keys.nameHint} onInput=${(name) => change({ name })} />
        <${Field} name="role" label=${fields.role} control="select" value=${form.role} wrong=${wrong.role} onInput=${(role) => change({ role })}>
          ${Object.entries(keys.roles).map(([role, text]) => html`<option key=${role} value=${role}>${text}</option>`)}
        <//>
      </div>
      <${Trouble} error=${error && beside(error, wrong, ["name", "role"])} />
      <${Unsettled} unsettled=${unsettled && !busy} thing="key" />
      <div class="row"><button type="submit" class="primary" disabled=${busy}>${keys.make}</button></div>
    </form>
    ${made && html`<${Dialog} title=${keys.keyOf(made.name)} onClose=${() => setMade(null)}>
      <div class="stack">
        <p>${keys.shownOnce}</p>
        <${Secret} label=${keys.key} value=${made.key} />
        <div class="row"><button onClick=${() => setMade(null)}>${t.done}</button></div>
      </div>
    <//>`}
  </section>`;
}
