import { html } from "../assets/preact.js";
import { roughly, useNow, when } from "../assets/ui.js";

const minute = 60_000;
const steps = { 1: minute, 6: 15 * minute, 24: 60 * minute, 168: 360 * minute };

/** Formats the smallest and the largest value of a column: "3", or "3 to 7". */
export function range(points, column) {
  const values = points.map((p) => p[column]);
  const least = values.reduce((a, b) => Math.min(a, b)), most = values.reduce((a, b) => Math.max(a, b));
  return least === most ? String(least) : `${least} to ${most}`;
}

/** The present supply. Only the supply's points count drivers over all regions, because a driver may work in several. */
export function Numbers({ board, region, last }) {
  const time = useNow(5000);
  if (!board) return null;
  const here = board.regions.find((r) => r.region === region);
  const onDuty = region ? here?.on_duty ?? 0 : last?.on_duty;
  const { counts } = board;
  return html`<dl class="figures">
    <${Figure} name="On duty" value=${onDuty ?? "–"} more=${!region && last && `${roughly(time - Date.parse(last.at))} ago`} />
    <${Figure} name="Open" value=${counts.PENDING} />
    <${Figure} name="Unseen" value=${board.unseen} more="for a minute" />
    <${Figure} name="Accepted" value=${counts.ACCEPTED} />
    <${Figure} name="In progress" value=${counts.IN_PROGRESS} />
    <${Figure} name="Completed" value=${counts.COMPLETED} more="in 24 h" />
    <${Figure} name="Expired" value=${counts.EXPIRED} more="in 24 h" />
    <${Figure} name="Canceled" value=${counts.CANCELED} more="in 24 h" />
  </dl>`;
}

const Figure = ({ name, value, more }) => html`<div class="card"><dt>${name}</dt><dd>${value}${more && html` <small>${more}</small>`}</dd></div>`;

/** The chart's numbers. A row of more than a minute has the smallest and the largest values of its points. */
export function Table({ points, hours }) {
  const step = steps[hours];
  const rows = [];
  for (const p of points) {
    const t = Date.parse(p.at), zone = new Date(t).getTimezoneOffset() * minute;
    const from = Math.floor((t - zone) / step) * step + zone;
    if (rows.at(-1)?.from !== from) rows.push({ from, points: [] });
    rows.at(-1).points.push(p);
  }
  return html`<details><summary>The same as a table</summary>
    <div class="scroll" tabindex="0" role="region" aria-label="Supply by time">
      <table class="dense" aria-label="Supply by time">
        <thead><tr><th scope="col">${step === minute ? "At" : `From, for ${roughly(step)}`}</th>
          <th scope="col" class="number">On duty</th><th scope="col" class="number">Open</th></tr></thead>
        <tbody>${rows.reverse().map((r) => html`<tr key=${r.from}><td>${when(new Date(r.from).toISOString())}</td>
          <td class="number">${range(r.points, "on_duty")}</td><td class="number">${range(r.points, "open")}</td></tr>`)}</tbody>
      </table>
    </div>
  </details>`;
}

/** The present supply of each region. */
export function Regions({ regions }) {
  if (regions.length === 0) return html`<p class="soft">Nobody is on duty and nothing is open, in any region.</p>`;
  return html`<section class="card stack" aria-label="Regions now">
    <h2>Regions now</h2>
    <div class="scroll" tabindex="0" role="region" aria-label="Regions now, table">
      <table class="dense" aria-label="Regions now">
        <thead><tr><th scope="col">Region</th><th scope="col" class="number">On duty</th><th scope="col" class="number">Open</th><th scope="col"><span class="hidden">What to note</span></th></tr></thead>
        <tbody>${regions.map((r) => html`<tr key=${r.region}><th scope="row">${r.region}</th>
          <td class="number">${r.on_duty}</td><td class="number">${r.open}</td>
          <td class="short">${r.open > r.on_duty && html`<span class="badge warn">short of drivers</span>`}</td></tr>`)}</tbody>
      </table>
    </div>
  </section>`;
}
