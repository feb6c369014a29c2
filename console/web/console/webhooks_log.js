import { Fragment, html, useEffect, useState } from "../assets/preact.js";
import { send } from "../assets/api.js";
import { useLanguage } from "../assets/language.js";
import { Ask, Trouble, useNow } from "../assets/ui.js";
import { Logged } from "./job_words.js";
import { More, usePages } from "./paging.js";

const states = ["PENDING", "DELIVERED", "FAILED"];
const colors = { PENDING: "warn", DELIVERED: "good", FAILED: "bad" };

/** What was delivered to a webhook, the newest first. Another turn reads it at once. */
export function WebhookLog({ path, turn }) {
  const { t } = useLanguage();
  const { log } = t.webhooks;
  const [status, setStatus] = useState("");
  const pages = usePages(path + "/deliveries", { status }, 5000);
  const [open, setOpen] = useState([]);
  const [asked, ask] = useState(null);
  useEffect(() => { if (turn > 0) pages.reload(); }, [turn]);
  const toggle = (id) => setOpen((o) => (o.includes(id) ? o.filter((n) => n !== id) : [...o, id]));
  return html`<section class="stack">
    <div class="row"><h2>${log.title}</h2>
      <label>${t.fields.status} <select value=${status} onChange=${(e) => setStatus(e.target.value)}>
        <option value="">${log.any}</option>${states.map((s) => html`<option key=${s} value=${s}>${log.states[s]}</option>`)}</select></label></div>
    <${Trouble} error=${pages.error} reading />
    ${pages.items.length > 0 && html`<div class="scroll card flush" tabindex="0" role="region" aria-label=${log.title}><table class="dense">
      <thead><tr>${[log.event, log.dispatch, t.fields.status, log.attempts, log.last, log.made, log.next].map((title) => html`<th key=${title} scope="col">${title}</th>`)}
        <th scope="col"><span class="hidden">${t.webhooks.whatToDo}</span></th></tr></thead>
      <tbody>${pages.items.map((d) => html`<${Fragment} key=${d.id}>
        <${Row} of=${d} expanded=${open.includes(d.id)} onToggle=${() => toggle(d.id)} onAgain=${() => ask(d)} />
        ${open.includes(d.id) && html`<tr class="runs" id=${d.id}><td colspan="8"><${Attempts} of=${d} /></td></tr>`}
      <//>`)}</tbody>
    </table></div>`}
    <${More} pages=${pages} of="deliveries" />
    ${asked && html`<${Again} of=${asked} path=${path} onClose=${() => { ask(null); pages.reload(); }} />`}
  </section>`;
}

const nameOf = (t, type) => t.events[type] ?? (type === "webhook.test" ? t.webhooks.log.test : type);

function Row({ of, expanded, onToggle, onAgain }) {
  const { t, roughly, whenExactly } = useLanguage();
  const { log } = t.webhooks;
  const time = useNow();
  const name = nameOf(t, of.type), last = of.attempts.at(-1);
  const wait = of.next_at ? Date.parse(of.next_at) - time : null;
  return html`<tr>
    <th scope="row">${name}</th>
    <td class="short">${of.dispatch_id ? html`<a href=${"#/dispatches/" + of.dispatch_id} title=${of.dispatch_id}><bdi>…${of.dispatch_id.slice(-8)}</bdi></a>` : "–"}</td>
    <td><span class=${"badge " + colors[of.status]}>${log.states[of.status]}</span></td>
    <td class="number">${of.attempts.length}</td>
    <td>${last ? last.http_status ?? log.noAnswer : "–"}</td>
    <td class="short">${whenExactly(of.created_at)}</td>
    <td class="short" title=${whenExactly(of.next_at)}>${wait === null ? "–" : wait > 0 ? log.inTime(roughly(wait)) : log.due}</td>
    <td class="act"><button aria-expanded=${String(expanded)} aria-controls=${of.id} aria-label=${log.detailsOf(name)} onClick=${onToggle}>${log.details}</button>
      <button aria-label=${log.againOf(name)} onClick=${onAgain}>${log.again}</button></td>
  </tr>`;
}

/** The attempts of a delivery, with what was answered, and the body that each has sent. */
function Attempts({ of }) {
  const { t: { webhooks: { log } }, roughly, whenExactly } = useLanguage();
  return html`<div class="stack">
    ${of.attempts.length === 0 ? html`<p class="soft">${log.noAttempt}</p>` : html`<table class="dense" aria-label=${log.attempts}>
      <thead><tr>${[log.at, log.code, log.took, log.error, log.answer].map((title) => html`<th key=${title} scope="col">${title}</th>`)}</tr></thead>
      <tbody>${of.attempts.map((a) => html`<tr key=${a.at}>
        <td class="short">${whenExactly(a.at)}</td><td>${a.http_status ?? "–"}</td><td class="short">${roughly(a.took_ms)}</td>
        <td>${a.error ? html`<span class="bad"><${Logged} text=${a.error} /></span>` : "–"}</td>
        <td>${a.answer ? html`<code class="body">${a.answer}</code>` : "–"}</td>
      </tr>`)}</tbody>
    </table>`}
    <p><code>${of.event_id}</code></p>
    <div><p class="soft">${log.body}</p><code class="body">${of.body}</code></div>
  </div>`;
}

function Again({ of, path, onClose }) {
  const { t } = useLanguage();
  const { log } = t.webhooks;
  const act = () => send("POST", `${path}/deliveries/${of.id}/resend`);
  return html`<${Ask} title=${log.againTitle(nameOf(t, of.type))} word=${log.again} act=${act} onClose=${onClose}><p>${log.againMore}</p><//>`;
}
