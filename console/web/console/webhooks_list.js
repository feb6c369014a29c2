import { html, useMemo, useRef, useState } from "../assets/preact.js";
import { useLanguage } from "../assets/language.js";
import { Dialog, Trouble } from "../assets/ui.js";
import { beside, useFirstWrong, wrongFields } from "./fields.js";
import { useKeptForm } from "./kept.js";
import { Unsettled, useMaking } from "./making.js";
import { More, usePages } from "./paging.js";
import { Secret } from "./secret.js";
import { WebhookFields, blank, eventsIn, names, valuesOf } from "./webhooks_form.js";

const path = "/v1/admin/webhooks";

/** The webhooks, and the form for a new one. */
export function WebhookList({ session }) {
  const { t, when } = useLanguage();
  const { webhooks, fields } = t;
  const pages = usePages(path);
  return html`<div class="stack"><h1>${t.page.webhooks}</h1>
    <${NewWebhook} session=${session} onMade=${pages.reload} />
    <${Trouble} error=${pages.error} reading />
    <div class="scroll card" tabindex="0" role="region" aria-label=${t.page.webhooks}><table>
      <thead><tr>${[fields.url, fields.events, fields.description, fields.status, webhooks.made].map((title) => html`<th key=${title} scope="col">${title}</th>`)}</tr></thead>
      <tbody>${pages.items.map((w) => html`<tr key=${w.id}>
        <th scope="row" class="detail"><a href=${"#/webhooks/" + w.id}><bdi>${w.url}</bdi></a></th>
        <td>${eventsIn(t, w)}</td><td><bdi>${w.description ?? "–"}</bdi></td><td><${State} of=${w} /></td><td class="nowrap">${when(w.created_at)}</td>
      </tr>`)}</tbody>
    </table></div>
    <${More} pages=${pages} of="webhooks" />
  </div>`;
}

/** Says whether a webhook gets events, and otherwise why not. */
export function State({ of }) {
  const { t: { webhooks }, when } = useLanguage();
  if (of.status === "PAUSED") return html`<span class="badge bad">${webhooks.paused}</span> <span class="soft">${webhooks.why[of.pause_reason]}</span>`;
  return html`<span class="badge good">${webhooks.active}</span>
    ${of.failing_since && html` <span class="bad">${webhooks.failing(when(of.failing_since))}</span>`}`;
}

/** Shows a webhook's secret, once. */
export function ShowSecret({ of, onClose }) {
  const { t } = useLanguage();
  return html`<${Dialog} title=${t.webhooks.secretTitle} onClose=${onClose}>
    <div class="stack">
      <p>${t.webhooks.shownOnce}</p>
      <${Secret} label=${t.webhooks.secret} value=${of.secret} />
      <div class="row"><button onClick=${onClose}>${t.done}</button></div>
    </div>
  <//>`;
}

function NewWebhook({ session, onMade }) {
  const { t } = useLanguage();
  const { webhooks } = t;
  const place = `firsttap.webhook.${session.key_id}`;
  const [form, change, clear] = useKeptForm(place, blank);
  const { make, busy, error, unsettled } = useMaking(path, `${place}.sent`);
  const [made, setMade] = useState(null);
  const wrong = useMemo(() => wrongFields(error), [error]);
  const element = useRef(null);
  useFirstWrong(element, wrong);
  const submit = async (e) => {
    e.preventDefault();
    const webhook = await make(valuesOf(form).values);
    if (!webhook) return;
    clear();
    setMade(webhook);
    onMade();
  };
  return html`<section class="card"><h2>${webhooks.newWebhook}</h2>
    <form ref=${element} class="stack" noValidate onSubmit=${submit} aria-label=${webhooks.newWebhook}>
      <${WebhookFields} form=${form} wrong=${wrong} change=${change} />
      <${Trouble} error=${error && beside(error, wrong, names)} />
      <${Unsettled} unsettled=${unsettled && !busy} thing="webhook" />
      <div class="row"><button type="submit" class="primary" disabled=${busy}>${webhooks.make}</button></div>
    </form>
    ${made && html`<${ShowSecret} of=${made} onClose=${() => setMade(null)} />`}
  </section>`;
}
