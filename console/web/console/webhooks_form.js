import { html } from "../assets/preact.js";
import { useLanguage } from "../assets/language.js";
import { ruleIn } from "../assets/problems.js";
import { Choice, Field } from "./fields.js";

// The events that webhooks get, in the order of a dispatch's life.
const events = ["created", "opened", "updated", "accepted", "declined", "withdrawn", "unassigned", "reopened", "started", "completed", "expired", "canceled"]
  .map((name) => `dispatch.${name}`);

/** The form's fields, as the API names them. */
export const names = ["url", "events", "description"];

export const blank = { url: "", description: "", which: "all", events: [] };

/** Returns the form of a webhook. */
export function formOf(webhook) {
  const all = webhook.events.includes("*");
  return { url: webhook.url, description: webhook.description ?? "", which: all ? "all" : "some", events: all ? [] : webhook.events };
}

/** Returns what a form says, as the API takes it. */
export const valuesOf = (form) => ({
  values: { url: form.url.trim(), events: form.which === "all" ? ["*"] : form.events, description: form.description.trim() || null }, wrong: {},
});

/** Returns the events of a webhook in words. */
export const eventsIn = (t, webhook) => (webhook.events.includes("*") ? t.webhooks.allEvents : t.list(webhook.events.map((name) => t.events[name] ?? name)));

export function WebhookFields({ form, wrong, change }) {
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

function Events({ chosen, wrong, onChange }) {
  const { t } = useLanguage();
  const toggle = (name) => onChange(chosen.includes(name) ? chosen.filter((n) => n !== name) : [...chosen, name]);
  return html`<div class="row">${[...new Set([...events, ...chosen])].map((name) => html`<label key=${name}>
      <input type="checkbox" checked=${chosen.includes(name)} onChange=${() => toggle(name)} aria-invalid=${wrong ? "true" : undefined}
        aria-describedby=${wrong ? "events-wrong" : undefined} /> ${t.events[name] ?? name}</label>`)}</div>
    ${wrong && html`<p class="wrong bad" id="events-wrong">${ruleIn(t, wrong)}</p>`}`;
}
