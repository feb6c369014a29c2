import { html, useState } from "../assets/preact.js";
import { get, list } from "../assets/api.js";
import { useLanguage } from "../assets/language.js";
import { useLoaded } from "../assets/ui.js";
import { came } from "./push_words.js";
import { Unread, actorWord, eventWord, reasonWord } from "./dispatch_words.js";
import { useNames } from "./names.js";

const driverLink = (id, name) => (id ? html`<a href=${`#/drivers/${id}`}>${name(id)}</a>` : "–");
const idsOf = (items) => [...new Set(items.map((i) => i.driver_id).filter(Boolean))];

/** Reads a list up to a number that a button increases, and again when turn moves. */
function useMore(path, turn, by = 50) {
  const { t } = useLanguage();
  const [most, setMost] = useState(by);
  const loaded = useLoaded((signal) => list(path, most, { signal }), [path, most, turn]);
  const items = loaded.data?.items ?? [];
  const more = loaded.data?.more && html`<p class="row more"><button onClick=${() => setMost(most + 2 * by)}>${t.lists.more}</button>
    <span class="soft">${t.lists.first(items.length)}</span></p>`;
  return { ...loaded, items, more };
}

function Section({ id, title, data, error, empty, children, more }) {
  const { t } = useLanguage();
  return html`<section class="card" aria-labelledby=${id}><h2 id=${id}>${title}</h2>
    <${Unread} error=${error} shown=${data} />
    ${empty ? html`<p class="soft">${empty}</p>` : html`<div class="scroll tall" tabindex="0" role="region" aria-label=${t.lists.table(title)}>${children}</div>`}
    ${more}</section>`;
}

/** The number of drivers at each stage, round by round. */
export function Funnel({ id, turn }) {
  const { t } = useLanguage();
  const { data, error } = useLoaded((signal) => get(`/v1/admin/dispatches/${id}/notifications?limit=1`, { signal }), [id, turn]);
  const rounds = data?.funnel ?? [];
  const steps = [["told", t.lists.told], ["accepted_by_fcm", t.lists.sent], ["seen", t.lists.seen], ["tapped", t.lists.tapped], ["won", t.lists.won]];
  return html`<section class="card" aria-labelledby="funnel"><h2 id="funnel">${t.lists.funnel}</h2>
    <${Unread} error=${error} shown=${data} />
    ${data && rounds.length === 0 && html`<p class="soft">${t.lists.nobodyYet}</p>`}
    ${rounds.length > 0 && html`<div class="scroll tall" tabindex="0" role="region" aria-label=${t.lists.funnelTable}>
      <table class="funnel"><thead><tr><th scope="col">${t.lists.round}</th>${steps.map(([, title]) => html`<th scope="col" class="number">${title}</th>`)}</tr></thead>
      <tbody>${rounds.map((f) => html`<tr key=${f.round}><th scope="row">${f.round}</th>
        ${steps.map(([step]) => html`<td class="number"><${Step} n=${f[step]} of=${Math.max(...steps.map(([s]) => f[s] ?? 0))} /></td>`)}</tr>`)}
      </tbody></table></div>`}
  </section>`;
}

function Step({ n, of }) {
  const { t } = useLanguage();
  if (n === null) return html`<span class="soft">${t.lists.notKnown}</span>`;
  return html`<span>${n}</span><span class="bar-of"><span style=${{ width: `${of ? (100 * n) / of : 0}%` }}></span></span>`;
}

/** The notified drivers of a round, and their reactions. */
export function Told({ id, round, turn }) {
  const { t } = useLanguage();
  const { data, items, error, more } = useMore(`/v1/admin/dispatches/${id}/offers?round=${round}`, turn);
  const name = useNames(idsOf(items));
  return html`<${Section} id="told" title=${t.lists.whoTold} data=${data} error=${error} more=${more}
      empty=${data && items.length === 0 && t.lists.nobodyTold(round)}>
    <table><thead><tr>${[t.lists.driver, t.lists.stands, t.lists.told, t.lists.sent, t.lists.seen, t.lists.declined,
      t.lists.tapped].map((title) => html`<th key=${title} scope="col">${title}</th>`)}</tr></thead>
    <tbody>${items.map((o) => html`<tr key=${o.driver_id}><td>${driverLink(o.driver_id, name)}</td><td>${t.offerStates[o.offer_status]}</td>
      ${[o.told_at, o.sent_at, o.seen_at].map((at) => html`<td><${At} at=${at} /></td>`)}
      <td><${At} at=${o.declined_at} />${o.decline_reason && html` <span class="soft">${reasonWord(o.decline_reason, t)}</span>`}</td>
      <td><${At} at=${o.tapped_at} /></td></tr>`)}</tbody></table>
  <//>`;
}

/** Shows the time of day, and the full time to the pointer: a dispatch's moments are close together. */
export function At({ at }) {
  const { clock, whenExactly } = useLanguage();
  return html`<span title=${whenExactly(at)}>${clock(at)}</span>`;
}

/** The events, the newest first. */
export function Trail({ id, turn, session }) {
  const { t, whenExactly } = useLanguage();
  const { data, items, error, more } = useMore(`/v1/admin/dispatches/${id}/events`, turn, 200);
  const name = useNames(idsOf(items).concat(items.map((e) => e.actor).filter((a) => a.startsWith("drv_"))));
  return html`<${Section} id="trail" title=${t.lists.trail} data=${data} error=${error} empty=${data && items.length === 0 && t.lists.nothing}
      more=${more && html`<div><p class="soft">${t.lists.newestUnread}</p>${more}</div>`}>
    <table class="trail"><caption class="soft">${t.lists.newestFirst}</caption><thead><tr><th scope="col">${t.lists.when}</th><th scope="col">${t.lists.what}</th><th scope="col">${t.lists.who}</th></tr></thead>
    <tbody>${items.toReversed().map((e) => html`<tr key=${e.id}><td>${whenExactly(e.at)}</td>
      <td><strong>${eventWord(e, t)}</strong>${e.driver_id && e.driver_id !== e.actor && html` ${driverLink(e.driver_id, name)}`}
        <div class="soft">${t.round(e.round)}${e.reason_code && html`, ${reasonWord(e.reason_code, t)}`}</div></td>
      <td title=${e.request_id ? t.lists.request(e.request_id) : undefined}>${actorWord(e.actor, session, name, t)}</td></tr>`)}</tbody></table>
  <//>`;
}

export function Pushes({ id, turn }) {
  const { t, roughly, when } = useLanguage();
  const { data, items, error, more } = useMore(`/v1/admin/dispatches/${id}/notifications`, turn);
  const name = useNames(idsOf(items));
  return html`<${Section} id="pushes" title=${t.lists.pushes} data=${data} error=${error} more=${more}
      empty=${data && items.length === 0 && t.lists.noPush}>
    <table><thead><tr>${[t.lists.what, t.lists.to, t.lists.status, t.lists.failed, t.lists.result, t.lists.delay, t.lists.made,
      t.lists.round].map((title) => html`<th key=${title} scope="col">${title}</th>`)}</tr></thead>
    <tbody>${items.map((n) => html`<tr key=${n.id}><td>${t.pushTypes[n.type]}${n.silent && html` <span class="soft">${t.lists.silent}</span>`}</td>
      <td>${n.topic ? t.lists.topic(n.topic) : driverLink(n.driver_id, name)}</td>
      <td class=${{ DEAD: "bad", SENT: "good" }[n.status] ?? ""}>${t.pushStates[n.status]}</td><td>${n.attempts}</td>
      <td>${came(n, t)}</td>
      <td>${n.delay_ms === null ? "–" : roughly(n.delay_ms)}</td><td>${when(n.created_at)}</td><td>${n.round}</td></tr>`)}</tbody></table>
  <//>`;
}
