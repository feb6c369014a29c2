import { html, useState } from "../assets/preact.js";
import { get, list } from "../assets/api.js";
import { roughly, useLoaded, when, whenExactly } from "../assets/ui.js";
import { Unread, actorWord, eventWord, reasonWord } from "./dispatch_words.js";
import { useNames } from "./names.js";

const driverLink = (id, name) => (id ? html`<a href=${`#/drivers/${id}`}>${name(id)}</a>` : "–");
const idsOf = (items) => [...new Set(items.map((i) => i.driver_id).filter(Boolean))];

/** Reads a list up to a number that a button increases, and again when turn moves. */
function useMore(path, turn, by = 50) {
  const [most, setMost] = useState(by);
  const loaded = useLoaded((signal) => list(path, most, { signal }), [path, most, turn]);
  const items = loaded.data?.items ?? [];
  const more = loaded.data?.more && html`<p class="row more"><button onClick=${() => setMost(most + 2 * by)}>More</button>
    <span class="soft">These are the first ${items.length}.</span></p>`;
  return { ...loaded, items, more };
}

function Section({ id, title, data, error, empty, children, more }) {
  return html`<section class="card" aria-labelledby=${id}><h2 id=${id}>${title}</h2>
    <${Unread} error=${error} shown=${data} />
    ${empty ? html`<p class="soft">${empty}</p>` : html`<div class="scroll tall" tabindex="0" role="region" aria-label=${`Table: ${title}`}>${children}</div>`}
    ${more}</section>`;
}

/** The number of drivers at each stage, round by round. */
export function Funnel({ id, turn }) {
  const { data, error } = useLoaded((signal) => get(`/v1/admin/dispatches/${id}/notifications?limit=1`, { signal }), [id, turn]);
  const rounds = data?.funnel ?? [];
  const steps = [["told", "Told"], ["accepted_by_fcm", "Sent"], ["seen", "Seen"], ["tapped", "Tapped"], ["won", "Won"]];
  return html`<section class="card" aria-labelledby="funnel"><h2 id="funnel">How far it got</h2>
    <${Unread} error=${error} shown=${data} />
    ${data && rounds.length === 0 && html`<p class="soft">Nobody has been told yet.</p>`}
    ${rounds.length > 0 && html`<div class="scroll tall" tabindex="0" role="region" aria-label="How far it got, by round">
      <table class="funnel"><thead><tr><th scope="col">Round</th>${steps.map(([, title]) => html`<th scope="col" class="number">${title}</th>`)}</tr></thead>
      <tbody>${rounds.map((f) => html`<tr key=${f.round}><th scope="row">${f.round}</th>
        ${steps.map(([step]) => html`<td class="number"><${Step} n=${f[step]} of=${Math.max(...steps.map(([s]) => f[s] ?? 0))} /></td>`)}</tr>`)}
      </tbody></table></div>`}
  </section>`;
}

function Step({ n, of }) {
  if (n === null) return html`<span class="soft">not known any more</span>`;
  return html`<span>${n}</span><span class="bar-of"><span style=${{ width: `${of ? (100 * n) / of : 0}%` }}></span></span>`;
}

/** The notified drivers of a round, and their reactions. */
export function Told({ id, round, turn }) {
  const { data, items, error, more } = useMore(`/v1/admin/dispatches/${id}/offers?round=${round}`, turn);
  const name = useNames(idsOf(items));
  return html`<${Section} id="told" title="Who was told" data=${data} error=${error} more=${more}
      empty=${data && items.length === 0 && `Nobody was told of round ${round}.`}>
    <table><thead><tr><th scope="col">Driver</th><th scope="col">Stands</th><th scope="col">Told</th><th scope="col">Sent</th>
      <th scope="col">Seen</th><th scope="col">Declined</th><th scope="col">Tapped</th></tr></thead>
    <tbody>${items.map((o) => html`<tr key=${o.driver_id}><td>${driverLink(o.driver_id, name)}</td><td>${o.offer_status}</td>
      ${[o.told_at, o.sent_at, o.seen_at].map((at) => html`<td><${At} at=${at} /></td>`)}
      <td><${At} at=${o.declined_at} />${o.decline_reason && html` <span class="soft">${o.decline_reason}</span>`}</td>
      <td><${At} at=${o.tapped_at} /></td></tr>`)}</tbody></table>
  <//>`;
}

/** Shows the time of day, and the full time to the pointer: a dispatch's moments are close together. */
export const At = ({ at }) => html`<span title=${whenExactly(at)}>${at ? whenExactly(at).slice(11) : "–"}</span>`;

/** The events, the newest first. */
export function Trail({ id, turn, session }) {
  const { data, items, error, more } = useMore(`/v1/admin/dispatches/${id}/events`, turn, 200);
  const name = useNames(idsOf(items).concat(items.map((e) => e.actor).filter((a) => a.startsWith("drv_"))));
  return html`<${Section} id="trail" title="What happened" data=${data} error=${error} empty=${data && items.length === 0 && "Nothing."}
      more=${more && html`<div><p class="soft">The newest are not read yet.</p>${more}</div>`}>
    <table class="trail"><caption class="soft">The newest first</caption><thead><tr><th scope="col">When</th><th scope="col">What</th><th scope="col">Who</th></tr></thead>
    <tbody>${items.toReversed().map((e) => html`<tr key=${e.id}><td>${whenExactly(e.at)}</td>
      <td><strong>${eventWord(e)}</strong>${e.driver_id && e.driver_id !== e.actor && html` ${driverLink(e.driver_id, name)}`}
        <div class="soft">round ${e.round}${e.reason_code && html`, ${reasonWord(e.reason_code)}`}</div></td>
      <td title=${e.request_id ? `request ${e.request_id}` : undefined}>${actorWord(e.actor, session, name)}</td></tr>`)}</tbody></table>
  <//>`;
}

export function Pushes({ id, turn }) {
  const { data, items, error, more } = useMore(`/v1/admin/dispatches/${id}/notifications`, turn);
  const name = useNames(idsOf(items));
  return html`<${Section} id="pushes" title="The pushes" data=${data} error=${error} more=${more}
      empty=${data && items.length === 0 && "Nothing was pushed: no device to push to."}>
    <table><thead><tr><th scope="col">What</th><th scope="col">To</th><th scope="col">Status</th><th scope="col">Failed tries</th>
      <th scope="col">Result</th><th scope="col">Delay</th><th scope="col">Made</th><th scope="col">Round</th></tr></thead>
    <tbody>${items.map((n) => html`<tr key=${n.id}><td>${n.type.slice("dispatch.".length)}${n.silent && html` <span class="soft">silent</span>`}</td>
      <td>${n.topic ? `topic ${n.topic}` : driverLink(n.driver_id, name)}</td>
      <td class=${{ DEAD: "bad", SENT: "good" }[n.status] ?? ""}>${n.status}</td><td>${n.attempts}</td>
      <td>${n.result ?? "–"}${n.reason && html` <span class="soft">${n.reason}</span>`}</td>
      <td>${n.delay_ms === null ? "–" : roughly(n.delay_ms)}</td><td>${when(n.created_at)}</td><td>${n.round}</td></tr>`)}</tbody></table>
  <//>`;
}
