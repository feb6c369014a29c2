import { html, useEffect, useRef, useState } from "../assets/preact.js";
import { now } from "../assets/api.js";
import { useLanguage } from "../assets/language.js";
import { PageError } from "../assets/problems.js";
import { Trouble } from "../assets/ui.js";
import { ahead, zone } from "../assets/zone.js";

const height = 300;
const minute = 60_000;

let loading;

/** Loads the chart's library and its style once. No other page needs them. */
function load() {
  loading ??= Promise.all([import("../assets/uplot.js"), style("../assets/uplot.css")]).then(([module]) => module.default, () => {
    loading = undefined;
    throw new PageError(({ t }) => t.supply.chartFailed);
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

/** Labels a day's beginning with the day, and other times with the hour. */
function label(seconds, { date, clockShort }) {
  const at = new Date(seconds * 1000);
  return (at.getTime() + ahead(at.getTime())) % 86_400_000 < minute ? date(at) : clockShort(at);
}

function options(uPlot, place, hours, language) {
  const { t, when } = language;
  const css = getComputedStyle(place);
  const color = (name) => css.getPropertyValue(name).trim();
  const axis = { stroke: color("--soft"), grid: { stroke: color("--line"), width: 1 }, ticks: { stroke: color("--line"), width: 1 }, font: `12px ${css.fontFamily}` };
  const line = (name, stroke, dash) => ({
    label: name, stroke, dash, width: 2, points: { show: false }, paths: uPlot.paths.stepped({ align: 1 }),
    value: (_, v) => v ?? "–",
  });
  return {
    width: place.clientWidth, height,
    tzDate: (seconds) => (zone() ? uPlot.tzDate(new Date(seconds * 1000), zone()) : new Date(seconds * 1000)),
    scales: {
      x: { range: () => [now() / 1000 - hours * 3600, now() / 1000] },
      y: { range: (_, __, max) => [0, Math.max(4, Math.ceil((max ?? 0) * 1.1))] },
    },
    axes: [{ ...axis, values: (_, splits) => splits.map((s) => label(s, language)) }, { ...axis, incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000] }],
    series: [
      { label: t.supply.clock, value: (_, v) => (v === null ? "–" : when(v * 1000)) },
      line(t.supply.onDuty, color("--accent")), line(t.supply.open, color("--warn"), [6, 4]),
    ],
    cursor: { drag: { x: false, y: false } },
  };
}

/**
 * Draws supply points over time, as wide as the page allows.
 * @param {{points: any[], hours: number, says: string}} props says describes the chart for readers who don't see it
 */
export function Chart({ points, hours, says }) {
  const language = useLanguage();
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
    plot.current = new library(options(library, place.current, hours, language), columns(points), place.current);
    const resize = new ResizeObserver(([entry]) => plot.current.setSize({ width: entry.contentRect.width, height }));
    resize.observe(place.current);
    return () => {
      resize.disconnect();
      plot.current.destroy();
      plot.current = null;
    };
  }, [library, hours, dark, language]);

  useEffect(() => plot.current?.setData(columns(points)), [points]);

  return html`<${Trouble} error=${error} />
    ${!error && html`<figure ref=${place} class="chart" role="img" aria-label=${says}></figure>`}`;
}
