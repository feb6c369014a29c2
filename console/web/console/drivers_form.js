import { html } from "../assets/preact.js";
import { useLanguage } from "../assets/language.js";
import { Field, typedNumber } from "./fields.js";
import { Regions, withTyped } from "./regions.js";
import { Suggestions, newTo, useKnown } from "./suggestions.js";

/** The fields of a driver, as the API names them. */
export const names = ["name", "phone", "regions", "vehicle_class", "working_height_m", "firebase_uid", "locale"];

/** Returns a driver in the form's texts; regions are a list, and region is one that is being typed. */
export function formOf(driver) {
  const text = (name) => (driver?.[name] == null ? "" : String(driver[name]));
  return { ...Object.fromEntries(names.map((name) => [name, text(name)])), regions: driver?.regions ?? [], region: "" };
}

/**
 * Returns the form in the API's types, with null for an empty field.
 * @returns {{values: object, wrong: Object<string, string>}} wrong has the inputs that no request can carry, by field
 */
export function valuesOf(form) {
  const text = (name) => form[name].trim() || null;
  const height = typedNumber(form.working_height_m) ?? null;
  const values = {
    name: form.name.trim(), phone: form.phone.trim(), regions: withTyped(form.regions, form.region),
    vehicle_class: form.vehicle_class.trim(), working_height_m: height, firebase_uid: text("firebase_uid"), locale: text("locale"),
  };
  return { values, wrong: Number.isNaN(height) ? { working_height_m: "must be a number like 45" } : {} };
}

/** @param {{form: object, wrong: Object<string, string>, change: (changes: object) => void, driver?: any}} props driver: who is edited */
export function DriverFields({ form, wrong, change, driver }) {
  const { t: { fields, drivers }, t } = useLanguage();
  const known = useKnown(driver);
  const field = (name) => ({ name, value: form[name], wrong: wrong[name], onInput: (value) => change({ [name]: value }) });
  return html`<div class="fields">
    <${Field} ...${field("name")} label=${fields.name} />
    <${Field} ...${field("phone")} label=${fields.phone} type="tel" hint=${drivers.phoneHint} />
    <${Regions} form=${form} wrong=${wrong.regions} known=${known?.regions} change=${change} />
    <${Field} ...${field("vehicle_class")} label=${fields.vehicle_class} list="classes"
      hint=${newTo(known?.classes, [form.vehicle_class], t)} />
    <${Field} ...${field("working_height_m")} label=${drivers.heightM} optional inputmode="decimal" />
    <${Field} ...${field("locale")} label=${fields.locale} optional hint=${drivers.localeHint} />
    <${Field} ...${field("firebase_uid")} label=${fields.firebase_uid} optional hint=${drivers.uidHint} />
    <${Suggestions} known=${known} />
  </div>`;
}
