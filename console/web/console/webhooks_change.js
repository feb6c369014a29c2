import { html, useState } from "../assets/preact.js";
import { send } from "../assets/api.js";
import { useLanguage } from "../assets/language.js";
import { PageError } from "../assets/problems.js";
import { Ask, Dialog, Trouble } from "../assets/ui.js";
import { typedTime } from "../assets/zone.js";
import { timeLabel } from "./dispatch_time.js";
import { useEditing } from "./editing.js";
import { Field } from "./fields.js";
import { WebhookFields, formOf, names, valuesOf } from "./webhooks_form.js";
import { ShowSecret } from "./webhooks_list.js";

/** Sends the changed fields only, for the version that the user has seen. */
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

export function Pause({ path, onClose }) {
  const { t: { webhooks } } = useLanguage();
  const act = () => send("PATCH", path, { body: { status: "PAUSED" } });
  return html`<${Ask} title=${webhooks.pauseTitle} word=${webhooks.pause} act=${act} onClose=${() => onClose()}><p>${webhooks.pauseMore}</p><//>`;
}

export function Activate({ path, onClose }) {
  const { t: { webhooks } } = useLanguage();
  const act = () => send("PATCH", path, { body: { status: "ACTIVE" } });
  return html`<${Ask} title=${webhooks.activateTitle} word=${webhooks.activate} act=${act} onClose=${() => onClose()}><p>${webhooks.activateMore}</p><//>`;
}

export function Rotate({ path, onClose }) {
  const { t: { webhooks } } = useLanguage();
  const [made, setMade] = useState(null);
  if (made) return html`<${ShowSecret} of=${made} onClose=${() => onClose()} />`;
  const act = async () => setMade((await send("POST", path + "/rotate")).data);
  return html`<${Ask} title=${webhooks.rotateTitle} word=${webhooks.rotate} act=${act} onClose=${(done) => done || onClose()}>
    <p>${webhooks.rotateMore}</p>
  <//>`;
}

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

export function DeleteWebhook({ path, onClose }) {
  const { t: { webhooks } } = useLanguage();
  const act = () => send("DELETE", path).catch((error) => {
    if (error.code !== "WEBHOOK_NOT_FOUND") throw error; // an unanswered try, or another admin, has deleted it
  });
  const close = (done) => {
    if (done) location.hash = "#/webhooks";
    else onClose();
  };
  return html`<${Ask} title=${webhooks.removeTitle} word=${webhooks.remove} danger act=${act} onClose=${close}><p>${webhooks.removeMore}</p><//>`;
}
