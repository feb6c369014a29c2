import { html } from "../assets/preact.js";
import { get } from "../assets/api.js";
import { useLanguage } from "../assets/language.js";
import { Trouble, useLoaded } from "../assets/ui.js";

/** A driver's tapping behavior, for human judgment. */
export function Signals({ path }) {
  const { t: { signals }, number, whenExactly } = useLanguage();
  const ms = (value) => (value === null ? "–" : signals.ms(number(Math.round(value))));
  const percentOfWon = (rate) => (rate === null ? "" : signals.ofWon(Math.round(rate * 100)));
  const { data, error } = useLoaded((signal) => get(path + "/signals", { signal }), [path]);
  const facts = data && [
    [signals.taps, data.taps], [signals.won, data.wins], [signals.back, data.withdrawn + percentOfWon(data.withdraw_rate)],
    [signals.fastest, ms(data.fastest_reaction_ms)], [signals.median, ms(data.median_reaction_ms)], [signals.under, data.under_300_ms],
    [signals.backDay, data.withdrawn_24h], [signals.hopeless, data.hopeless_taps_24h], [signals.since, whenExactly(data.taps_since)],
  ];
  return html`<section class="card"><h2>${signals.title}</h2>
    <p class="soft">${signals.more}</p>
    <${Trouble} error=${error} reading />
    ${facts && html`<dl class="facts">${facts.map(([name, value]) => html`<div key=${name}><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>`}
  </section>`;
}
