import { html } from "../assets/preact.js";
import { list } from "../assets/api.js";
import { useLanguage } from "../assets/language.js";
import { fieldIn } from "../assets/problems.js";
import { Trouble, useLoaded } from "../assets/ui.js";
import { Export } from "./export.js";
import { More, usePages } from "./paging.js";
import { useQuery } from "./query.js";

const named = 200; // keys: the page shows an older key by its id

/** The changes and their authors, the newest first. */
export function Audit() {
  const { t, whenExactly } = useLanguage();
  const { audit } = t;
  const [query, change] = useQuery(["actor", "target"]);
  const pages = usePages("/v1/admin/audit", query);
  const keys = useLoaded((signal) => list("/v1/admin/api-keys", named, { signal }), []);
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
      <tbody>${pages.items.map((e) => html`<tr key=${e.id}>
        <td class="nowrap">${whenExactly(e.at)}</td>
        <td><${Actor} of=${e.actor} names=${names} /></td>
        <td>${audit.actions[e.action] ?? e.action}</td>
        <td><${Target} of=${e.target} names=${names} /></td>
        <td class="detail"><${Detail} of=${e.detail} /></td>
        <td class="detail"><code>${e.request_id ?? "–"}</code></td>
      </tr>`)}</tbody>
    </table></div>
    <${More} pages=${pages} of="entries" />
  </div>`;
}

const driver = (id) => html`<a href=${"#/drivers/" + id}><code>${id}</code></a>`;

function Actor({ of, names }) {
  const { t } = useLanguage();
  if (of === "unknown") return t.audit.unknown;
  if (of === "system") return t.actor.service;
  return of.startsWith("drv_") ? driver(of) : html`<span title=${of}>${names.get(of) ?? of}</span>`;
}

function Target({ of, names }) {
  if (of.startsWith("drv_")) return driver(of);
  return names.has(of) ? html`<span title=${of}>${names.get(of)}</span>` : html`<code>${of}</code>`;
}

function words(value, language) {
  const { t, whenExactly } = language;
  if (value === null) return t.audit.none;
  if (typeof value === "boolean") return value ? t.audit.yes : t.audit.no;
  if (Array.isArray(value)) return t.list(value.map((v) => words(v, language)));
  if (typeof value === "object") return t.list(Object.entries(value).map(([name, v]) => `${nameOf(name, t)} ${words(v, language)}`));
  return /^\d{4}-\d\d-\d\dT[\d:.]+Z$/.test(value) ? whenExactly(value) : t.roles[value] ?? t.events[value] ?? t.audit.values[value] ?? String(value);
}

/** Returns an entry's details as a text of one line for each. */
export function detailText(detail, language) {
  return Object.entries(detail).map(([name, value]) => `${nameOf(name, language.t)} ${
    changed(value) ? `${words(value.from, language)} → ${words(value.to, language)}`
    : name === "last" && typeof value === "object" ? detailText(value, language).replaceAll("\n", "; ") : words(value, language)}`).join("\n");
}

const nameOf = (name, t) => t.audit.fields[name] ?? fieldIn(t, name);

/** Reports whether value holds a field's old and new value. */
const changed = (value) => typeof value === "object" && value !== null && "from" in value && "to" in value;

function Detail({ of }) {
  const language = useLanguage();
  const { t } = language;
  return Object.entries(of).map(([name, value]) => html`<div key=${name}><span class="soft">${nameOf(name, t)}</span> ${
    changed(value) ? html`<del>${words(value.from, language)}</del> → <ins>${words(value.to, language)}</ins>`
    : name === "last" && typeof value === "object" ? html`<${Detail} of=${value} />` : words(value, language)}</div>`);
}
