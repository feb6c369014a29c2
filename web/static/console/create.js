// The page that creates a dispatch.
import { html, useEffect, useMemo, useRef, useState } from "../assets/preact.js";
import { pause, request } from "../assets/api.js";
import { useLanguage } from "../assets/language.js";
import { useTurn } from "../assets/ui.js";
import { typedTime, zoneAt } from "../assets/zone.js";
import { PageError, Trouble, explain, fieldIn, ruleIn } from "./dialogs.js";
import {
  Choice, Field, Suggestions, Unsettled, amountHint, beside, minorUnits, newTo, typedNumber, useFirstWrong, useKnown, useMaking, wrongFields,
} from "./forms.js";
import { useKeptForm } from "./kept.js";

const names = [
  "region", "vehicle_class", "min_working_height_m", "site_address", "site_lat", "site_lng", "work_starts_at", "work_ends_at",
  "fee.amount", "fee.currency", "note", "external_id", "opens_at", "expires_at",
];
/** @typedef {typeof blank} Form */
/** @typedef {ReturnType<typeof useKnown>} Known */
/** @typedef {(name: string, key?: keyof Form) => object} OneField returns the props of the field for form[key], which has the API's name */

/** @import { Wrong } from "./forms.js" */

const unread = new PageError(({ t }) => t.someFieldsWrong);

/** @param {string} externalID @param {Texts} t */
function duplicate(externalID, { create }) {
  return html`${create.duplicate} <a href=${`#/board?q=${encodeURIComponent(externalID)}`}>${create.find}</a>`;
}

/**
 * Returns the errors by field, and the error that belongs to no field.
 * @param {Record<string, string>|null} unsaid @param {Failure|null} error @param {string} externalID
 * @returns {[Record<string, Wrong>, Failure|null]}
 */
function useWrong(unsaid, error, externalID) {
  const { t } = useLanguage();
  return useMemo(() => {
    if (unsaid) return [unsaid, unread];
    if (error?.code === "DUPLICATE_EXTERNAL_ID") return [{ external_id: duplicate(externalID, t) }, error];
    const wrong = wrongFields(error);
    return [wrong, error && beside(error, wrong, names)];
  }, [unsaid, error, t]);
}

