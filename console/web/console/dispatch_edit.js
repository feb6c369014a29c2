import { html, useState } from "../assets/preact.js";
import { Problem } from "../assets/api.js";
import { useLanguage } from "../assets/language.js";
import { Change } from "./dispatch_change.js";
import { localInput } from "../assets/zone.js";
import { momentOf, timeLabel } from "./dispatch_time.js";
import { amountHint, fractionDigits, minorUnits } from "./fee.js";
import { Field, typedNumber } from "./fields.js";
import { Suggestions, newTo, useKnown } from "./suggestions.js";

const names = [
  "site_address", "region", "vehicle_class", "work_starts_at", "work_ends_at", "fee.amount", "fee.currency", "site_lat", "site_lng",
  "min_working_height_m", "note",
];

/** Returns a dispatch's terms as the texts of the form's fields. */
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
 */
function changesOf(before, after) {
  const differs = (...names) => names.some((n) => before[n] !== after[n]);
  const change = {}, errors = [];
  const number = (field) => {
    const n = typedNumber(after[field]);
    if (Number.isNaN(n)) errors.push({ field, message: "must be a number like 37.5" });
    return n ?? null;
  };
  for (const n of ["site_address", "region", "vehicle_class"]) if (differs(n)) change[n] = after[n].trim();
  if (differs("min_working_height_m")) change.min_working_height_m = number("min_working_height_m");
  if (differs("site_lat", "site_lng")) {
    change.site_lat = number("site_lat");
    change.site_lng = number("site_lng");
  }
  for (const n of ["work_starts_at", "work_ends_at"]) if (differs(n)) change[n] = momentOf(after[n]);
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

/** Changes the terms. That makes a new offer, and the dialog warns of it. */
export function Edit(props) {
  const { t } = useLanguage();
  const { dispatch } = props;
  const [before] = useState(() => fieldsOf(dispatch));
  const [fields, setFields] = useState(before);
  const known = useKnown();
  const inUse = (list, name) => fields[name] !== before[name] && newTo(known?.[list], [fields[name]], t);
  const form = (wrong) => {
    const field = (name, label, more) => html`<${Field} name=${name} label=${label} value=${fields[name]} wrong=${wrong[name]}
      onInput=${(value) => setFields((now) => ({ ...now, [name]: value }))} ...${more} />`;
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
      ready=${Object.keys(fields).some((n) => fields[n] !== before[n])}
      change=${{ word: t.edit.word, past: (words) => words.edit.past, path: "", method: "PATCH", event: "dispatch.updated" }}>
    ${(wrong) => html`<p class="moved"><strong>${t.edit.newRound}</strong>${t.edit.more(dispatch.round)}</p>${form(wrong)}`}
  <//>`;
}
