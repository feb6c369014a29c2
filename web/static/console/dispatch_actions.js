// What can be done to a dispatch, each in a dialog.
import { html, useState } from "../assets/preact.js";
import { Problem, get, now } from "../assets/api.js";
import { useLanguage } from "../assets/language.js";
import { useLoaded } from "../assets/ui.js";
import { localInput, typedTime } from "../assets/zone.js";
import { Trouble } from "./dialogs.js";
import { Change } from "./dispatch_change.js";
import { momentOf, timeLabel } from "./dispatch_words.js";
import { Field, Suggestions, amountHint, fractionDigits, minorUnits, newTo, typedNumber, useKnown } from "./forms.js";
import { useSettled } from "./kept.js";
import { suspended, useNames } from "./names.js";

/** @import { Acting } from "./dispatch_change.js" */

/** @type {Schemas["DispatchStatus"][]} */
const waiting = ["SCHEDULED", "PENDING"];

/**
 * The actions on a dispatch, by the names of their texts, with their states and the dialogs that confirm them.
 * @type {{name: keyof Texts["dispatch"]["action"], states: Schemas["DispatchStatus"][], dialog: (props: Acting) => unknown, danger?: boolean}[]}
 */
export const actions = [
  { name: "assign", states: waiting, dialog: Assign },
  { name: "extend", states: waiting, dialog: Extend },
  { name: "edit", states: waiting, dialog: Edit },
  { name: "reopen", states: ["EXPIRED"], dialog: Reopen },
  { name: "unassign", states: ["ACCEPTED"], dialog: Unassign, danger: true },
  { name: "cancel", states: ["SCHEDULED", "PENDING", "ACCEPTED", "IN_PROGRESS"], dialog: Cancel, danger: true },
];

/** @param {{value: string, onInput: (value: string) => void}} props */
function Reason({ value, onInput }) {
  const { t } = useLanguage();
  return html`<label class="stack">${t.dispatch.reason}
    <input value=${value} onInput=${(e) => onInput(e.target.value)} maxlength="64" placeholder=${t.dispatch.reasonHint} autocomplete="off" /></label>`;
}

/** @param {string} reason */
const withReason = (reason) => (reason.trim() ? { reason_code: reason.trim() } : {});

/** @param {Acting} props */
function Cancel(props) {
  const { t } = useLanguage();
  const { dispatch } = props;
  const [reason, setReason] = useState("");
  const name = useNames(dispatch.accepted_by ? [dispatch.accepted_by] : []);
  return html`<${Change} ...${props} title=${t.cancel.title} body=${() => withReason(reason)}
      change=${{ word: t.cancel.word, past: (/** @type {Texts} */ words) => words.cancel.past, path: "/cancel", event: "dispatch.canceled", danger: true }}>
    <p>${t.cancel.more}${dispatch.accepted_by && t.cancel.has(name(dispatch.accepted_by))}</p>
    <${Reason} value=${reason} onInput=${setReason} />
  <//>`;
}

/** @param {Acting} props */
function Unassign(props) {
  const { t } = useLanguage();
  const { dispatch } = props;
  const [reason, setReason] = useState("");
  const name = useNames(dispatch.accepted_by ? [dispatch.accepted_by] : []);
  return html`<${Change} ...${props} title=${t.unassign.title} body=${() => withReason(reason)}
      change=${{ word: t.unassign.word, past: (/** @type {Texts} */ words) => words.unassign.past, path: "/unassign", event: "dispatch.unassigned", danger: true }}>
    <p>${t.unassign.more(dispatch.accepted_by ? name(dispatch.accepted_by) : t.unassign.theDriver, dispatch.round + 1)}</p>
    <${Reason} value=${reason} onInput=${setReason} />
  <//>`;
}

const tenMinutes = 600_000;

/** @param {Acting} props */
function Extend(props) {
  const { t, when } = useLanguage();
  const { dispatch } = props;
  const [until, setUntil] = useState(localInput(Math.min(Date.parse(dispatch.expires_at) + tenMinutes, Date.parse(dispatch.work_ends_at))));
  const add = (/** @type {number} */ ms) => setUntil((u) => localInput(Date.parse(typedTime(u) ?? dispatch.expires_at) + ms));
  return html`<${Change} ...${props} title=${t.extend.title} body=${() => ({ expires_at: momentOf(until) })}
      change=${{ word: t.extend.word, past: (/** @type {Texts} */ words) => words.extend.past, path: "/extend", event: "dispatch.updated" }}>
    <p>${t.extend.more(when(dispatch.expires_at))}</p>
    <label class="stack">${timeLabel(t, t.extend.end, until)}
      <input type="datetime-local" step="1" value=${until} onInput=${(e) => setUntil(e.target.value)} required /></label>
    <div class="row">${[10, 30, 60].map((m) => html`<button type="button" onClick=${() => add(m * 60_000)}>${t.extend.add(m)}</button>`)}</div>
  <//>`;
}

