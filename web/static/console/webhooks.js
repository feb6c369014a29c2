// The webhooks, and the page of each with its deliveries.
import { Fragment, html, useEffect, useState } from "../assets/preact.js";
import { get, send } from "../assets/api.js";
import { useLanguage } from "../assets/language.js";
import { named } from "../assets/words.js";
import { useNow } from "../assets/ui.js";
import { Ask, Logged, Trouble } from "./dialogs.js";
import { More, usePages, usePolled } from "./reading.js";
import { Activate, DeleteWebhook, EditWebhook, NewWebhook, Pause, Replay, Rotate, eventsIn } from "./webhooks_change.js";

/** The webhooks; one webhook with its deliveries at #/webhooks/{id}. @param {PageProps} props */
export function Webhooks({ id, session }) {
  return html`<div class="admin operations">${id === "" ? html`<${WebhookList} session=${session} />` : html`<${OneWebhook} id=${id} />`}</div>`;
}

/** The webhooks, and the form for a new one. @param {{session: Schemas["Session"]}} props */
function WebhookList({ session }) {
  const { t, when } = useLanguage();
  const { webhooks, fields } = t;
  const pages = usePages("/v1/admin/webhooks");
  return html`<div class="stack"><h1>${t.page.webhooks}</h1>
    <${NewWebhook} session=${session} onMade=${pages.reload} />
    <${Trouble} error=${pages.error} reading />
    <div class="scroll card" tabindex="0" role="region" aria-label=${t.page.webhooks}><table>
      <thead><tr>${[fields.url, fields.events, fields.description, fields.status, webhooks.made].map((title) => html`<th key=${title} scope="col">${title}</th>`)}</tr></thead>
      <tbody>${pages.items.map((/** @type {Schemas["Webhook"]} */ w) => html`<tr key=${w.id}>
        <th scope="row" class="detail"><a href=${"#/webhooks/" + w.id}><bdi>${w.url}</bdi></a></th>
        <td>${eventsIn(t, w)}</td><td><bdi>${w.description ?? "–"}</bdi></td><td><${State} of=${w} /></td><td class="nowrap">${when(w.created_at)}</td>
      </tr>`)}</tbody>
    </table></div>
    <${More} pages=${pages} of="webhooks" />
  </div>`;
}

/** Says whether a webhook gets events, and otherwise why not. @param {{of: Schemas["Webhook"]}} props */
export function State({ of }) {
  const { t: { webhooks }, when } = useLanguage();
  if (of.status === "PAUSED") return html`<span class="badge bad">${webhooks.paused}</span> <span class="soft">${named(webhooks.why, of.pause_reason)}</span>`;
  return html`<span class="badge good">${webhooks.active}</span>
    ${of.failing_since && html` <span class="bad">${webhooks.failing(when(of.failing_since))}</span>`}`;
}

/** @typedef {"tested"|"replaying"} Said */

const again = 5000; // ms: the stream does not announce webhooks' changes

const dialogs = { edit: EditWebhook, pause: Pause, activate: Activate, rotate: Rotate, replay: Replay, delete: DeleteWebhook };

/** The page of one webhook: what can be done, and what was delivered. @param {{id: string}} props */
function OneWebhook({ id }) {
  const { t } = useLanguage();
  const path = `/v1/admin/webhooks/${encodeURIComponent(id)}`;
  const { data: webhook, error, reload } = usePolled(/** @returns {Promise<Schemas["Webhook"]>} */ (signal) => get(path, { signal }), again, [path]);
  const [asked, ask] = useState(/** @type {keyof typeof dialogs|null} */ (null));
  const [log, setLog] = useState({ turn: 0, said: /** @type {Said|""} */ ("") });
  const Asked = asked && dialogs[asked];
  const close = (/** @type {Said|undefined|false} */ said) => {
    ask(null);
    if (said) setLog(({ turn }) => ({ turn: turn + 1, said }));
    reload();
  };
  return html`<p class="back"><a href="#/webhooks">${t.webhooks.all}</a></p>
    <div class="head"><h1><bdi>${webhook?.url ?? t.webhooks.one}</bdi></h1>${webhook && html`<${State} of=${webhook} />`}</div>
    <${Trouble} error=${error} reading />
    ${webhook && html`<div class="stack">
      <${Actions} webhook=${webhook} path=${path} ask=${ask} onTest=${() => close("tested")} />
      <div role="status" class="outcome">${log.said && t.webhooks.said[log.said]}</div>
      <${Facts} webhook=${webhook} />
      <${WebhookLog} path=${path} turn=${log.turn} />
      ${Asked && html`<${Asked} webhook=${webhook} path=${path} onClose=${close} />`}
    </div>`}`;
}

