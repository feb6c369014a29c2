import { amountHint, minorUnits } from "./fee.js";
import { typedTime } from "../assets/zone.js";
import { typedNumber } from "./fields.js";

/** The empty form. */
export const blank = {
  region: "", vehicle_class: "", min_working_height_m: "", site_address: "", site_lat: "", site_lng: "", work_starts_at: "",
  work_ends_at: "", amount: "", currency: "KRW", note: "", external_id: "", opens: "now", opens_at: "", expires: "default", expires_at: "",
};

/**
 * Turns the form into a request.
 * @returns {{body: object, wrong: Object<string, string>}} wrong has the inputs that no request can carry, by field
 */
export function termsOf(form) {
  const wrong = {};
  const number = (name) => {
    const n = typedNumber(form[name]);
    if (Number.isNaN(n)) wrong[name] = "must be a number like 37.5";
    return n;
  };
  const at = (name, asked) => {
    if (asked && form[name] === "") wrong[name] = "is required";
    return asked ? typedTime(form[name]) : undefined;
  };
  const text = (name) => form[name].trim() || undefined;
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

/** Returns the request of a preview, whatever else is missing. It is null until a count is possible. */
export function countable({ body, wrong }) {
  const { region, vehicle_class, min_working_height_m, work_starts_at, work_ends_at } = body;
  if (!region || !vehicle_class || !work_starts_at || !work_ends_at || wrong.min_working_height_m) return null;
  return {
    region, vehicle_class, min_working_height_m, work_starts_at, work_ends_at,
    site_address: "?", fee: { amount: 0, currency: "KRW" }, // required, but without influence on the count
  };
}
