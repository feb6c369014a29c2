// The page of one dispatch.
import { html, useCallback, useEffect, useRef, useState } from "../assets/preact.js";
import { Unreachable, get, list } from "../assets/api.js";
import { useLanguage } from "../assets/language.js";
import { left, useLoaded, useNow } from "../assets/ui.js";
import { localInput } from "../assets/zone.js";
import { boardAddress } from "./board.js";
import { PageError, Trouble, useTitle } from "./dialogs.js";
import { actions } from "./dispatch_actions.js";
import { useChanges } from "./dispatch_change.js";
import { At, State, Unread, actorWord, came, eventWord, reasonWord } from "./dispatch_words.js";
import { useQuery } from "./kept.js";
import { shown, useNames } from "./names.js";
import { Race } from "./race.js";
import { LiveBadge, useLive } from "./reading.js";

/** @import { Said } from "./dispatch_change.js" */

/** The page of one dispatch: its terms, the notified drivers, the taps, the events, and the possible actions. @param {PageProps} props */
export function Dispatch({ id, session, may }) {
  const { t } = useLanguage();
  const [ended, setEnded] = useState(false);
  const { turn, stir, state } = useTurns(id, ended);
  const { data: dispatch, error } = useLoaded((signal) => get(`/v1/admin/dispatches/${encodeURIComponent(id)}`, { signal }), [id, turn]);
  useEffect(() => {
    if (dispatch) setEnded(["COMPLETED", "CANCELED", "EXPIRED"].includes(dispatch.status));
  }, [dispatch]);
  if (!dispatch && error?.status === 404) return html`<${Missing} id=${id} />`;
  if (!dispatch) return html`<h1>${t.dispatch.title}</h1><${Unread} error=${error} />${!error && html`<p role="status" class="soft">${t.reading}</p>`}`;
  return html`<${Shown} dispatch=${dispatch} error=${error} turn=${turn} stir=${stir} live=${state} session=${session} may=${may} />`;
}

const old = new PageError(({ t }) => t.dispatch.unreachable);

/** @param {{id: string}} props */
function Missing({ id }) {
  const { t } = useLanguage();
  return html`<div class="card missing stack"><h1>${t.dispatch.missing}</h1>
    <p>${t.dispatch.missingMore(html`<code>${id || t.dispatch.noId}</code>`)}</p>
    <p><a href=${boardAddress()}>${t.dispatch.toBoard}</a></p></div>`;
}

/**
 * @param {{dispatch: Schemas["Dispatch"], error: Failure|null, turn: number, stir: () => void, live: "live"|"cut", session: Schemas["Session"], may: May}} props
 */
function Shown({ dispatch, error, turn, stir, live, session, may }) {
  const { t } = useLanguage();
  const changes = useChanges(session, stir);
  const [said, setSaid] = useState(/** @type {Said|null} */ (null));
  useTitle(dispatch.site_address);
  const [query, change] = useQuery(["round"]); // #/dispatches/{id}?round=1
  const chosen = Array.from({ length: dispatch.round - 1 }, (_, i) => i + 1).find((r) => String(r) === query.round) ?? 0; // 0 is the current one
  const round = chosen || dispatch.round;
  const holder = round === dispatch.round ? dispatch.accepted_by : undefined;
  return html`<div class="dispatch">
    <p class="back"><a href=${boardAddress()}>${t.dispatch.toBoard}</a></p>
    <header class="row between">
      <div><h1><bdi>${shown(dispatch.site_address, dispatch.id)}</bdi></h1>
        <p class="row"><span role="status" aria-label=${t.dispatch.state}><${State} of=${dispatch.status} /></span>
          <span>${t.round(dispatch.round)}</span> <span class="soft">${t.dispatch.version(dispatch.version)}</span> <${LiveBadge} state=${live} /></p></div>
      ${may("dispatcher") && html`<${Actions} dispatch=${dispatch} session=${session} changes=${changes} stir=${stir} setSaid=${setSaid} />`}
    </header>
    <${Trouble} error=${error instanceof Unreachable ? old : error} />
    <${News} changes=${changes} said=${said} />
    <div class="columns">
      <div class="stack">
        <${Terms} dispatch=${dispatch} onDue=${stir} />
        <${Trail} id=${dispatch.id} turn=${turn} session=${session} />
      </div>
      <div class="stack">
        ${dispatch.round > 1 && html`<label class="row">${t.dispatch.round} <select value=${String(chosen)} onChange=${(e) => change({ round: e.target.value === "0" ? "" : e.target.value })}>
          <option value="0">${t.dispatch.roundNow(dispatch.round)}</option>
          ${Array.from({ length: dispatch.round - 1 }, (_, i) => dispatch.round - 1 - i).map((r) => html`<option key=${r} value=${String(r)}>${r}</option>`)}
        </select></label>`}
        <${Race} key=${`race ${round}`} id=${dispatch.id} round=${round} holder=${holder} turn=${turn} onMore=${stir} />
        <${Funnel} id=${dispatch.id} turn=${turn} />
        <${Told} key=${`told ${round}`} id=${dispatch.id} round=${round} turn=${turn} />
        <${Pushes} id=${dispatch.id} turn=${turn} />
      </div>
    </div>
  </div>`;
}

