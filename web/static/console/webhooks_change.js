// The forms and dialogs that change a webhook.
import { html, useMemo, useRef, useState } from "../assets/preact.js";
import { send } from "../assets/api.js";
import { useLanguage } from "../assets/language.js";
import { named } from "../assets/words.js";
import { Dialog } from "../assets/ui.js";
import { typedTime } from "../assets/zone.js";
import { Ask, PageError, Secret, Trouble, ruleIn } from "./dialogs.js";
import { timeLabel } from "./dispatch_words.js";
import { Choice, Field, Unsettled, beside, useEditing, useFirstWrong, useMaking, wrongFields } from "./forms.js";
import { useKeptForm } from "./kept.js";

// The events that webhooks get, in the order of a dispatch's life.
const events = ["created", "opened", "updated", "accepted", "declined", "withdrawn", "unassigned", "reopened", "started", "completed", "expired", "canceled"]
  .map((name) => `dispatch.${name}`);

const path = "/v1/admin/webhooks";

/** The form's fields, as the API names them. */
export const names = ["url", "events", "description"];

/** @typedef {{url: string, description: string, which: string, events: string[]}} Form */
/** @typedef {{path: string, onClose: (said?: false|"replaying") => void}} Asked what a dialog gets */

/** @type {Form} */
const blank = { url: "", description: "", which: "all", events: [] };

/** Returns the form of a webhook. @param {Schemas["Webhook"]} webhook @returns {Form} */
function formOf(webhook) {
  const all = webhook.events.includes("*");
  return { url: webhook.url, description: webhook.description ?? "", which: all ? "all" : "some", events: all ? [] : webhook.events };
}

/** Returns what a form says, as the API takes it. @param {Form} form */
const valuesOf = (form) => ({
  values: { url: form.url.trim(), events: form.which === "all" ? ["*"] : form.events, description: form.description.trim() || null }, wrong: {},
});

/** Returns the events of a webhook in words. @param {Texts} t @param {Schemas["Webhook"]} webhook @returns {string} */
export const eventsIn = (t, webhook) => (webhook.events.includes("*") ? t.webhooks.allEvents : t.list(webhook.events.map((name) => named(t.events, name) ?? name)));

/** @param {{form: Form, wrong: Record<string, string>, change: (changes: Partial<Form>) => void}} props */
function WebhookFields({ form, wrong, change }) {
  const { t } = useLanguage();
  const { webhooks, fields } = t;
  return html`
    <${Field} name="url" type="url" inputmode="url" label=${fields.url} value=${form.url} wrong=${wrong.url} hint=${webhooks.urlHint} onInput=${(url) => change({ url })} />
    <${Field} name="description" label=${fields.description} value=${form.description} wrong=${wrong.description} hint=${webhooks.descriptionHint} optional
      onInput=${(description) => change({ description })} />
    <${Choice} label=${fields.events} name="which" value=${form.which} choices=${{ all: webhooks.allEvents, some: webhooks.someEvents }}
      onInput=${(which) => change({ which })}>
      ${form.which === "some" && html`<${Events} chosen=${form.events} wrong=${wrong.events} onChange=${(events) => change({ events })} />`}
    <//>`;
}

/** @param {{chosen: string[], wrong?: string, onChange: (events: string[]) => void}} props */
function Events({ chosen, wrong, onChange }) {
  const { t } = useLanguage();
  const toggle = (/** @type {string} */ name) => onChange(chosen.includes(name) ? chosen.filter((n) => n !== name) : [...chosen, name]);
  return html`<div class="row">${[...new Set([...events, ...chosen])].map((name) => html`<label key=${name}>
      <input type="checkbox" checked=${chosen.includes(name)} onChange=${() => toggle(name)} aria-invalid=${wrong ? "true" : undefined}
        aria-describedby=${wrong ? "events-wrong" : undefined} /> ${named(t.events, name) ?? name}</label>`)}</div>
    ${wrong && html`<p class="wrong bad" id="events-wrong">${ruleIn(t, wrong)}</p>`}`;
}

/** Shows a webhook's secret, once. @param {{of: Schemas["WebhookWithSecret"], onClose: () => void}} props */
function ShowSecret({ of, onClose }) {
  const { t } = useLanguage();
  return html`<${Dialog} title=${t.webhooks.secretTitle} onClose=${onClose}>
    <div class="stack">
      <p>${t.webhooks.shownOnce}</p>
      <${Secret} label=${t.webhooks.secret} value=${of.secret} />
      <div class="row"><button onClick=${onClose}>${t.done}</button></div>
    </div>
  <//>`;
}