/** @param {Acting} props */
function Reopen(props) {
  const { t, roughly } = useLanguage();
  const { dispatch } = props;
  const [until, setUntil] = useState("");
  const stood = Date.parse(dispatch.expires_at) - Date.parse(dispatch.opens_at);
  return html`<${Change} ...${props} title=${t.reopen.title} body=${() => (until ? { expires_at: momentOf(until) } : {})}
      change=${{ word: t.reopen.word, past: (/** @type {Texts} */ words) => words.reopen.past, path: "/reopen", event: "dispatch.reopened" }}>
    <p>${t.reopen.more(dispatch.round + 1)}</p>
    <label class="stack">${t.reopen.until(roughly(stood))}
      <input type="datetime-local" step="1" value=${until} min=${localInput(now())} onInput=${(e) => setUntil(e.target.value)} /></label>
  <//>`;
}

const most = 20;

/** Assigns a dispatch to a driver, whom the user finds by name. @param {Acting} props */
export function Assign(props) {
  const { t } = useLanguage();
  const { dispatch } = props;
  const [q, setQ] = useState("");
  const [driver, setDriver] = useState(/** @type {Schemas["AdminDriver"]|null} */ (null));
  const wanted = useSettled(q.trim());
  const { data, error, loading } = useLoaded((signal) => {
    // Without a search text, the list has the drivers of that region with such a vehicle.
    /** @type {Record<string, string>} */
    const query = wanted ? { q: wanted } : { region: dispatch.region, vehicle_class: dispatch.vehicle_class };
    return get(`/v1/admin/drivers?${new URLSearchParams({ ...query, limit: String(most) })}`, { signal });
  }, [wanted]);
  /** @type {Schemas["AdminDriver"][]} */
  const found = data?.items ?? [];
  const choices = driver && !found.some((d) => d.id === driver.id) ? [driver, ...found] : found;
  return html`<${Change} ...${props} title=${t.assign.title} ready=${driver !== null} body=${() => ({ driver_id: driver?.id })}
      change=${{ word: driver ? t.assign.to(driver.name) : t.assign.word, past: (/** @type {Texts} */ words) => words.assign.past(driver?.name ?? ""), path: "/assign", event: "dispatch.accepted" }}>
    <p>${t.assign.more}</p>
    <label class="stack">${t.assign.find}
      <input type="search" value=${q} onInput=${(e) => setQ(e.target.value)} autocomplete="off" /></label>
    <${Trouble} error=${error} reading />
    <fieldset class="choices"><legend>${wanted ? t.assign.found : t.assign.here(dispatch.region, dispatch.vehicle_class)}</legend>
      ${choices.map((d) => html`<label key=${d.id} class="choice">
        <input type="radio" name="driver" value=${d.id} checked=${driver?.id === d.id} onChange=${() => setDriver(d)} />
        <span><strong>${d.name}</strong> <span class="soft">${d.phone}</span><br /><span class="soft">${about(d, t)}</span></span></label>`)}
      <p role="status" class="soft">${data?.next_cursor ? found.length === 0 ? t.assign.far : t.assign.first(most) : data && found.length === 0 ? t.assign.nobody : loading ? t.assign.searching : ""}</p>
    </fieldset>
  <//>`;
}

/** @param {Schemas["AdminDriver"]} d @param {Texts} t */
function about(d, t) {
  const parts = [d.vehicle_class, t.list(d.regions), d.on_duty ? t.drivers.onBadge : t.drivers.offBadge];
  if (d.working_height_m !== null) parts.splice(1, 0, t.meters(d.working_height_m));
  if (suspended(d.suspended_until)) parts.push(t.drivers.suspendedWord);
  return parts.join(" · ");
}

/** @typedef {ReturnType<typeof fieldsOf>} Fields */

/** @type {(keyof Fields)[]} */
const names = [
  "site_address", "region", "vehicle_class", "work_starts_at", "work_ends_at", "fee.amount", "fee.currency", "site_lat", "site_lng",
  "min_working_height_m", "note",
];

/** Returns a dispatch's terms as the texts of the form's fields. @param {Schemas["Dispatch"]} d */
function fieldsOf(d) {
  const digits = fractionDigits(d.fee.currency);
  return {
    site_address: d.site_address, site_lat: String(d.site_lat ?? ""), site_lng: String(d.site_lng ?? ""), region: d.region,
    vehicle_class: d.vehicle_class, min_working_height_m: String(d.min_working_height_m ?? ""),
    work_starts_at: localInput(d.work_starts_at), work_ends_at: localInput(d.work_ends_at),
    "fee.amount": (d.fee.amount / 10 ** digits).toFixed(digits), "fee.currency": d.fee.currency, note: d.note ?? "",
  };
}