/** Shows the outcome of a change, also after its dialog was closed. @param {{changes: ReturnType<typeof useChanges>, said: Said|null}} props */
function News({ changes: { doubt, verdict }, said }) {
  const language = useLanguage();
  const { t } = language;
  const text = doubt ? t.dispatch.doubt : (verdict?.said ?? said)?.in(language);
  return html`<p role="status" aria-label=${t.dispatch.yourChange} class=${`news ${doubt ? "warn" : ""}`}>${text}</p>`;
}

/**
 * @param {{dispatch: Schemas["Dispatch"], session: Schemas["Session"], changes: ReturnType<typeof useChanges>, stir: () => void, setSaid: (said: Said|null) => void}} props
 */
function Actions({ dispatch, session, changes, stir, setSaid }) {
  const { t } = useLanguage();
  const [asking, ask] = useState(/** @type {typeof actions[number]|null} */ (null));
  /** @type {Ref<HTMLElement>} */
  const bar = useRef(null);
  const used = useRef(false);
  const possible = actions.filter((a) => a.states.includes(dispatch.status));
  const begin = (/** @type {typeof actions[number]} */ action) => {
    changes.clear();
    setSaid(null);
    ask(action);
  };
  const end = (/** @type {Said|null} */ said) => {
    ask(null);
    if (said) setSaid(said);
    stir();
  };
  // The button that opened the dialog may have disappeared with the state: the focus stays near it.
  useEffect(() => {
    if (asking) used.current = true;
    else if (used.current && document.activeElement === document.body) bar.current.focus();
  }, [asking, dispatch.status]);
  return html`<div class="row" role="group" aria-label=${t.dispatch.actions} tabindex="-1" ref=${bar}>
    ${possible.length === 0 && html`<span class="soft">${t.dispatch.nothingMore}</span>`}
    ${possible.map((a) => html`<button key=${a.name} class=${a.danger ? "danger" : ""} onClick=${() => begin(a)}>${t.dispatch.action[a.name]}</button>`)}
    ${asking && html`<${asking.dialog} dispatch=${dispatch} session=${session} changes=${changes} onRead=${stir} onClose=${end} />`}
  </div>`;
}

const gather = 250; // ms in which several events cause one reading
// No event announces a driver's view, a push, or a lost tap.
const every = 5_000, endedEvery = 30_000;

/**
 * Counts up when the shown data of a dispatch may have changed: after an event of it, after events may have been missed, and
 * every few seconds while the page is visible.
 * @param {string} id
 * @param {boolean} ended few changes are still to come
 * @returns {{turn: number, stir: () => void, state: "live"|"cut"}} stir causes another reading soon
 */
function useTurns(id, ended) {
  const [turn, setTurn] = useState(0);
  const timer = useRef(0);
  const stir = useCallback(() => {
    timer.current ||= setTimeout(() => {
      timer.current = 0;
      setTurn((n) => n + 1);
    }, gather);
  }, []);
  useEffect(() => () => clearTimeout(timer.current), []);
  useEffect(() => {
    const poll = setInterval(() => document.visibilityState === "visible" && stir(), ended ? endedEvery : every);
    return () => clearInterval(poll);
  }, [ended]);
  const state = useLive({ onEvent: (_, event) => event.dispatch_id === id && stir(), onResync: stir });
  return { turn, stir, state };
}