/** The form that creates a dispatch and then shows it. @param {PageProps} props */
export function Create({ session }) {
  const { t } = useLanguage();
  const [form, change, clear] = useKeptForm(`firsttap.new.${session.key_id}`, blank);
  const { make, busy, error, unsettled } = useMaking("/v1/admin/dispatches", `firsttap.new.${session.key_id}.sent`);
  const [unsaid, setUnsaid] = useState(/** @type {Record<string, string>|null} */ (null));
  const [sentID, setSentID] = useState("");
  const [wrong, trouble] = useWrong(unsaid, error, sentID);
  /** @type {Ref<HTMLFormElement>} */
  const element = useRef(null);
  useFirstWrong(element, wrong);
  const terms = termsOf(form);
  const known = useKnown();

  const submit = async (/** @type {SubmitEvent} */ e) => {
    e.preventDefault();
    const sayable = Object.keys(terms.wrong).length === 0;
    setUnsaid(sayable ? null : terms.wrong);
    setSentID(terms.body.external_id ?? "");
    const made = sayable && await make(terms.body);
    if (!made) return;
    clear();
    location.hash = `#/dispatches/${made.id}`;
  };
  /** @type {OneField} */
  const field = (name, key = /** @type {keyof Form} */ (name)) => ({ name, value: form[key], wrong: wrong[name], onInput: (/** @type {string} */ value) => change({ [key]: value }) });

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

/** @param {{field: OneField, form: Form, known: Known}} props */
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

/** @param {{field: OneField}} props */
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

/** @param {{field: OneField, form: Form}} props */
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

/** @param {{field: OneField, form: Form, change: (changes: Partial<Form>) => void, wrong: Record<string, Wrong>}} props */
function Window({ field, form, change, wrong }) {
  const { t } = useLanguage();
  const loose = (/** @type {string} */ name, /** @type {boolean} */ shown) => !shown && wrong[name] && html`<p class="wrong bad">${t.wrongField(fieldIn(t, name), ruleIn(t, String(wrong[name])))}</p>`;
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

const settled = 300; // ms without another key
const again = 15_000; // ms: drivers go on and off duty meanwhile

/** ", 12 not: 5 off duty, 4 in other regions"; "" if every driver is eligible. @param {Schemas["Preview"]} counts @param {Texts} t */
function whyNot({ not_eligible: not, reasons }, t) {
  if (not === 0) return "";
  const { preview } = t, why = /** @type {Schemas["Reason"][]} */ (Object.keys(preview.reasons));
  return preview.not(not, t.list(why.filter((code) => reasons[code] > 0).map((code) => preview.reasons[code](reasons[code]))));
}

/** @param {Schemas["Preview"]} counts @param {Texts} t */
const more = ({ busy, reachable, eligible }, { preview }) => [
  busy > 0 && preview.busy(busy),
  eligible > 0 && preview.reachable(reachable, eligible),
].filter(Boolean).join(" ");

/** @param {Schemas["Preview"]} counts */
const counted = ({ reasons, not_eligible: not }) => Object.values(reasons).reduce((sum, n) => sum + n, 0) > not;

/**
 * Shows the number of eligible drivers, and the reasons of the others. asked is null until the form is complete enough.
 * @param {{asked: ReturnType<typeof countable>}} props
 */
function Preview({ asked }) {
  const { t } = useLanguage();
  const about = asked && JSON.stringify(asked);
  const [last, set] = useState(/** @type {{about: string|null, counts?: Schemas["Preview"], error?: Failure}} */ ({ about: null }));
  const [turn, refresh] = useTurn();
  useEffect(() => {
    const timer = setInterval(refresh, again);
    return () => clearInterval(timer);
  }, []);
  useEffect(() => {
    if (about === null) return undefined;
    const abort = new AbortController();
    const { signal } = abort;
    pause(settled, signal).then(() => request("POST", "/v1/admin/dispatches/preview", { body: JSON.parse(about), signal })).then(
      ({ data }) => signal.aborted || set({ about, counts: data }),
      (error) => signal.aborted || set({ about, error }),
    );
    return () => abort.abort();
  }, [about, turn]);

  return html`<section class="card preview" aria-labelledby="preview">
    <h2 id="preview">${t.preview.title}</h2>
    <div role="status">${about === null
      ? html`<p class="soft">${t.preview.fill}</p>`
      : html`<${Counts} ...${last} stale=${last.about !== about} />`}</div>
  </section>`;
}

/** @param {{counts: Schemas["Preview"], error?: Failure, stale: boolean}} props */
function Counts({ counts, error, stale }) {
  const language = useLanguage();
  const { t } = language;
  if (stale) return html`<p class="soft">${t.preview.counting}</p>`;
  if (error) return html`<p class="warn">${t.preview.failed(explain(error, language, true))}</p>`;
  return html`<p><strong class=${"eligible " + (counts.eligible > 0 ? "good" : "warn")}>${t.preview.eligible(counts.eligible)}</strong>
      ${whyNot(counts, t)}</p>
    ${more(counts, t) && html`<p class="soft">${more(counts, t)}</p>`}
    ${counted(counts) && html`<p class="soft">${t.preview.twice}</p>`}`;
}

/** The empty form. */
export const blank = {
  region: "", vehicle_class: "", min_working_height_m: "", site_address: "", site_lat: "", site_lng: "", work_starts_at: "",
  work_ends_at: "", amount: "", currency: "KRW", note: "", external_id: "", opens: "now", opens_at: "", expires: "default", expires_at: "",
};

/**
 * Turns the form into the body of a request, and what is wrong with the inputs that no request can carry, by field.
 * @param {Form} form
 */
function termsOf(form) {
  /** @type {Record<string, string>} */
  const wrong = {};
  const number = (/** @type {keyof Form} */ name) => {
    const n = typedNumber(form[name]);
    if (Number.isNaN(n)) wrong[name] = "must be a number like 37.5";
    return n;
  };
  const at = (/** @type {keyof Form} */ name, /** @type {boolean} */ asked) => {
    if (asked && form[name] === "") wrong[name] = "is required";
    return asked ? typedTime(form[name]) : undefined;
  };
  const text = (/** @type {keyof Form} */ name) => form[name].trim() || undefined;
  const currency = form.currency.trim().toUpperCase();
  const amount = minorUnits(form.amount, currency);
  if (form.amount.trim() === "") wrong["fee.amount"] = "is required";
  else if (Number.isNaN(amount)) wrong["fee.amount"] = amountHint(currency);
  const body = {
    external_id: text("external_id"), region: text("region"), vehicle_class: text("vehicle_class"),
    min_working_height_m: number("min_working_height_m"), site_address: text("site_address"),
    site_lat: number("site_lat"), site_lng: number("site_lng"),
    work_starts_at: typedTime(form.work_starts_at), work_ends_at: typedTime(form.work_ends_at),
    fee: { amount, currency }, note: form.note || undefined,
    opens_at: at("opens_at", form.opens === "later"), expires_at: at("expires_at", form.expires === "at"),
  };
  return { body, wrong };
}

/** Returns the request of a preview, whatever else is missing. It is null until a count is possible. @param {ReturnType<typeof termsOf>} terms */
function countable({ body, wrong }) {
  const { region, vehicle_class, min_working_height_m, work_starts_at, work_ends_at } = body;
  if (!region || !vehicle_class || !work_starts_at || !work_ends_at || wrong.min_working_height_m) return null;
  return {
    region, vehicle_class, min_working_height_m, work_starts_at, work_ends_at,
    site_address: "?", fee: { amount: 0, currency: "KRW" }, // required, but without influence on the count
  };
}