/**
 * Returns the changed fields only, so that another user's concurrent changes to other fields stay. Inputs that no request can carry are a
 * Problem, as if the service had refused them.
 * @param {Fields} before @param {Fields} after
 */
function changesOf(before, after) {
  const differs = (/** @type {(keyof Fields)[]} */ ...names) => names.some((n) => before[n] !== after[n]);
  /** @type {Schemas["DispatchChange"]} */
  const change = {};
  /** @type {Schemas["FieldError"][]} */
  const errors = [];
  const number = (/** @type {keyof Fields} */ field) => {
    const n = typedNumber(after[field]);
    if (Number.isNaN(n)) errors.push({ field, message: "must be a number like 37.5" });
    return n ?? null;
  };
  for (const n of /** @type {const} */ (["site_address", "region", "vehicle_class"])) if (differs(n)) change[n] = after[n].trim();
  if (differs("min_working_height_m")) change.min_working_height_m = number("min_working_height_m");
  if (differs("site_lat", "site_lng")) {
    change.site_lat = number("site_lat");
    change.site_lng = number("site_lng");
  }
  for (const n of /** @type {const} */ (["work_starts_at", "work_ends_at"])) if (differs(n)) change[n] = momentOf(after[n]);
  if (differs("fee.amount", "fee.currency")) {
    const currency = after["fee.currency"].trim().toUpperCase();
    const amount = minorUnits(after["fee.amount"], currency);
    if (Number.isNaN(amount)) errors.push({ field: "fee.amount", message: amountHint(currency) });
    change.fee = { amount, currency };
  }
  if (differs("note")) change.note = after.note === "" ? null : after.note;
  if (errors.length > 0) throw new Problem(422, { code: "VALIDATION_FAILED", errors }, 0);
  return change;
}

/** Changes the terms. That makes a new offer, and the dialog warns of it. @param {Acting} props */
export function Edit(props) {
  const { t } = useLanguage();
  const { dispatch } = props;
  const [before] = useState(() => fieldsOf(dispatch));
  const [fields, setFields] = useState(before);
  const known = useKnown();
  const inUse = (/** @type {"regions"|"classes"} */ list, /** @type {keyof Fields} */ name) => fields[name] !== before[name] && newTo(known?.[list], [fields[name]], t);
  const form = (/** @type {Record<string, string>} */ wrong) => {
    const field = (/** @type {keyof Fields} */ name, /** @type {string} */ label, /** @type {object} */ more) => html`<${Field} name=${name} label=${label} value=${fields[name]} wrong=${wrong[name]}
      onInput=${(/** @type {string} */ value) => setFields((now) => ({ ...now, [name]: value }))} ...${more} />`;
    const number = { optional: true, inputmode: "decimal" };
    return html`
      ${field("site_address", t.edit.address, { maxlength: 500 })}
      <div class="fields">
        ${field("region", t.region, { maxlength: 64, list: "regions", hint: inUse("regions", "region") })}
        ${field("vehicle_class", t.fields.vehicle_class, { maxlength: 64, list: "classes", hint: inUse("classes", "vehicle_class") })}
        ${field("work_starts_at", timeLabel(t, t.fields.work_starts_at, fields.work_starts_at), { type: "datetime-local", step: 1 })}
        ${field("work_ends_at", timeLabel(t, t.fields.work_ends_at, fields.work_ends_at), { type: "datetime-local", step: 1 })}
        ${field("fee.amount", t.fields.fee, { inputmode: "decimal" })}
        ${field("fee.currency", t.fields["fee.currency"], { maxlength: 3 })}
        ${field("site_lat", t.fields.site_lat, number)}
        ${field("site_lng", t.fields.site_lng, number)}
        ${field("min_working_height_m", t.edit.height, number)}
      </div>
      ${field("note", t.fields.note, { optional: true, control: "textarea", rows: 3, maxlength: 2000 })}
      <${Suggestions} known=${known} />`;
  };
  return html`<${Change} ...${props} title=${t.edit.title} body=${() => changesOf(before, fields)} fields=${names}
      ready=${names.some((n) => fields[n] !== before[n])}
      change=${{ word: t.edit.word, past: (/** @type {Texts} */ words) => words.edit.past, path: "", method: "PATCH", event: "dispatch.updated" }}>
    ${(wrong) => html`<p class="moved"><strong>${t.edit.newRound}</strong>${t.edit.more(dispatch.round)}</p>${form(wrong)}`}
  <//>`;
}
