import { html } from "../assets/preact.js";
import { list } from "../assets/api.js";
import { useLanguage } from "../assets/language.js";
import { named } from "../assets/words.js";
import { useLoaded } from "../assets/ui.js";
import { changed, isDetails, nameOf, words } from "./audit_detail.js";
import { Trouble } from "./dialogs.js";
import { useQuery } from "./kept.js";
import { Export, More, usePages } from "./reading.js";

const mostNamed = 200; // keys: the page shows an older key by its id

/** The changes and their authors, the newest first. */
export function Audit() {
  const { t, whenExactly } = useLanguage();
  const { audit } = t;
  const [query, change] = useQuery(["actor", "target"]);
  const pages = usePages("/v1/admin/audit", query);
  const keys = useLoaded((signal) => list("/v1/admin/api-keys", mostNamed, { signal }), []);
  const names = new Map(keys.data?.items.map((k) => [k.id, k.name]));
  return html`<div class="admin"><div class="row"><h1>${t.page.audit}</h1><${Export} list="audit" query=${query} /></div>
    <form class="filters" role="search" aria-label=${t.page.audit} onSubmit=${(e) => e.preventDefault()}>
      <label>${audit.who} <input value=${query.actor} list="keys" placeholder=${audit.whoHint} onInput=${(e) => change({ actor: e.target.value.trim() })} /></label>
      <label>${audit.changed} <input value=${query.target} placeholder=${audit.whatHint} onInput=${(e) => change({ target: e.target.value.trim() })} /></label>
      ${(query.actor || query.target) && html`<button type="button" onClick=${() => change({ actor: "", target: "" })}>${t.showAll}</button>`}
    </form>
    <datalist id="keys">${[...names].map(([id, name]) => html`<option key=${id} value=${id}>${name}</option>`)}</datalist>
    <p class="soft">${audit.own}</p>
    <${Trouble} error=${pages.error ?? keys.error} reading />
    <div class="scroll card" tabindex="0" role="region" aria-label=${t.page.audit}><table>
      <thead><tr>${[audit.when, audit.who, audit.did, audit.to, audit.details, audit.request].map((title) => html`
        <th key=${title} scope="col">${title}</th>`)}</tr></thead>
      <tbody>${pages.items.map((/** @type {Schemas["AuditEntry"]} */ e) => html`<tr key=${e.id}>
        <td class="nowrap">${whenExactly(e.at)}</td>
        <td><${Actor} of=${e.actor} names=${names} /></td>
        <td>${named(audit.actions, e.action) ?? e.action}</td>
        <td><${Target} of=${e.target} names=${names} /></td>
        <td class="detail"><${Detail} of=${e.detail} /></td>
        <td class="detail"><code>${e.request_id ?? "–"}</code></td>
      </tr>`)}</tbody>
    </table></div>
    <${More} pages=${pages} of="entries" />
  </div>`;
}

/** @param {string} id */
const driver = (id) => html`<a href=${"#/drivers/" + id}><code>${id}</code></a>`;

/** @param {{of: string, names: Map<string, string>}} props */
function Actor({ of, names }) {
  const { t } = useLanguage();
  if (of === "unknown") return t.audit.unknown;
  if (of === "system") return t.actor.service;
  return of.startsWith("drv_") ? driver(of) : html`<span title=${of}>${names.get(of) ?? of}</span>`;
}

/** @param {{of: string, names: Map<string, string>}} props */
function Target({ of, names }) {
  if (of.startsWith("drv_")) return driver(of);
  return names.has(of) ? html`<span title=${of}>${names.get(of)}</span>` : html`<code>${of}</code>`;
}

/** @param {{of: import("./audit_detail.js").Details}} props */
function Detail({ of }) {
  const language = useLanguage();
  const { t } = language;
  return Object.entries(of).map(([name, value]) => html`<div key=${name}><span class="soft">${nameOf(name, t)}</span> ${
    changed(value) ? html`<del>${words(value.from, language)}</del> → <ins>${words(value.to, language)}</ins>`
    : name === "last" && isDetails(value) ? html`<${Detail} of=${value} />` : words(value, language)}</div>`);
}