/** The terms, the time left, and the driver who has the dispatch. @param {{dispatch: Schemas["Dispatch"], onDue: () => void}} props */
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

/** Writes the day once if both times are on the same day. @param {string} from @param {string} to @param {Reader} reader */
function range(from, to, { t, when, clockShort }) {
  const sameDay = localInput(from).slice(0, 10) === localInput(to).slice(0, 10);
  return t.terms.range(when(from), sameDay ? clockShort(to) : when(to));
}

/** @param {{word: string, children?: unknown}} props */
const Row = ({ word, children }) => html`<dt>${word}</dt><dd>${children}</dd>`;

/**
 * Counts to the opening or the end, and calls onDue then: the state changes without an event.
 * @param {{dispatch: Schemas["Dispatch"], onDue: () => void}} props
 */
function Countdown({ dispatch: d, onDue }) {
  const { t: { terms }, roughly } = useLanguage();
  const now = useNow(1000);
  const to = d.status === "SCHEDULED" ? d.opens_at : d.status === "PENDING" ? d.expires_at : undefined;
  const rest = to ? Date.parse(to) - now : 0;
  const due = Boolean(to) && rest <= 0;
  useEffect(() => { if (due) onDue(); }, [due]);
  if (d.status === "EXPIRED") return html`<span class="soft">${terms.expiredAgo(roughly(now - Date.parse(d.expires_at)))}</span>`;
  if (!to) return html`<span class="soft">${terms.closed}</span>`;
  return html`<strong>${d.status === "SCHEDULED" ? terms.opensIn : terms.expiresIn} <span class="left">${left(rest)}</span></strong>`;
}

