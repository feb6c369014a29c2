import { PageError } from "../assets/problems.js";
import { typedTime } from "./fields.js";

/** Formats a moment for <input type="datetime-local">: in the reader's zone, to the second. */
export function localInput(iso) {
  const at = new Date(iso);
  return new Date(at - at.getTimezoneOffset() * 60_000).toISOString().slice(0, 19);
}

/** Returns the moment in such a field, which must not be empty. */
export function momentOf(value) {
  const at = typedTime(value);
  if (!at) throw new PageError(({ t }) => t.edit.noTime);
  return at;
}
