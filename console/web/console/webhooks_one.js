import { html, useState } from "../assets/preact.js";
import { get, send } from "../assets/api.js";
import { useLanguage } from "../assets/language.js";
import { Trouble } from "../assets/ui.js";
import { usePolled } from "./poll.js";
import { Activate, DeleteWebhook, EditWebhook, Pause, Replay, Rotate } from "./webhooks_change.js";
import { eventsIn } from "./webhooks_form.js";
import { State } from "./webhooks_list.js";
import { WebhookLog } from "./webhooks_log.js";

const again = 5000; // ms: the stream does not announce webhooks' changes

const dialogs = { edit: EditWebhook, pause: Pause, activate: Activate, rotate: Rotate, replay: Replay, delete: DeleteWebhook };

/** The page of one webhook: what can be done, and what was delivered. */
export function OneWebhook({ id }) {
  const { t } = useLanguage();
  const path = `/v1/admin/webhooks/${encodeURIComponent(id)}`;
  const { data: webhook, error, reload } = usePolled((signal) => get(path, { signal }), again, [path]);
  const [asked, ask] = useState(null);
  const [log, setLog] = useState({ turn: 0, said: "" });
  const Asked = dialogs[asked];
  const close = (said) => {
    ask(null);
    if (said) setLog(({ turn }) => ({ turn: turn + 1, said }));
    reload();
  };
  return html`<p class="back"><a href="#/webhooks">${t.webhooks.all}</a></p>
    <div class="head"><h1><bdi>${webhook?.url ?? t.webhooks.one}</bdi></h1>${webhook && html`<${State} of=${webhook} />`}</div>
    <${Trouble} error=${error} reading />
    ${webhook && html`<div class="stack">
      <${Actions} webhook=${webhook} path=${path} ask=${ask} onTest=${() => close("tested")} />
      <div role="status" class="outcome">${t.webhooks.said[log.said]}</div>
      <${Facts} webhook=${webhook} />
      <${WebhookLog} path=${path} turn=${log.turn} />
      ${Asked && html`<${Asked} webhook=${webhook} path=${path} onClose=${close} />`}
    </div>`}`;
}

function Actions({ webhook, path, ask, onTest }) {
  const { t: { webhooks } } = useLanguage();
  const [state, set] = useState({ busy: false, error: null });
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
