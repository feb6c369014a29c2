const second = 1e6, minute = 60 * second, hour = 60 * minute; // µs

/**
 * Places moments on an axis from 0 to 1.
 * @param {number[]} moments in µs, from 0
 * @param {(us: number) => string} duration writes a time
 * @param {"auto"|"linear"|"log"} wish auto is log if most of the taps would otherwise overlap at the left
 * @returns {{kind: "linear"|"log", place: (us: number) => number, ticks: {us: number, label: string}[]}}
 */
export function scaleOf(moments, duration, wish = "auto") {
  const later = moments.filter((us) => us > 0).sort((a, b) => a - b);
  const last = later.at(-1) ?? 100;
  const spread = later.length > 1 && last > 20 * later[Math.floor((later.length - 1) / 2)];
  const kind = wish === "auto" ? (spread ? "log" : "linear") : wish;
  return kind === "log" ? logarithmic(later[0] ?? 1, last, duration) : linear(last, duration);
}

function linear(last, duration) {
  const step = niceStep(last / 6);
  const ticks = [];
  for (let us = 0; us <= last * 1.001; us += step) ticks.push({ us, label: us ? duration(us) : "0" });
  return { kind: "linear", place: (us) => us / last, ticks };
}

const sexagesimal = [1, 2, 5, 10, 15, 30].flatMap((n) => [n * second, n * minute]).concat(hour).sort((a, b) => a - b);

function niceStep(least) {
  if (least > second && least <= hour) return sexagesimal.find((s) => s >= least);
  const decade = 10 ** Math.floor(Math.log10(least));
  return Math.max(1, [1, 2, 5, 10].map((n) => n * decade).find((s) => s >= least * 0.999));
}

const decades = [1, 10, 100, 1e3, 1e4, 1e5, second, 10 * second, minute, 10 * minute, hour, 10 * hour, 100 * hour];

/**
 * Returns the parts of the beginning that deserve a view of their own: whole decades, followed by later taps.
 * @param {number[]} moments in µs, from 0
 * @returns {{us: number, taps: number}[]} the end of the part, and its number of taps
 */
export function beginnings(moments) {
  return decades.map((us) => ({ us, taps: moments.filter((m) => m <= us).length }))
    .filter(({ taps }, i, all) => taps > 1 && taps < moments.length && taps !== all[i - 1]?.taps);
}

// logarithmic includes 0: the place is log(1 + us/unit), where unit is the decade of the first moment.
function logarithmic(first, last, duration) {
  const unit = decades.findLast((d) => d <= first) ?? 1;
  const most = Math.log1p(last / unit);
  return {
    kind: "log",
    place: (us) => Math.log1p(us / unit) / most,
    ticks: [{ us: 0, label: "0" }, ...decades.filter((d) => d >= unit && d <= last).map((us) => ({ us, label: duration(us) }))],
  };
}
