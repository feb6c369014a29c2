import { html } from "../assets/preact.js";
import { get } from "../assets/api.js";
import { Trouble, useLoaded } from "../assets/ui.js";

const ms = (value) => (value === null ? "–" : `${Math.round(value).toLocaleString("en")} ms`);
const percentOfWon = (rate) => (rate === null ? "" : ` (${Math.round(rate * 100)} % of won)`);

/** A driver's tapping behavior, for human judgment. */
export function Signals({ path }) {
  const { data, error } = useLoaded((signal) => get(path + "/signals", { signal }), [path]);
  const facts = data && [
    ["Taps", data.taps], ["Won", data.wins], ["Given back", data.withdrawn + percentOfWon(data.withdraw_rate)],
    ["Fastest reaction", ms(data.fastest_reaction_ms)], ["Median reaction", ms(data.median_reaction_ms)], ["Under 300 ms", data.under_300_ms],
    ["Given back in 24 h", data.withdrawn_24h], ["Hopeless taps in 24 h", data.hopeless_taps_24h],
  ];
  return html`<section class="card"><h2>Signals</h2>
    <p class="soft">How this driver tapped in the last 30 days. A reaction is the time from the push, or the opening, to the tap; under
      300 ms is faster than people read, so many of those suggest a program. A hopeless tap could not win: the driver was not eligible
      or busy, or the round was another. This is shown and never acted on: nothing is decided by it.</p>
    <${Trouble} error=${error} reading />
    ${facts && html`<dl class="facts">${facts.map(([name, value]) => html`<div key=${name}><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>`}
  </section>`;
}
