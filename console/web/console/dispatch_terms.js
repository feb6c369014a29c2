import { html, useEffect } from "../assets/preact.js";
import { left, money, roughly, useNow, when, whenExactly } from "../assets/ui.js";
import { useNames } from "./names.js";

/** The terms, the time left, and the driver who has the dispatch. */
export function Terms({ dispatch: d, onDue }) {
  const name = useNames(d.accepted_by ? [d.accepted_by] : []);
  return html`<section class="card" aria-labelledby="terms"><h2 id="terms">The terms</h2>
    <dl class="terms">
      <${Row} word="Who has it">${d.accepted_by
        ? html`<a href=${`#/drivers/${d.accepted_by}`}>${name(d.accepted_by)}</a> since ${whenExactly(d.accepted_at)}`
        : "nobody"}<//>
      <${Row} word="Window">${range(d.opens_at, d.expires_at)}<br /><${Countdown} dispatch=${d} onDue=${onDue} /><//>
      <${Row} word="Work">${range(d.work_starts_at, d.work_ends_at)}<//>
      <${Row} word="Fee">${money(d.fee)}<//>
      <${Row} word="Vehicle">${d.vehicle_class}${d.min_working_height_m !== null && `, at least ${d.min_working_height_m} m`}<//>
      <${Row} word="Region">${d.region}<//>
      ${d.site_lat !== null && html`<${Row} word="Place">${d.site_lat}, ${d.site_lng}<//>`}
      ${d.note !== null && html`<${Row} word="Note"><span class="note">${d.note}</span><//>`}
      ${d.external_id !== null && html`<${Row} word="Your id">${d.external_id}<//>`}
      <${Row} word="Id"><code>${d.id}</code><//>
      <${Row} word="Made">${whenExactly(d.created_at)}<//>
      <${Row} word="Changed">${whenExactly(d.updated_at)}<//>
    </dl></section>`;
}

// range writes the day once if both times are on the same day.
function range(from, to) {
  const [a, b] = [when(from), when(to)];
  return `${a} to ${a.slice(0, 10) === b.slice(0, 10) ? b.slice(11) : b}`;
}

const Row = ({ word, children }) => html`<dt>${word}</dt><dd>${children}</dd>`;

// Countdown counts to the opening or the end, and calls onDue then: the state changes without an event.
function Countdown({ dispatch: d, onDue }) {
  const now = useNow(1000);
  const to = { SCHEDULED: d.opens_at, PENDING: d.expires_at }[d.status];
  const rest = to ? Date.parse(to) - now : 0;
  const due = Boolean(to) && rest <= 0;
  useEffect(() => { if (due) onDue(); }, [due]);
  if (d.status === "EXPIRED") return html`<span class="soft">expired ${roughly(now - Date.parse(d.expires_at))} ago</span>`;
  if (!to) return html`<span class="soft">closed</span>`;
  return html`<strong>${d.status === "SCHEDULED" ? "opens in" : "expires in"} <span class="left">${left(rest)}</span></strong>`;
}
