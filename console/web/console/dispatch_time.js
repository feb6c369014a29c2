import { PageError } from "../assets/problems.js";
import { abroad, typedTime, zoneAt } from "../assets/zone.js";

/** Returns the moment in an <input type="datetime-local">, which must not be empty. */
export function momentOf(value) {
  const at = typedTime(value);
  if (!at) throw new PageError(({ t }) => t.edit.noTime);
  return at;
}

/** Returns the label of such a field: with the zone's name for a reader whose clock shows another time. */
export const timeLabel = (t, label, value) => (abroad() ? `${label} (${zoneAt(value)})` : t.yourTime(label));