/** @param {string|null} id @param {(id: string) => string} name */
const driverLink = (id, name) => (id ? html`<a href=${`#/drivers/${id}`}>${name(id)}</a>` : "–");
/** @param {{driver_id?: string|null}[]} items @returns {string[]} */
const idsOf = (items) => [...new Set(items.flatMap((i) => i.driver_id || []))];

/**
 * Reads a list up to a number that a button increases, and again when turn moves.
 * @param {string} path @param {number} turn
 */
function useMore(path, turn, by = 50) {
  const { t } = useLanguage();
  const [most, setMost] = useState(by);
  const loaded = useLoaded((signal) => list(path, most, { signal }), [path, most, turn]);
  const items = loaded.data?.items ?? [];
  const more = loaded.data?.more && html`<p class="row more"><button onClick=${() => setMost(most + 2 * by)}>${t.lists.more}</button>
    <span class="soft">${t.lists.first(items.length)}</span></p>`;
  return { ...loaded, items, more };
}

/**
 * @param {{id: string, title: string, data: unknown, error: Failure|null, empty: string|false|undefined, children?: unknown, more: unknown}} props
 */
function Section({ id, title, data, error, empty, children, more }) {
  const { t } = useLanguage();
  return html`<section class="card" aria-labelledby=${id}><h2 id=${id}>${title}</h2>
    <${Unread} error=${error} shown=${data} />
    ${empty ? html`<p class="soft">${empty}</p>` : html`<div class="scroll tall" tabindex="0" role="region" aria-label=${t.lists.table(title)}>${children}</div>`}
    ${more}</section>`;
}

/** The number of drivers at each stage, round by round. @param {{id: string, turn: number}} props */
function Funnel({ id, turn }) {
  const { t } = useLanguage();
  const { data, error } = useLoaded((signal) => get(`/v1/admin/dispatches/${id}/notifications?limit=1`, { signal }), [id, turn]);
  /** @type {Schemas["Funnel"][]} */
  const rounds = data?.funnel ?? [];
  /** @type {["told"|"accepted_by_fcm"|"seen"|"tapped"|"won", string][]} */
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

/** @param {{n: number|null, of: number}} props */
function Step({ n, of }) {
  const { t } = useLanguage();
  if (n === null) return html`<span class="soft">${t.lists.notKnown}</span>`;
  return html`<span>${n}</span><span class="bar-of"><span style=${{ width: `${of ? (100 * n) / of : 0}%` }}></span></span>`;
}

/** The notified drivers of a round, and their reactions. @param {{id: string, round: number, turn: number}} props */
function Told({ id, round, turn }) {
  const { t } = useLanguage();
  const { data, items, error, more } = useMore(`/v1/admin/dispatches/${id}/offers?round=${round}`, turn);
  const name = useNames(idsOf(items));
  return html`<${Section} id="told" title=${t.lists.whoTold} data=${data} error=${error} more=${more}
      empty=${data && items.length === 0 && t.lists.nobodyTold(round)}>
    <table><thead><tr>${[t.lists.driver, t.lists.stands, t.lists.told, t.lists.sent, t.lists.seen, t.lists.declined,
      t.lists.tapped].map((title) => html`<th key=${title} scope="col">${title}</th>`)}</tr></thead>
    <tbody>${items.map((/** @type {Schemas["Offer"]} */ o) => html`<tr key=${o.driver_id}><td>${driverLink(o.driver_id, name)}</td><td>${t.offerStates[o.offer_status]}</td>
      ${[o.told_at, o.sent_at, o.seen_at].map((at) => html`<td><${At} at=${at} /></td>`)}
      <td><${At} at=${o.declined_at} />${o.decline_reason && html` <span class="soft">${reasonWord(o.decline_reason, t)}</span>`}</td>
      <td><${At} at=${o.tapped_at} /></td></tr>`)}</tbody></table>
  <//>`;
}

/** The events, the newest first. @param {{id: string, turn: number, session: Schemas["Session"]}} props */
function Trail({ id, turn, session }) {
  const { t, whenExactly } = useLanguage();
  const { data, items, error, more } = useMore(`/v1/admin/dispatches/${id}/events`, turn, 200);
  const name = useNames(idsOf(items).concat(items.map((e) => e.actor).filter((a) => a.startsWith("drv_"))));
  return html`<${Section} id="trail" title=${t.lists.trail} data=${data} error=${error} empty=${data && items.length === 0 && t.lists.nothing}
      more=${more && html`<div><p class="soft">${t.lists.newestUnread}</p>${more}</div>`}>
    <table class="trail"><caption class="soft">${t.lists.newestFirst}</caption><thead><tr><th scope="col">${t.lists.when}</th><th scope="col">${t.lists.what}</th><th scope="col">${t.lists.who}</th></tr></thead>
    <tbody>${items.toReversed().map((/** @type {Schemas["Event"]} */ e) => html`<tr key=${e.id}><td>${whenExactly(e.at)}</td>
      <td><strong>${eventWord(e, t)}</strong>${e.driver_id && e.driver_id !== e.actor && html` ${driverLink(e.driver_id, name)}`}
        <div class="soft">${t.round(e.round)}${e.reason_code && html`, ${reasonWord(e.reason_code, t)}`}</div></td>
      <td title=${e.request_id ? t.lists.request(e.request_id) : undefined}>${actorWord(e.actor, session, name, t)}</td></tr>`)}</tbody></table>
  <//>`;
}

/** @param {{id: string, turn: number}} props */
function Pushes({ id, turn }) {
  const { t, roughly, when } = useLanguage();
  const { data, items, error, more } = useMore(`/v1/admin/dispatches/${id}/notifications`, turn);
  const name = useNames(idsOf(items));
  return html`<${Section} id="pushes" title=${t.lists.pushes} data=${data} error=${error} more=${more}
      empty=${data && items.length === 0 && t.lists.noPush}>
    <table><thead><tr>${[t.lists.what, t.lists.to, t.lists.status, t.lists.failed, t.lists.result, t.lists.delay, t.lists.made,
      t.lists.round].map((title) => html`<th key=${title} scope="col">${title}</th>`)}</tr></thead>
    <tbody>${items.map((/** @type {Schemas["Notification"]} */ n) => html`<tr key=${n.id}><td>${t.pushTypes[n.type]}${n.silent && html` <span class="soft">${t.lists.silent}</span>`}</td>
      <td>${n.topic ? t.lists.topic(n.topic) : driverLink(n.driver_id, name)}</td>
      <td class=${n.status === "DEAD" ? "bad" : n.status === "SENT" ? "good" : ""}>${t.pushStates[n.status]}</td><td>${n.attempts}</td>
      <td>${came(n, t)}</td>
      <td>${n.delay_ms === null ? "–" : roughly(n.delay_ms)}</td><td>${when(n.created_at)}</td><td>${n.round}</td></tr>`)}</tbody></table>
  <//>`;
}
