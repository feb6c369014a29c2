import { html, useEffect } from "../assets/preact.js";
import { useLanguage } from "../assets/language.js";
import { left, useNow } from "../assets/ui.js";
import { localInput } from "../assets/zone.js";
import { useNames } from "./names.js";

/** The terms, the time left, and the driver who has the dispatch. */
export function Terms({ dispatch: d, onDue }) {
  const language = useLanguage();
  const { t: { terms }, money, whenExactly } = language;
  const name = useNames(d.accepted_by ? [d.accepted_by] : []);
  return html`<section class="card" aria-labelledby="terms"><h2 id="terms">${terms.title}</h2>
    <dl class="terms">
      <${Row} word=${terms.holder}>${d.accepted_by
        ? html`<a href=${`#/drivers/${d.accepted_by}`}>${name(d.accepted_by)}</a>${terms.since(whenExactly(d.accepted_at))}`
        : terms.nobody}<//>
      <${Row} word=${terms.window}>${range(d.opens_at, d.expires_at, language)}<br /><${Countdown} dispatch=${d} onDue=${onDue} /><//>
      <${Row} word=${terms.work}>${range(d.work_starts_at, d.work_ends_at, language)}<//>
      <${Row} word=${terms.fee}>${money(d.fee)}<//>
      <${Row} word=${terms.vehicle}>${d.vehicle_class}${d.min_working_height_m !== null && terms.atLeast(d.min_working_height_m)}<//>
      <${Row} word=${terms.region}>${d.region}<//>
      ${d.site_lat !== null && html`<${Row} word=${terms.place}>${d.site_lat}, ${d.site_lng}<//>`}
      ${d.note !== null && html`<${Row} word=${terms.note}><span class="note">${d.note}</span><//>`}
      ${d.external_id !== null && html`<${Row} word=${terms.yourId}>${d.external_id}<//>`}
      <${Row} word=${terms.id}><code>${d.id}</code><//>
      <${Row} word=${terms.made}>${whenExactly(d.created_at)}<//>
      <${Row} word=${terms.changed}>${whenExactly(d.updated_at)}<//>
    </dl></section>`;
}

// range writes the day once if both times are on the same day.
function range(from, to, { t, when, clockShort }) {
  const sameDay = localInput(from).slice(0, 10) === localInput(to).slice(0, 10);
  return t.terms.range(when(from), sameDay ? clockShort(to) : when(to));
}

const Row = ({ word, children }) => html`<dt>${word}</dt><dd>${children}</dd>`;

// Countdown counts to the opening or the end, and calls onDue then: the state changes without an event.
function Countdown({ dispatch: d, onDue }) {
  const { t: { terms }, roughly } = useLanguage();
  const now = useNow(1000);
  const to = { SCHEDULED: d.opens_at, PENDING: d.expires_at }[d.status];
  const rest = to ? Date.parse(to) - now : 0;
  const due = Boolean(to) && rest <= 0;
  useEffect(() => { if (due) onDue(); }, [due]);
  if (d.status === "EXPIRED") return html`<span class="soft">${terms.expiredAgo(roughly(now - Date.parse(d.expires_at)))}</span>`;
  if (!to) return html`<span class="soft">${terms.closed}</span>`;
  return html`<strong>${d.status === "SCHEDULED" ? terms.opensIn : terms.expiresIn} <span class="left">${left(rest)}</span></strong>`;
}
