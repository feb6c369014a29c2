import { html, useRef, useState } from "../assets/preact.js";
import { get, now } from "../assets/api.js";
import { useLanguage } from "../assets/language.js";
import { Chart } from "./chart.js";
import { Export } from "./export.js";
import { Freshness, usePolled } from "./poll.js";
import { queryOf, useQuery } from "./query.js";
import { Numbers, Regions, range, Table } from "./supply_tables.js";

const ranges = [1, 6, 24, 168]; // hours
const lastDay = 24;
const hour = 3600_000;

/** Drivers on duty and open dispatches: now, and over time. The address stores the filters: #/supply?region=seoul&hours=6. */
export function Supply() {
  const { t } = useLanguage();
  const [query, change] = useQuery(["region", "hours"]);
  const { region } = query;
  const hours = ranges.find((n) => String(n) === query.hours) ?? lastDay;
  const [regions, setRegions] = useState([]);
  const board = usePolled(async (signal) => {
    const data = await get(`/v1/admin/board?${queryOf({ region })}`, { signal });
    learn(data.regions.map((r) => r.region));
    return { region, ...data };
  }, 5000, [region]);
  const learn = (names) => setRegions((known) => (names.every((n) => known.includes(n)) ? known : [...new Set([...known, ...names])].sort()));
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

/** Reads the whole time once, and then only the last hour. */
function usePoints(region, hours, onRegions) {
  const known = useRef({ points: [], at: 0 });
  return usePolled(async (signal) => {
    const { points, at } = known.current;
    const goesOn = now() - at < 0.9 * hour;
    const { items, server_time } = await get(`/v1/admin/supply?${queryOf({ region, hours: goesOn ? 1 : hours })}`, { signal, timeout: 30_000 });
    const fresh = items.filter((p) => p.region === (region || null));
    const since = new Date(Date.parse(server_time) - hours * hour).toISOString();
    const before = goesOn ? points.filter((p) => p.at >= since && !(p.at >= fresh[0]?.at)) : [];
    known.current = { points: [...before, ...fresh], at: now() };
    onRegions([...new Set(items.map((p) => p.region).filter(Boolean))]);
    return known.current.points;
  }, 15_000, []);
}

function History({ region, hours, board, onRegions }) {
  const { t: { supply }, when } = useLanguage();
  const read = usePoints(region, hours, onRegions);
  const points = read.data ?? [];
  const last = points.at(-1);
  const words = supply.ranges[hours];
  const between = (column) => range(points, column, supply.from);
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
