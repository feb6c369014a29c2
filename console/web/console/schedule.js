const units = { h: "h", m: "min", s: "s", ms: "ms" }; // Go's, and the dictionary's

/** Formats Go's 1h30m0s as "1 h 30 min". */
const duration = (text, t) => [...text.matchAll(/([\d.]+)(h|ms|m|s)/g)].filter(([, n]) => Number(n) !== 0)
  .map(([, n, unit]) => t.units[units[unit]](n)).join(" ") || text;

const number = (field) => (/^\d+$/.test(field) ? Number(field) : null);
const every = (field) => (field === "*" ? 1 : number(field.replace(/^(\*|0)\//, "")));

/**
 * Describes a job's schedule in words, or returns the text if these words can't express it.
 * @param {string} text a cron expression with seconds, "after 1m0s", or "at start"
 * @param {any} t the texts
 */
export function inWords(text, t) {
  const { schedule } = t;
  if (text.startsWith("after ")) return schedule.after(duration(text.slice(6), t));
  if (text === "at start") return schedule.atStart;
  const fields = text.split(/\s+/);
  if (fields.length !== 6) return text;
  const [second, minute, hour, date, month, weekday] = fields;
  if (date !== "*" || month !== "*") return text;
  const repeats = (field) => every(field) && !/^\d+$/.test(field);
  if (weekday === "*" && hour === "*") {
    if (minute === "*" && repeats(second)) return schedule.every.second(every(second));
    if (second !== "0") return text;
    if (repeats(minute)) return schedule.every.minute(every(minute));
    if (number(minute) !== null) return minute === "0" ? schedule.hourly : schedule.hourlyAt(minute);
    return text;
  }
  if (second !== "0" || number(minute) === null || number(hour) === null) return text;
  const at = `${hour.padStart(2, "0")}:${minute.padStart(2, "0")}`;
  if (weekday === "*") return schedule.daily(at);
  return number(weekday) !== null && number(weekday) <= 7 ? schedule.weekly(number(weekday), at) : text;
}
