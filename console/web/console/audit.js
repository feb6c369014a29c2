import { html } from "../assets/preact.js";
import { list } from "../assets/api.js";
import { Trouble, useLoaded, whenExactly } from "../assets/ui.js";
import { More, usePages } from "./paging.js";
import { useQuery } from "./query.js";

const named = 200; // keys: the page shows an older key by its id

/** The changes and their authors, the newest first. */
export function Audit() {
  const [query, change] = useQuery(["actor", "target"]);
  const pages = usePages("/v1/admin/audit", query);
  const keys = useLoaded((signal) => list("/v1/admin/api-keys", named, { signal }), []);
  const names = new Map(keys.data?.items.map((k) => [k.id, k.name]));
  return html`<div class="admin"><h1>Audit</h1>
    <form class="filters" role="search" aria-label="Audit" onSubmit=${(e) => e.preventDefault()}>
      <label>Who <input value=${query.actor} list="keys" placeholder="ID of a key or driver" onInput=${(e) => change({ actor: e.target.value.trim() })} /></label>
      <label>What was changed <input value=${query.target} placeholder="ID or name" onInput=${(e) => change({ target: e.target.value.trim() })} /></label>
      ${(query.actor || query.target) && html`<button type="button" onClick=${() => change({ actor: "", target: "" })}>Show all</button>`}
    </form>
    <datalist id="keys">${[...names].map(([id, name]) => html`<option key=${id} value=${id}>${name}</option>`)}</datalist>
    <p class="soft">What happened to a dispatch is on its own page.</p>
    <${Trouble} error=${pages.error ?? keys.error} reading />
    <div class="scroll card" tabindex="0" role="region" aria-label="Audit"><table>
      <thead><tr><th scope="col">When</th><th scope="col">Who</th><th scope="col">Did what</th><th scope="col">To what</th><th scope="col">Details</th>
        <th scope="col">Request</th></tr></thead>
      <tbody>${pages.items.map((e) => html`<tr key=${e.id}>
        <td class="nowrap">${whenExactly(e.at)}</td>
        <td><${Actor} of=${e.actor} names=${names} /></td>
        <td>${e.action}</td>
        <td><${Target} of=${e.target} names=${names} /></td>
        <td class="detail"><${Detail} of=${e.detail} /></td>
        <td class="detail"><code>${e.request_id ?? "–"}</code></td>
      </tr>`)}</tbody>
    </table></div>
    <${More} pages=${pages} one="entry" many="entries" />
  </div>`;
}

const driver = (id) => html`<a href=${"#/drivers/" + id}><code>${id}</code></a>`;

function Actor({ of, names }) {
  return of.startsWith("drv_") ? driver(of) : html`<span title=${of}>${names.get(of) ?? of}</span>`;
}

function Target({ of, names }) {
  if (of.startsWith("drv_")) return driver(of);
  return names.has(of) ? html`<span title=${of}>${names.get(of)}</span>` : html`<code>${of}</code>`;
}

const words = (value) => {
  if (value === null) return "none";
  if (Array.isArray(value)) return value.map(words).join(", ");
  return typeof value === "object" ? JSON.stringify(value) : String(value);
};

/** Reports whether value holds a field's old and new value. */
const changed = (value) => typeof value === "object" && value !== null && "from" in value && "to" in value;

function Detail({ of }) {
  return Object.entries(of).map(([name, value]) => html`<div key=${name}><span class="soft">${name}</span> ${
    changed(value) ? html`<del>${words(value.from)}</del> → <ins>${words(value.to)}</ins>`
    : name === "last" ? html`<${Detail} of=${value} />` : words(value)}</div>`);
}
