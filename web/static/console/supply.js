// Drivers on duty and open dispatches, over time.
import { html, useEffect, useRef, useState } from "../assets/preact.js";
import { get, now } from "../assets/api.js";
import { useLanguage } from "../assets/language.js";
import { useNow } from "../assets/ui.js";
import { ahead, zone } from "../assets/zone.js";
import { PageError, Trouble } from "./dialogs.js";
import { queryOf, useQuery } from "./kept.js";
import { Export, Freshness, usePolled } from "./reading.js";

/** @typedef {1|6|24|168} Hours */

/** @type {Hours[]} */
const ranges = [1, 6, 24, 168]; // hours
const lastDay = 24;
const hour = 3600_000;

/** Drivers on duty and open dispatches: now, and over time. The address stores the filters: #/supply?region=seoul&hours=6. */
export function Supply() {
  const { t } = useLanguage();
  const [query, change] = useQuery(["region", "hours"]);
  const { region } = query;
  const hours = ranges.find((n) => String(n) === query.hours) ?? lastDay;
  const [regions, setRegions] = useState(/** @type {string[]} */ ([]));
  const board = usePolled(async (signal) => {
    /** @type {Schemas["Board"]} */
    const data = await get(`/v1/admin/board?${queryOf({ region })}`, { signal });
    learn(data.regions.map((r) => r.region));
    return { region, ...data };
  }, 5000, [region]);
  const learn = (/** @type {string[]} */ names) => setRegions((known) => (names.every((n) => known.includes(n)) ? known : [...new Set([...known, ...names])].sort()));
  const options = region && !regions.includes(region) ? [...regions, region].sort() : regions;
  const current = board.data?.region === region ? board.data : null;
  return html`<div class="stack operations supply">
    <div class="row"><h1>${t.page.supply}</h1><${Freshness} of=${board} />
      <${Export} list="supply" query=${{ region, hours: String(hours) }} /></div>
    <div class="row">
      <label>${t.region} <select value=${region} onChange=${(e) => change({ region: e.target.value })}>
        <option value="">${t.supply.all}</option>${options.map((r) => html`<option key=${r} value=${r}>${r}</option>`)}</select></label>
      <label>${t.supply.time} <select value=${hours} onChange=${(e) => change({ hours: e.target.value === String(lastDay) ? "" : e.target.value })}>
        ${ranges.map((n) => html`<option key=${n} value=${n}>${t.supply.ranges[n]}</option>`)}</select></label>
    </div>
    <${History} key=${`${hours} ${region}`} region=${region} hours=${hours} board=${current} onRegions=${learn} />
    ${current && !region && html`<${Regions} regions=${current.regions} />`}
  </div>`;
}

/**
 * Reads the whole time once, and then only the last hour.
 * @param {string} region @param {number} hours @param {(regions: string[]) => void} onRegions
 */
function usePoints(region, hours, onRegions) {
  const known = useRef(/** @type {{points: Schemas["SupplyPoint"][], at: number}} */ ({ points: [], at: 0 }));
  return usePolled(async (signal) => {
    const { points, at } = known.current;
    const goesOn = now() - at < 0.9 * hour;
    /** @type {Schemas["SupplyPointPage"]} */
    const { items, server_time } = await get(`/v1/admin/supply?${queryOf({ region, hours: String(goesOn ? 1 : hours) })}`, { signal, timeout: 30_000 });
    const fresh = items.filter((p) => p.region === (region || null));
    const since = new Date(Date.parse(server_time) - hours * hour).toISOString();
    const before = goesOn ? points.filter((p) => p.at >= since && !(p.at >= fresh[0]?.at)) : [];
    known.current = { points: [...before, ...fresh], at: now() };
    onRegions([...new Set(items.flatMap((p) => p.region || []))]);
    return known.current.points;
  }, 15_000, []);
}

/** @param {{region: string, hours: Hours, board: Schemas["Board"]|null, onRegions: (regions: string[]) => void}} props */
function History({ region, hours, board, onRegions }) {
  const { t: { supply }, when } = useLanguage();
  const read = usePoints(region, hours, onRegions);
  const points = read.data ?? [];
  const last = points.at(-1);
  const words = supply.ranges[hours];
  const between = (/** @type {"on_duty"|"open"} */ column) => range(points, column, supply.from);
  const says = last && supply.says(region || supply.allRegions, words, between("on_duty"), last.on_duty, between("open"), last.open, when(last.at));
  return html`
    <${Numbers} board=${board} region=${region} last=${last} />
    <section class="card stack" aria-label=${supply.overTime}>
      <div class="row"><h2>${supply.last(words)}</h2><${Freshness} of=${read} /></div>
      ${read.data && !last && html`<p role="status">${supply.noPoints}</p>`}
      ${last && html`<p class="soft">${says}</p>
        <${Chart} points=${points} hours=${hours} says=${says} />
        <${Table} points=${points} hours=${hours} />`}
    </section>`;
}

