import { html, useMemo, useRef, useState } from "../assets/preact.js";
import { Trouble, money } from "../assets/ui.js";
import { Choice, Field, beside, useFirstWrong, wrongFields, zoneAt } from "./fields.js";
import { useKeptForm } from "./kept.js";
import { Unsettled, useMaking } from "./making.js";
import { Suggestions } from "./suggestions.js";
import { blank, countable, termsOf } from "./create_terms.js";
import { minorUnits } from "./fee.js";
import { Preview } from "./create_preview.js";

const names = [
  "region", "vehicle_class", "min_working_height_m", "site_address", "site_lat", "site_lng", "work_starts_at", "work_ends_at",
  "fee.amount", "fee.currency", "note", "external_id", "opens_at", "expires_at",
];
const unread = new Error("Some fields are not right.");

function duplicate(externalID) {
  return html`A dispatch has this already. <a href=${`#/board?q=${encodeURIComponent(externalID)}`}>Search for it</a>`;
}

/** Returns the errors by field, and the error that belongs to no field. */
function useWrong(unsaid, error, externalID) {
  return useMemo(() => {
    if (unsaid) return [unsaid, unread];
    if (error?.code === "DUPLICATE_EXTERNAL_ID") return [{ external_id: duplicate(externalID) }, error];
    const wrong = wrongFields(error);
    return [wrong, error && beside(error, wrong, names)];
  }, [unsaid, error]);
}

/** The form that creates a dispatch and then shows it. */
export function Create({ session }) {
  const [form, change, clear] = useKeptForm(`firsttap.new.${session.key_id}`, blank);
  const { make, busy, error, unsettled } = useMaking("/v1/admin/dispatches", `firsttap.new.${session.key_id}.sent`);
  const [unsaid, setUnsaid] = useState(null);
  const [sentID, setSentID] = useState("");
  const [wrong, trouble] = useWrong(unsaid, error, sentID);
  const element = useRef(null);
  useFirstWrong(element, wrong);
  const terms = termsOf(form);

  const submit = async (e) => {
    e.preventDefault();
    const sayable = Object.keys(terms.wrong).length === 0;
    setUnsaid(sayable ? null : terms.wrong);
    setSentID(terms.body.external_id);
    const made = sayable && await make(terms.body);
    if (!made) return;
    clear();
    location.hash = `#/dispatches/${made.id}`;
  };
  // field returns the props of the field for form[key], which has the API's name.
  const field = (name, key = name) => ({ name, value: form[key], wrong: wrong[name], onInput: (value) => change({ [key]: value }) });

  return html`<h1>New dispatch</h1>
    <form ref=${element} class="create" noValidate onSubmit=${submit} aria-label="New dispatch">
      <div class="stack">
        <${Work} field=${field} form=${form} />
        <${Site} field=${field} />
        <${Terms} field=${field} form=${form} />
        <${Window} field=${field} form=${form} change=${change} wrong=${wrong} />
      </div>
      <div class="stack send">
        <${Preview} asked=${countable(terms)} />
        <${Trouble} error=${trouble} />
        <${Unsettled} unsettled=${unsettled && !busy} thing="dispatch" />
        <div class="row">
          <button type="submit" class="primary" disabled=${busy}>${busy ? "Creating …" : "Create dispatch"}</button>
          <button type="button" disabled=${busy} onClick=${clear}>Clear</button>
        </div>
      </div>
      <${Suggestions} />
    </form>`;
}

function Work({ field, form }) {
  return html`<fieldset class="card"><legend>Work</legend>
    <div class="fields">
      <${Field} ...${field("region")} label="Region" list="regions" />
      <${Field} ...${field("vehicle_class")} label="Vehicle class" list="classes" />
      <${Field} ...${field("min_working_height_m")} label="Working height, m" optional inputmode="decimal" hint="At least this." />
      <${Field} ...${field("work_starts_at")} label="Work starts" type="datetime-local" hint=${zoneAt(form.work_starts_at)} />
      <${Field} ...${field("work_ends_at")} label="Work ends" type="datetime-local" hint=${zoneAt(form.work_ends_at)} />
    </div>
  </fieldset>`;
}

function Site({ field }) {
  return html`<fieldset class="card"><legend>Site</legend>
    <div class="fields">
      <div class="wide"><${Field} ...${field("site_address")} label="Address" /></div>
      <${Field} ...${field("site_lat")} label="Latitude" optional inputmode="decimal" hint="Both or neither." />
      <${Field} ...${field("site_lng")} label="Longitude" optional inputmode="decimal" />
    </div>
  </fieldset>`;
}

function Terms({ field, form }) {
  const currency = form.currency.trim().toUpperCase();
  const amount = minorUnits(form.amount, currency);
  const shown = Number.isNaN(amount) || !/^[A-Z]{3}$/.test(currency) ? undefined : money({ amount, currency });
  return html`<fieldset class="card"><legend>Fee and words</legend>
    <div class="fields">
      <${Field} ...${field("fee.amount", "amount")} label="Fee" inputmode="decimal" hint=${shown} />
      <${Field} ...${field("fee.currency", "currency")} label="Currency" maxlength="3" />
      <${Field} ...${field("external_id")} label="External ID" optional hint="Your own name for it." />
      <div class="wide"><${Field} ...${field("note")} label="Note" optional control="textarea" rows="3" /></div>
    </div>
  </fieldset>`;
}

function Window({ field, form, change, wrong }) {
  const loose = (name, shown) => !shown && wrong[name] && html`<p class="wrong bad">${name} ${wrong[name]}</p>`;
  const later = form.opens === "later", at = form.expires === "at";
  return html`<fieldset class="card"><legend>When drivers may accept</legend>
    <div class="fields">
      <${Choice} label="Opens" name="opens" value=${form.opens} choices=${{ now: "now", later: "later" }} onInput=${(opens) => change({ opens })}>
        ${later && html`<${Field} ...${field("opens_at")} label="Opens at" type="datetime-local" hint=${zoneAt(form.opens_at)} />`}
        ${loose("opens_at", later)}
      <//>
      <${Choice} label="Expires" name="expires" value=${form.expires} choices=${{ default: "10 min after it opens", at: "at a time" }}
        onInput=${(expires) => change({ expires })}>
        ${at && html`<${Field} ...${field("expires_at")} label="Expires at" type="datetime-local" hint=${zoneAt(form.expires_at)} />`}
        ${loose("expires_at", at)}
      <//>
    </div>
  </fieldset>`;
}
