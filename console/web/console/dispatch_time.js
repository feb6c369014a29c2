/** A moment as <input type="datetime-local"> has it: in the reader's zone, to the second. */
export function localInput(iso) {
  const at = new Date(iso);
  return new Date(at - at.getTimezoneOffset() * 60_000).toISOString().slice(0, 19);
}

/** The moment that such a field has. */
export function momentOf(value) {
  const at = new Date(value);
  if (Number.isNaN(at.getTime())) throw new Error("Give the date and the time.");
  return at.toISOString();
}
