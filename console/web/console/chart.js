import { html, useEffect, useRef, useState } from "../assets/preact.js";
import { now } from "../assets/api.js";
import { Trouble, when } from "../assets/ui.js";

const height = 300;
const minute = 60_000;

let loading;

/** Loads the chart's library and its style once. No other page needs them. */
function load() {
  loading ??= Promise.all([import("../assets/uplot.js"), style("../assets/uplot.css")]).then(([module]) => module.default, () => {
    loading = undefined;
    throw new Error("The chart can't be loaded. The table has the same numbers; read the page again for the chart.");
  });
  return loading;
}

const style = (href) => new Promise((resolve, reject) => {
  const link = document.createElement("link");
  link.rel = "stylesheet";
  link.href = href;
  link.onload = resolve;
  link.onerror = () => { link.remove(); reject(); };
  document.head.append(link);
});

/** Returns the columns that uPlot draws. A minute without a count is a gap in the line. */
function columns(points) {
  const at = [], onDuty = [], open = [];
  let last = Infinity;
  for (const p of points) {
    const t = Date.parse(p.at);
    if (t - last > 1.5 * minute) {
      at.push((last + minute) / 1000);
      onDuty.push(null);
      open.push(null);
    }
    at.push(t / 1000);
    onDuty.push(p.on_duty);
    open.push(p.open);
    last = t;
  }
  return [at, onDuty, open];
}

const local = (seconds) => when(new Date(seconds * 1000).toISOString()); // "2026-11-22 14:03"

/** Labels a day's beginning with the day, and other times with the hour. */
function label(seconds) {
  const [date, clock] = local(seconds).split(" ");
  return clock === "00:00" ? date.slice(5) : clock;
}

function options(uPlot, place, hours) {
  const css = getComputedStyle(place);
  const color = (name) => css.getPropertyValue(name).trim();
  const axis = { stroke: color("--soft"), grid: { stroke: color("--line"), width: 1 }, ticks: { stroke: color("--line"), width: 1 }, font: `12px ${css.fontFamily}` };
  const line = (name, stroke, dash) => ({
    label: name, stroke, dash, width: 2, points: { show: false }, paths: uPlot.paths.stepped({ align: 1 }),
    value: (_, v) => v ?? "–",
  });
  return {
    width: place.clientWidth, height,
    scales: {
      x: { range: () => [now() / 1000 - hours * 3600, now() / 1000] },
      y: { range: (_, __, max) => [0, Math.max(4, Math.ceil((max ?? 0) * 1.1))] },
    },
    axes: [{ ...axis, values: (_, splits) => splits.map(label) }, { ...axis, incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000] }],
    series: [
      { label: "Time", value: (_, v) => (v === null ? "–" : local(v)) },
      line("On duty", color("--accent")), line("Open", color("--warn"), [6, 4]),
    ],
    cursor: { drag: { x: false, y: false } },
  };
}

/**
 * Draws supply points over time, as wide as the page allows.
 * @param {{points: any[], hours: number, says: string}} props says describes the chart for readers who don't see it
 */
export function Chart({ points, hours, says }) {
  const place = useRef(null);
  const plot = useRef(null);
  const [library, setLibrary] = useState(null);
  const [error, setError] = useState(null);
  const [dark, setDark] = useState(0); // changes with the colors

  useEffect(() => {
    let here = true;
    load().then((uPlot) => here && setLibrary(() => uPlot), (err) => here && setError(err));
    const scheme = matchMedia("(prefers-color-scheme: dark)");
    const changed = () => setDark((n) => n + 1);
    scheme.addEventListener("change", changed);
    return () => { here = false; scheme.removeEventListener("change", changed); };
  }, []);

  useEffect(() => {
    if (!library) return undefined;
    plot.current = new library(options(library, place.current, hours), columns(points), place.current);
    const resize = new ResizeObserver(([entry]) => plot.current.setSize({ width: entry.contentRect.width, height }));
    resize.observe(place.current);
    return () => {
      resize.disconnect();
      plot.current.destroy();
      plot.current = null;
    };
  }, [library, hours, dark]);

  useEffect(() => plot.current?.setData(columns(points)), [points]);

  return html`<${Trouble} error=${error} />
    ${!error && html`<figure ref=${place} class="chart" role="img" aria-label=${says}></figure>`}`;
}
