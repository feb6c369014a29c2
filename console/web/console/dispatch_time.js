import { typedTime } from "./fields.js";

/** A moment as <input type="datetime-local"> has it: in the reader's zone, to the second. */
export function localInput(iso) {
  const at = new Date(iso);
  return new Date(at - at.getTimezoneOffset() * 60_000).toISOString().slice(0, 19);
}

/** The moment that such a field has, which must have one. */
export function momentOf(value) {
  const at = typedTime(value);
  if (!at) throw new Error("Give the date and the time.");
  return at;
}
