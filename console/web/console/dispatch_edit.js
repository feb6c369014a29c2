import { html, useState } from "../assets/preact.js";
import { useLanguage } from "../assets/language.js";
import { PageError, ruleIn } from "../assets/problems.js";
import { Change } from "./dispatch_change.js";
import { localInput, momentOf } from "./dispatch_time.js";
import { amountHint, fractionDigits, minorUnits } from "./fee.js";

/** Returns a dispatch's terms as the texts of the form's fields. */
function fieldsOf(d) {
  const digits = fractionDigits(d.fee.currency);
  return {
    site_address: d.site_address, site_lat: d.site_lat ?? "", site_lng: d.site_lng ?? "", region: d.region,
    vehicle_class: d.vehicle_class, min_working_height_m: d.min_working_height_m ?? "",
    work_starts_at: localInput(d.work_starts_at), work_ends_at: localInput(d.work_ends_at),
    fee: (d.fee.amount / 10 ** digits).toFixed(digits), currency: d.fee.currency, note: d.note ?? "",
  };
}

const optionalNumber = (text) => (String(text).trim() === "" ? null : Number(text));

/** Returns the changed fields only, so that another user's concurrent changes to other fields stay. */
function changesOf(before, after) {
  const differs = (...names) => names.some((n) => String(before[n]) !== String(after[n]));
  const change = {};
  for (const n of ["site_address", "region", "vehicle_class"]) if (differs(n)) change[n] = after[n].trim();
  if (differs("min_working_height_m")) change.min_working_height_m = optionalNumber(after.min_working_height_m);
  if (differs("site_lat", "site_lng")) {
    change.site_lat = optionalNumber(after.site_lat);
    change.site_lng = optionalNumber(after.site_lng);
  }
  for (const n of ["work_starts_at", "work_ends_at"]) if (differs(n)) change[n] = momentOf(after[n]);
  if (differs("fee", "currency")) {
    const currency = after.currency.trim().toUpperCase();
    const amount = minorUnits(after.fee, currency);
    if (Number.isNaN(amount)) throw new PageError(({ t }) => t.edit.fee(ruleIn(t, amountHint(currency))));
    change.fee = { amount, currency };
  }
  if (differs("note")) change.note = after.note === "" ? null : after.note;
  return change;
}

/** Changes the terms. That makes a new offer, and the dialog warns of it. */
export function Edit(props) {
  const { t } = useLanguage();
  const { dispatch } = props;
  const [before] = useState(() => fieldsOf(dispatch));
  const [fields, setFields] = useState(before);
  const field = (name, label, more) => html`<label class="stack">${label}
    <input name=${name} value=${fields[name]} onInput=${(e) => setFields({ ...fields, [name]: e.target.value })} ...${more} /></label>`;
  const number = { type: "number", step: "any" };
  return html`<${Change} ...${props} title=${t.edit.title} body=${() => changesOf(before, fields)}
      ready=${Object.keys(fields).some((n) => String(fields[n]) !== String(before[n]))}
      change=${{ word: t.edit.word, past: (words) => words.edit.past, path: "", method: "PATCH", event: "dispatch.updated" }}>
    <p class="moved"><strong>${t.edit.newRound}</strong>${t.edit.more(dispatch.round)}</p>
    ${field("site_address", t.edit.address, { required: true, maxlength: 500 })}
    <div class="fields">
      ${field("region", t.region, { required: true, maxlength: 64 })}
      ${field("vehicle_class", t.fields.vehicle_class, { required: true, maxlength: 64 })}
      ${field("work_starts_at", t.yourTime(t.fields.work_starts_at), { type: "datetime-local", step: 1, required: true })}
      ${field("work_ends_at", t.yourTime(t.fields.work_ends_at), { type: "datetime-local", step: 1, required: true })}
      ${field("fee", t.fields.fee, { ...number, min: 0, required: true })}
      ${field("currency", t.fields["fee.currency"], { required: true, pattern: "[A-Za-z]{3}" })}
      ${field("site_lat", t.fields.site_lat, { ...number, min: -90, max: 90 })}
      ${field("site_lng", t.fields.site_lng, { ...number, min: -180, max: 180 })}
      ${field("min_working_height_m", t.edit.height, { ...number, min: 0, max: 200 })}
    </div>
    <label class="stack">${t.fields.note} <textarea name="note" rows="3" maxlength="2000" value=${fields.note}
      onInput=${(e) => setFields({ ...fields, note: e.target.value })}></textarea></label>
  <//>`;
}