/** @param {{session: Schemas["Session"], onMade: () => void}} props */
export function NewWebhook({ session, onMade }) {
  const { t } = useLanguage();
  const { webhooks } = t;
  const place = `firsttap.webhook.${session.key_id}`;
  const [form, change, clear] = useKeptForm(place, blank);
  const { make, busy, error, unsettled } = useMaking(path, `${place}.sent`);
  const [made, setMade] = useState(/** @type {Schemas["WebhookWithSecret"]|null} */ (null));
  const wrong = useMemo(() => wrongFields(error), [error]);
  /** @type {Ref<HTMLFormElement>} */
  const element = useRef(null);
  useFirstWrong(element, wrong);
  const submit = async (/** @type {SubmitEvent} */ e) => {
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

/** Sends the changed fields only, for the version that the user has seen. @param {Asked & {webhook: Schemas["Webhook"]}} props */
export function EditWebhook({ webhook, path, onClose }) {
  const { t } = useLanguage();
  const { element, onSubmit, error, busy, ...fields } = useEditing(webhook, path, { names, formOf, valuesOf, onClose: () => onClose() });
  return html`<${Dialog} title=${t.webhooks.editTitle} onClose=${() => onClose()}>
    <form ref=${element} class="stack" noValidate onSubmit=${onSubmit}>
      <${WebhookFields} ...${fields} />
      <${Trouble} error=${error} />
      <div class="row">
        <button type="submit" class="primary" disabled=${busy}>${t.webhooks.save}</button>
        <button type="button" onClick=${() => onClose()}>${t.back}</button>
      </div>
    </form>
  <//>`;
}

/** @param {Asked} props */
export function Pause({ path, onClose }) {
  const { t: { webhooks } } = useLanguage();
  const act = () => send("PATCH", path, { body: { status: "PAUSED" } });
  return html`<${Ask} title=${webhooks.pauseTitle} word=${webhooks.pause} act=${act} onClose=${() => onClose()}><p>${webhooks.pauseMore}</p><//>`;
}

/** @param {Asked} props */
export function Activate({ path, onClose }) {
  const { t: { webhooks } } = useLanguage();
  const act = () => send("PATCH", path, { body: { status: "ACTIVE" } });
  return html`<${Ask} title=${webhooks.activateTitle} word=${webhooks.activate} act=${act} onClose=${() => onClose()}><p>${webhooks.activateMore}</p><//>`;
}

/** @param {Asked} props */
export function Rotate({ path, onClose }) {
  const { t: { webhooks } } = useLanguage();
  const [made, setMade] = useState(/** @type {Schemas["WebhookWithSecret"]|null} */ (null));
  if (made) return html`<${ShowSecret} of=${made} onClose=${() => onClose()} />`;
  const act = async () => setMade((await send("POST", path + "/rotate")).data);
  return html`<${Ask} title=${webhooks.rotateTitle} word=${webhooks.rotate} act=${act} onClose=${(done) => done || onClose()}>
    <p>${webhooks.rotateMore}</p>
  <//>`;
}

/** @param {Asked} props */
export function Replay({ path, onClose }) {
  const { t } = useLanguage();
  const [since, setSince] = useState("");
  const act = async () => {
    const time = typedTime(since);
    if (!time) throw new PageError(({ t }) => t.webhooks.askSince);
    await send("POST", path + "/replay", { body: { since: time } });
  };
  return html`<${Ask} title=${t.webhooks.replayTitle} word=${t.webhooks.replay} act=${act} onClose=${(done) => onClose(done && "replaying")}>
    <p>${t.webhooks.replayMore}</p>
    <${Field} name="since" type="datetime-local" label=${timeLabel(t, t.fields.since, since)} value=${since} onInput=${setSince}
      required=${false} aria-required="true" />
  <//>`;
}

/** @param {Asked} props */
export function DeleteWebhook({ path, onClose }) {
  const { t: { webhooks } } = useLanguage();
  const act = () => send("DELETE", path).catch((error) => {
    if (error.code !== "WEBHOOK_NOT_FOUND") throw error; // an unanswered try, or another admin, has deleted it
  });
  const close = (/** @type {boolean} */ done) => {
    if (done) location.hash = "#/webhooks";
    else onClose();
  };
  return html`<${Ask} title=${webhooks.removeTitle} word=${webhooks.remove} danger act=${act} onClose=${close}><p>${webhooks.removeMore}</p><//>`;
}
