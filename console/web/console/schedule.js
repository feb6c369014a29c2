const units = { h: "h", m: "min", s: "s", ms: "ms" };

/** Formats Go's 1h30m0s as "1 h 30 min". */
const duration = (text) => [...text.matchAll(/([\d.]+)(h|ms|m|s)/g)].filter(([, n]) => Number(n) !== 0)
  .map(([, n, unit]) => `${n} ${units[unit]}`).join(" ") || text;

const days = ["Sundays", "Mondays", "Tuesdays", "Wednesdays", "Thursdays", "Fridays", "Saturdays", "Sundays"];

const number = (field) => (/^\d+$/.test(field) ? Number(field) : null);
const every = (field) => (field === "*" ? 1 : number(field.replace(/^(\*|0)\//, "")));
const step = (n, unit) => (n === 1 ? `every ${unit}` : `every ${n} ${unit}s`);

/**
 * Describes a job's schedule in words, or returns the text if these words can't express it.
 * @param {string} text a cron expression with seconds, "after 1m0s", or "at start"
 */
export function inWords(text) {
  if (text.startsWith("after ")) return `${duration(text.slice(6))} after its last run`;
  if (text === "at start") return "once when the instances start";
  const fields = text.split(/\s+/);
  if (fields.length !== 6) return text;
  const [second, minute, hour, date, month, weekday] = fields;
  if (date !== "*" || month !== "*") return text;
  const repeats = (field) => every(field) && !/^\d+$/.test(field);
  if (weekday === "*" && hour === "*") {
    if (minute === "*" && repeats(second)) return step(every(second), "second");
    if (second !== "0") return text;
    if (repeats(minute)) return step(every(minute), "minute");
    if (number(minute) !== null) return minute === "0" ? "every hour" : `every hour, ${minute} min past`;
    return text;
  }
  if (second !== "0" || number(minute) === null || number(hour) === null) return text;
  const at = `${hour.padStart(2, "0")}:${minute.padStart(2, "0")}`;
  if (weekday === "*") return `every day at ${at}`;
  return days[number(weekday)] ? `${days[number(weekday)]} at ${at}` : text;
}
