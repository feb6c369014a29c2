import { html } from "../assets/preact.js";
import { useLanguage } from "../assets/language.js";
import { useNow } from "../assets/ui.js";
import { ahead } from "../assets/zone.js";

const minute = 60_000;
const mostUnseen = 1000; // the service counts up to here
const steps = { 1: minute, 6: 15 * minute, 24: 60 * minute, 168: 360 * minute };

/** Returns the smallest and the largest value of a column as a text: "3", or "3 to 7" by from. */
export function range(points, column, from) {
  const values = points.map((p) => p[column]);
  const least = values.reduce((a, b) => Math.min(a, b)), most = values.reduce((a, b) => Math.max(a, b));
  return least === most ? String(least) : from(least, most);
}

/** The present supply. Only the supply's points count drivers over all regions, because a driver may work in several. */
export function Numbers({ board, region, last }) {
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

const Figure = ({ name, value, more }) => html`<div class="card"><dt>${name}</dt><dd>${value}${more && html` <small>${more}</small>`}</dd></div>`;

/** The chart's numbers. A row of more than a minute has the smallest and the largest values of its points. */
export function Table({ points, hours }) {
  const { t: { supply }, roughly, when } = useLanguage();
  const step = steps[hours];
  const rows = [];
  for (const p of points) {
    const t = Date.parse(p.at), by = ahead(t);
    const from = Math.floor((t + by) / step) * step - by;
    if (rows.at(-1)?.from !== from) rows.push({ from, points: [] });
    rows.at(-1).points.push(p);
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

/** The present supply of each region. */
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
