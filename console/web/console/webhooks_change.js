import { html, useMemo, useRef, useState } from "../assets/preact.js";
import { get, request, send } from "../assets/api.js";
import { useLanguage } from "../assets/language.js";
import { PageError } from "../assets/problems.js";
import { Ask, Dialog, Trouble } from "../assets/ui.js";
import { Field, beside, typedTime, useFirstWrong, wrongFields } from "./fields.js";
import { WebhookFields, formOf, names, webhookOf } from "./webhooks_form.js";
import { ShowSecret } from "./webhooks_list.js";

const same = (a, b) => JSON.stringify(a) === JSON.stringify(b); // events are a list

/** Sends the changed fields only, for the version that the user has seen. */
export function EditWebhook({ webhook, path, onClose }) {
  const { t } = useLanguage();
  const [first] = useState(webhook); // the page behind goes on
  const [form, setForm] = useState(() => formOf(first));
  const [state, set] = useState({ busy: false, error: null });
  const wrong = useMemo(() => wrongFields(state.error), [state]);
  const element = useRef(null);
  useFirstWrong(element, wrong);
  const save = async (changes) => {
    try {
      await request("PATCH", path, { body: changes, version: first.version });
    } catch (error) {
      if (error.status !== 412) throw error;
      const after = await get(path);
      if (!Object.keys(changes).every((name) => same(changes[name], after[name]))) throw error; // or an unanswered try made it
    }
  };
  const submit = async (e) => {
    e.preventDefault();
    set({ busy: true, error: null });
    try {
      const changed = webhookOf(form);
      const changes = Object.fromEntries(names.filter((name) => !same(changed[name], first[name])).map((name) => [name, changed[name]]));
      if (Object.keys(changes).length > 0) await save(changes);
      onClose();
    } catch (error) {
      set({ busy: false, error });
    }
  };
  return html`<${Dialog} title=${t.webhooks.editTitle} onClose=${() => onClose()}>
    <form ref=${element} class="stack" noValidate onSubmit=${submit}>
      <${WebhookFields} form=${form} wrong=${wrong} change=${(changes) => setForm((before) => ({ ...before, ...changes }))} />
      <${Trouble} error=${state.error && beside(state.error, wrong, names)} />
      <div class="row">
        <button type="submit" class="primary" disabled=${state.busy}>${t.webhooks.save}</button>
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
    <${Field} name="since" type="datetime-local" label=${t.yourTime(t.fields.since)} value=${since} onInput=${setSince}
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
