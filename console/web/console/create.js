import { html, useMemo, useRef, useState } from "../assets/preact.js";
import { useLanguage } from "../assets/language.js";
import { PageError, fieldIn, ruleIn } from "../assets/problems.js";
import { Trouble } from "../assets/ui.js";
import { zoneAt } from "../assets/zone.js";
import { Choice, Field, beside, useFirstWrong, wrongFields } from "./fields.js";
import { useKeptForm } from "./kept.js";
import { Unsettled, useMaking } from "./making.js";
import { Suggestions, newTo, useKnown } from "./suggestions.js";
import { blank, countable, termsOf } from "./create_terms.js";
import { minorUnits } from "./fee.js";
import { Preview } from "./create_preview.js";

const names = [
  "region", "vehicle_class", "min_working_height_m", "site_address", "site_lat", "site_lng", "work_starts_at", "work_ends_at",
  "fee.amount", "fee.currency", "note", "external_id", "opens_at", "expires_at",
];
const unread = new PageError(({ t }) => t.someFieldsWrong);

function duplicate(externalID, { create }) {
  return html`${create.duplicate} <a href=${`#/board?q=${encodeURIComponent(externalID)}`}>${create.find}</a>`;
}

/** Returns the errors by field, and the error that belongs to no field. */
function useWrong(unsaid, error, externalID) {
  const { t } = useLanguage();
  return useMemo(() => {
    if (unsaid) return [unsaid, unread];
    if (error?.code === "DUPLICATE_EXTERNAL_ID") return [{ external_id: duplicate(externalID, t) }, error];
    const wrong = wrongFields(error);
    return [wrong, error && beside(error, wrong, names)];
  }, [unsaid, error, t]);
}

/** The form that creates a dispatch and then shows it. */
export function Create({ session }) {
  const { t } = useLanguage();
  const [form, change, clear] = useKeptForm(`firsttap.new.${session.key_id}`, blank);
  const { make, busy, error, unsettled } = useMaking("/v1/admin/dispatches", `firsttap.new.${session.key_id}.sent`);
  const [unsaid, setUnsaid] = useState(null);
  const [sentID, setSentID] = useState("");
  const [wrong, trouble] = useWrong(unsaid, error, sentID);
  const element = useRef(null);
  useFirstWrong(element, wrong);
  const terms = termsOf(form);
  const known = useKnown();

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

  return html`<h1>${t.page.new}</h1>
    <form ref=${element} class="create" noValidate onSubmit=${submit} aria-label=${t.page.new}>
      <div class="stack">
        <${Work} field=${field} form=${form} known=${known} />
        <${Site} field=${field} />
        <${Terms} field=${field} form=${form} />
        <${Window} field=${field} form=${form} change=${change} wrong=${wrong} />
      </div>
      <div class="stack send">
        <${Preview} asked=${countable(terms)} />
        <${Trouble} error=${trouble} />
        <${Unsettled} unsettled=${unsettled && !busy} thing="dispatch" />
        <div class="row">
          <button type="submit" class="primary" disabled=${busy}>${busy ? t.create.creating : t.create.dispatch}</button>
          <button type="button" disabled=${busy} onClick=${clear}>${t.create.clear}</button>
        </div>
      </div>
      <${Suggestions} known=${known} />
    </form>`;
}

function Work({ field, form, known }) {
  const { t } = useLanguage();
  return html`<fieldset class="card"><legend>${t.create.work}</legend>
    <div class="fields">
      <${Field} ...${field("region")} label=${t.region} list="regions" hint=${newTo(known?.regions, [form.region], t)} />
      <${Field} ...${field("vehicle_class")} label=${t.fields.vehicle_class} list="classes" hint=${newTo(known?.classes, [form.vehicle_class], t)} />
      <${Field} ...${field("min_working_height_m")} label=${t.create.height} optional inputmode="decimal" hint=${t.create.heightHint} />
      <${Field} ...${field("work_starts_at")} label=${t.fields.work_starts_at} type="datetime-local" hint=${zoneAt(form.work_starts_at)} />
      <${Field} ...${field("work_ends_at")} label=${t.fields.work_ends_at} type="datetime-local" hint=${zoneAt(form.work_ends_at)} />
    </div>
  </fieldset>`;
}

function Site({ field }) {
  const { t } = useLanguage();
  return html`<fieldset class="card"><legend>${t.create.site}</legend>
    <div class="fields">
      <div class="wide"><${Field} ...${field("site_address")} label=${t.fields.site_address} /></div>
      <${Field} ...${field("site_lat")} label=${t.fields.site_lat} optional inputmode="decimal" hint=${t.create.both} />
      <${Field} ...${field("site_lng")} label=${t.fields.site_lng} optional inputmode="decimal" />
    </div>
  </fieldset>`;
}

function Terms({ field, form }) {
  const { t, money } = useLanguage();
  const currency = form.currency.trim().toUpperCase();
  const amount = minorUnits(form.amount, currency);
  const shown = Number.isNaN(amount) || !/^[A-Z]{3}$/.test(currency) ? undefined : money({ amount, currency });
  return html`<fieldset class="card"><legend>${t.create.terms}</legend>
    <div class="fields">
      <${Field} ...${field("fee.amount", "amount")} label=${t.fields.fee} inputmode="decimal" hint=${shown} />
      <${Field} ...${field("fee.currency", "currency")} label=${t.fields["fee.currency"]} maxlength="3" />
      <${Field} ...${field("external_id")} label=${t.fields.external_id} optional hint=${t.create.externalHint} />
      <div class="wide"><${Field} ...${field("note")} label=${t.fields.note} optional control="textarea" rows="3" /></div>
    </div>
  </fieldset>`;
}

function Window({ field, form, change, wrong }) {
  const { t } = useLanguage();
  const loose = (name, shown) => !shown && wrong[name] && html`<p class="wrong bad">${t.wrongField(fieldIn(t, name), ruleIn(t, wrong[name]))}</p>`;
  const later = form.opens === "later", at = form.expires === "at";
  return html`<fieldset class="card"><legend>${t.create.window}</legend>
    <div class="fields">
      <${Choice} label=${t.create.opens} name="opens" value=${form.opens} choices=${{ now: t.create.now, later: t.create.later }} onInput=${(opens) => change({ opens })}>
        ${later && html`<${Field} ...${field("opens_at")} label=${t.fields.opens_at} type="datetime-local" hint=${zoneAt(form.opens_at)} />`}
        ${loose("opens_at", later)}
      <//>
      <${Choice} label=${t.create.expires} name="expires" value=${form.expires} choices=${{ default: t.create.tenMinutes, at: t.create.atTime }}
        onInput=${(expires) => change({ expires })}>
        ${at && html`<${Field} ...${field("expires_at")} label=${t.fields.expires_at} type="datetime-local" hint=${zoneAt(form.expires_at)} />`}
        ${loose("expires_at", at)}
      <//>
    </div>
  </fieldset>`;
}