const height = 300;
const minute = 60_000;

/** @type {Promise<typeof import("../assets/uplot.js").default>|undefined} */
let loading;

/** Loads the chart's library and its style once. No other page needs them. */
function load() {
  loading ??= Promise.all([import("../assets/uplot.js"), style("../assets/uplot.css")]).then(([module]) => module.default, () => {
    loading = undefined;
    throw new PageError(({ t }) => t.supply.chartFailed);
  });
  return loading;
}

/** @param {string} href @returns {Promise<unknown>} */
const style = (href) => new Promise((resolve, reject) => {
  const link = document.createElement("link");
  link.rel = "stylesheet";
  link.href = href;
  link.onload = resolve;
  link.onerror = () => { link.remove(); reject(); };
  document.head.append(link);
});

/**
 * Returns the columns that uPlot draws. A minute without a count is a gap in the line.
 * @param {Schemas["SupplyPoint"][]} points @returns {import("../assets/uplot.js").AlignedData}
 */
function columns(points) {
  /** @type {number[]} */
  const at = [];
  /** @type {(number|null)[]} */
  const onDuty = [], open = [];
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

/** Labels a day's beginning with the day, and other times with the hour. @param {number} seconds @param {Reader} reader */
function label(seconds, { date, clockShort }) {
  const at = new Date(seconds * 1000);
  return (at.getTime() + ahead(at.getTime())) % 86_400_000 < minute ? date(at.getTime()) : clockShort(at.getTime());
}

/**
 * @param {typeof import("../assets/uplot.js").default} uPlot
 * @param {HTMLElement} place
 * @param {number} hours
 * @param {Reader} language
 * @returns {import("../assets/uplot.js").Options}
 */
function options(uPlot, place, hours, language) {
  const { t, when } = language;
  const css = getComputedStyle(place), sites = zone();
  const color = (/** @type {string} */ name) => css.getPropertyValue(name).trim();
  const axis = { stroke: color("--soft"), grid: { stroke: color("--line"), width: 1 }, ticks: { stroke: color("--line"), width: 1 }, font: `12px ${css.fontFamily}` };
  /** @param {string} name @param {string} stroke @param {number[]} [dash] @returns {import("../assets/uplot.js").Series} */
  const line = (name, stroke, dash) => ({
    label: name, stroke, dash, width: 2, points: { show: false }, paths: uPlot.paths.stepped?.({ align: 1 }),
    value: (_, v) => v ?? "–",
  });
  return {
    width: place.clientWidth, height,
    tzDate: (seconds) => (sites ? uPlot.tzDate(new Date(seconds * 1000), sites) : new Date(seconds * 1000)),
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
 * @param {{points: Schemas["SupplyPoint"][], hours: number, says: string}} props says describes the chart for readers who don't see it
 */
function Chart({ points, hours, says }) {
  const language = useLanguage();
  /** @type {Ref<HTMLElement>} */
  const place = useRef(null);
  const plot = useRef(/** @type {import("../assets/uplot.js").default|null} */ (null));
  const [library, setLibrary] = useState(/** @type {typeof import("../assets/uplot.js").default|null} */ (null));
  const [error, setError] = useState(/** @type {Failure|null} */ (null));
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
    const drawn = plot.current = new library(options(library, place.current, hours, language), columns(points), place.current);
    const resize = new ResizeObserver(([entry]) => drawn.setSize({ width: entry.contentRect.width, height }));
    resize.observe(place.current);
    return () => {
      resize.disconnect();
      drawn.destroy();
      plot.current = null;
    };
  }, [library, hours, dark, language]);

  useEffect(() => plot.current?.setData(columns(points)), [points]);

  return html`<${Trouble} error=${error} />
    ${!error && html`<figure ref=${place} class="chart" role="img" aria-label=${says}></figure>`}`;
}

const mostUnseen = 1000; // the service counts up to here
const steps = { 1: minute, 6: 15 * minute, 24: 60 * minute, 168: 360 * minute };

/**
 * Returns the smallest and the largest value of a column as a text: "3", or "3 to 7" by from.
 * @param {Schemas["SupplyPoint"][]} points @param {"on_duty"|"open"} column @param {(least: number, most: number) => string} from
 */
export function range(points, column, from) {
  const values = points.map((p) => p[column]);
  const least = values.reduce((a, b) => Math.min(a, b)), most = values.reduce((a, b) => Math.max(a, b));
  return least === most ? String(least) : from(least, most);
}

/**
 * The present supply. Only the supply's points count drivers over all regions, because a driver may work in several.
 * @param {{board: Schemas["Board"]|null, region: string, last?: Schemas["SupplyPoint"]}} props
 */
function Numbers({ board, region, last }) {
  const { t, roughly } = useLanguage();
  const { supply } = t;
  const time = useNow(5000);
  if (!board) return null;
  const here = board.regions.find((r) => r.region === region);
  const onDuty = region ? here?.on_duty ?? 0 : last?.on_duty;
  const { counts } = board;
  return html`<dl class="figures">
    <${Figure} name=${supply.onDuty} value=${onDuty ?? "–"} more=${!region && last && t.ago(roughly(time - Date.parse(last.at)))} />
    <${Figure} name=${supply.open} value=${counts.PENDING} />
    <${Figure} name=${supply.unseen} value=${board.unseen < mostUnseen ? board.unseen : `${mostUnseen}+`} more=${supply.minute} />
    <${Figure} name=${supply.accepted} value=${counts.ACCEPTED} />
    <${Figure} name=${supply.progress} value=${counts.IN_PROGRESS} />
    <${Figure} name=${supply.completed} value=${counts.COMPLETED} more=${supply.day} />
    <${Figure} name=${supply.expired} value=${counts.EXPIRED} more=${supply.day} />
    <${Figure} name=${supply.canceled} value=${counts.CANCELED} more=${supply.day} />
  </dl>`;
}

/** @param {{name: string, value: number|string, more?: unknown}} props */
const Figure = ({ name, value, more }) => html`<div class="card"><dt>${name}</dt><dd>${value}${more && html` <small>${more}</small>`}</dd></div>`;

/**
 * The chart's numbers. A row of more than a minute has the smallest and the largest values of its points.
 * @param {{points: Schemas["SupplyPoint"][], hours: Hours}} props
 */
function Table({ points, hours }) {
  const { t: { supply }, roughly, when } = useLanguage();
  const step = steps[hours];
  /** @type {{from: number, points: Schemas["SupplyPoint"][]}[]} */
  const rows = [];
  for (const p of points) {
    const t = Date.parse(p.at), by = ahead(t);
    const from = Math.floor((t + by) / step) * step - by;
    if (rows.at(-1)?.from !== from) rows.push({ from, points: [] });
    rows[rows.length - 1].points.push(p);
  }
  return html`<details><summary>${supply.table}</summary>
    <div class="scroll" tabindex="0" role="region" aria-label=${supply.byTime}>
      <table class="dense" aria-label=${supply.byTime}>
        <thead><tr><th scope="col">${step === minute ? supply.at : supply.step(roughly(step))}</th>
          <th scope="col" class="number">${supply.onDuty}</th><th scope="col" class="number">${supply.open}</th></tr></thead>
        <tbody>${rows.reverse().map((r) => html`<tr key=${r.from}><td>${when(new Date(r.from).toISOString())}</td>
          <td class="number">${range(r.points, "on_duty", supply.from)}</td><td class="number">${range(r.points, "open", supply.from)}</td></tr>`)}</tbody>
      </table>
    </div>
  </details>`;
}

/** The present supply of each region. @param {{regions: Schemas["Board"]["regions"]}} props */
export function Regions({ regions }) {
  const { t: { region, supply } } = useLanguage();
  if (regions.length === 0) return html`<p class="soft">${supply.nobody}</p>`;
  return html`<section class="card stack" aria-label=${supply.regions}>
    <h2>${supply.regions}</h2>
    <div class="scroll" tabindex="0" role="region" aria-label=${supply.regionsTable}>
      <table class="dense" aria-label=${supply.regions}>
        <thead><tr><th scope="col">${region}</th><th scope="col" class="number">${supply.onDuty}</th><th scope="col" class="number">${supply.open}</th>
          <th scope="col"><span class="hidden">${supply.note}</span></th></tr></thead>
        <tbody>${regions.map((r) => html`<tr key=${r.region}><th scope="row">${r.region}</th>
          <td class="number">${r.on_duty}</td><td class="number">${r.open}</td>
          <td class="short">${r.open > r.on_duty && html`<span class="badge warn">${supply.short}</span>`}</td></tr>`)}</tbody>
      </table>
    </div>
  </section>`;
}