/** @param {{webhook: Schemas["Webhook"], path: string, ask: (what: keyof typeof dialogs) => void, onTest: () => void}} props */
function Actions({ webhook, path, ask, onTest }) {
  const { t: { webhooks } } = useLanguage();
  const [state, set] = useState(/** @type {{busy: boolean, error: Failure|null}} */ ({ busy: false, error: null }));
  const test = async () => {
    set({ busy: true, error: null });
    try {
      await send("POST", path + "/test");
      set({ busy: false, error: null });
      onTest();
    } catch (error) {
      set({ busy: false, error });
    }
  };
  const active = webhook.status === "ACTIVE";
  return html`<div class="row" role="group" aria-label=${webhooks.whatToDo}>
    ${active && html`<button disabled=${state.busy} onClick=${test}>${webhooks.test}</button>`}
    <button onClick=${() => ask("edit")}>${webhooks.edit}</button>
    ${active ? html`<button onClick=${() => ask("pause")}>${webhooks.pause}</button>` : html`<button onClick=${() => ask("activate")}>${webhooks.activate}</button>`}
    ${active && html`<button onClick=${() => ask("replay")}>${webhooks.replay}</button>`}
    <button onClick=${() => ask("rotate")}>${webhooks.rotate}</button>
    <button class="danger" onClick=${() => ask("delete")}>${webhooks.remove}</button>
    <a href=${"#/audit?target=" + webhook.id}>${webhooks.changes}</a>
  </div>
  <${Trouble} error=${state.error} />`;
}

/** @param {{webhook: Schemas["Webhook"]}} props */
function Facts({ webhook }) {
  const { t, when } = useLanguage();
  const facts = [
    [t.fields.events, eventsIn(t, webhook)], [t.fields.description, html`<bdi>${webhook.description ?? "–"}</bdi>`],
    [t.webhooks.id, html`<code>${webhook.id}</code>`], [t.webhooks.made, when(webhook.created_at)], [t.webhooks.lastChange, when(webhook.updated_at)],
  ];
  return html`<section class="card"><h2>${t.webhooks.one}</h2>
    <dl class="facts">${facts.map(([name, value]) => html`<div key=${name}><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>
  </section>`;
}

/** @type {Schemas["DeliveryStatus"][]} */
const states = ["PENDING", "DELIVERED", "FAILED"];
const colors = { PENDING: "warn", DELIVERED: "good", FAILED: "bad" };

/** What was delivered to a webhook, the newest first. Another turn reads it at once. @param {{path: string, turn: number}} props */
function WebhookLog({ path, turn }) {
  const { t } = useLanguage();
  const { log } = t.webhooks;
  const [status, setStatus] = useState("");
  const pages = usePages(path + "/deliveries", { status }, 5000);
  const [open, setOpen] = useState(/** @type {string[]} */ ([]));
  const [asked, ask] = useState(/** @type {Schemas["Delivery"]|null} */ (null));
  useEffect(() => { if (turn > 0) pages.reload(); }, [turn]);
  const toggle = (/** @type {string} */ id) => setOpen((o) => (o.includes(id) ? o.filter((n) => n !== id) : [...o, id]));
  return html`<section class="stack">
    <div class="row"><h2>${log.title}</h2>
      <label>${t.fields.status} <select value=${status} onChange=${(e) => setStatus(e.target.value)}>
        <option value="">${log.any}</option>${states.map((s) => html`<option key=${s} value=${s}>${log.states[s]}</option>`)}</select></label></div>
    <${Trouble} error=${pages.error} reading />
    ${pages.items.length > 0 && html`<div class="scroll card flush" tabindex="0" role="region" aria-label=${log.title}><table class="dense">
      <thead><tr>${[log.event, log.dispatch, t.fields.status, log.attempts, log.last, log.made, log.next].map((title) => html`<th key=${title} scope="col">${title}</th>`)}
        <th scope="col"><span class="hidden">${t.webhooks.whatToDo}</span></th></tr></thead>
      <tbody>${pages.items.map((/** @type {Schemas["Delivery"]} */ d) => html`<${Fragment} key=${d.id}>
        <${Row} of=${d} expanded=${open.includes(d.id)} onToggle=${() => toggle(d.id)} onAgain=${() => ask(d)} />
        ${open.includes(d.id) && html`<tr class="runs" id=${d.id}><td colspan="8"><${Attempts} of=${d} /></td></tr>`}
      <//>`)}</tbody>
    </table></div>`}
    <${More} pages=${pages} of="deliveries" />
    ${asked && html`<${Again} of=${asked} path=${path} onClose=${() => { ask(null); pages.reload(); }} />`}
  </section>`;
}

/** @param {Texts} t @param {string} type @returns {string} */
const nameOf = (t, type) => named(t.events, type) ?? (type === "webhook.test" ? t.webhooks.log.test : type);

/** @param {{of: Schemas["Delivery"], expanded: boolean, onToggle: () => void, onAgain: () => void}} props */
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

/** The attempts of a delivery, with what was answered, and the body that each has sent. @param {{of: Schemas["Delivery"]}} props */
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

/** @param {{of: Schemas["Delivery"], path: string, onClose: () => void}} props */
function Again({ of, path, onClose }) {
  const { t } = useLanguage();
  const { log } = t.webhooks;
  const act = () => send("POST", `${path}/deliveries/${of.id}/resend`);
  return html`<${Ask} title=${log.againTitle(nameOf(t, of.type))} word=${log.again} act=${act} onClose=${onClose}><p>${log.againMore}</p><//>`;
}
