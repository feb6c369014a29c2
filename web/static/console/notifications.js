// The pushes to drivers, and how dead ones are sent again.
import { html, useEffect, useRef, useState } from "../assets/preact.js";
import { Problem, list, now, send } from "../assets/api.js";
import { useLanguage } from "../assets/language.js";
import { useNow } from "../assets/ui.js";
import { Ask, explain } from "./dialogs.js";
import { came } from "./dispatch_words.js";
import { useNames } from "./names.js";
import { Export, Freshness, usePolled } from "./reading.js";

/** @typedef {Schemas["NotificationStatus"]} Status */
/** @typedef {{items: Schemas["Notification"][], more: boolean}} Listed */

/** @type {Status[]} */
const states = ["PENDING", "DEAD", "DROPPED", "SENT"];
/** @type {Status[]} */
const attention = ["PENDING", "DEAD"]; // both are counted, whichever is shown
const pageSize = 100;
const most = 1000;

/** Returns the state that an address names at its end: #/notifications/DEAD. @param {string} address */
const stateIn = (address) => states.find((s) => address.endsWith(`/${s}`)) ?? "PENDING";

/** @param {Status} status @param {number} n @param {AbortSignal} signal @returns {Promise<Listed>} */
const listOf = (status, n, signal) => list(`/v1/admin/notifications?status=${status}`, n, { signal });

/** @param {Listed} list */
const counted = ({ items, more }) => `${items.length}${more ? "+" : ""}`;

/** The pushes to drivers: pending, dead, dropped and sent. @param {PageProps} props */
export function Notifications({ id, may }) {
  const { t } = useLanguage();
  const [status, setStatus] = useState(() => stateIn(`/${id}`));
  const [shown, setShown] = useState(pageSize);
  const polled = usePolled(async (signal) => {
    const wanted = [...new Set([status, ...attention])];
    const read = await Promise.all(wanted.map((s) => listOf(s, s === status ? shown : pageSize, signal)));
    return { status, lists: Object.fromEntries(wanted.map((s, i) => [s, read[i]])) };
  }, shown > pageSize ? 15_000 : 5000, [status, shown]);
  const show = (/** @type {Status} */ s) => {
    setStatus(s);
    setShown(pageSize);
  };
  const choose = (/** @type {Status} */ s) => {
    history.replaceState(null, "", `#/notifications/${s}`);
    show(s);
  };
  useEffect(() => { // choose changes the address unnoticed, so a link to the page's first address is a change for this page only
    const changed = () => location.hash.startsWith("#/notifications") && show(stateIn(location.hash));
    addEventListener("hashchange", changed);
    return () => removeEventListener("hashchange", changed);
  }, []);
  /** @type {Partial<Record<Status, Listed>>} */
  const lists = polled.data?.lists ?? {};
  return html`<div class="stack operations">
    <div class="row"><h1>${t.page.notifications}</h1><${Freshness} of=${polled} />
      <${Export} list="notifications" query=${{ status }} /></div>
    <${Tabs} status=${status} lists=${lists} onChoose=${choose} />
    <div role="tabpanel" id="pushes" aria-labelledby=${"tab-" + status} class="stack">
      ${lists[status] && html`<${Pushes} key=${status} state=${status} found=${lists[status]}
        may=${may} reload=${polled.reload} />`}
      ${lists[status]?.more && (shown < most
        ? html`<div><button onClick=${() => setShown(shown + pageSize)}>${t.pushes.showMore(pageSize)}</button></div>`
        : html`<p class="soft">${t.pushes.newest(most)}</p>`)}
    </div>
  </div>`;
}

/** @param {{status: Status, lists: Partial<Record<Status, Listed>>, onChoose: (status: Status) => void}} props */
function Tabs({ status, lists, onChoose }) {
  const { t } = useLanguage();
  /** @type {Ref<HTMLElement>} */
  const row = useRef(null);
  const onKeyDown = (/** @type {KeyboardEvent} */ e) => {
    const at = states.indexOf(status);
    /** @type {Record<string, number|undefined>} */
    const keys = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: states.length - 1 };
    const to = keys[e.key];
    if (to === undefined) return;
    e.preventDefault();
    const next = (to + states.length) % states.length;
    onChoose(states[next]);
    /** @type {HTMLElement} */ (row.current.children[next]).focus();
  };
  return html`<div role="tablist" aria-label=${t.pushes.byState} class="tabs" ref=${row} onKeyDown=${onKeyDown}>
    ${states.map((s) => html`<button key=${s} role="tab" id=${"tab-" + s} aria-controls="pushes"
      aria-selected=${String(s === status)} tabindex=${s === status ? 0 : -1} onClick=${() => onChoose(s)}>
      ${t.pushes.tabs[s]}${lists[s] && html` <span class=${"count" + (s === "DEAD" && lists[s].items.length > 0 ? " bad" : "")}>${counted(lists[s])}</span>`}
    </button>`)}
  </div>`;
}

/** Reports whether a push may still be sent again: the service refuses expired pushes. @param {Schemas["Notification"]} n */
const useful = (n) => Date.parse(n.expires_at) > now();

/** @param {{state: Status, found: Listed, may: May, reload: () => void}} props */
function Pushes({ state, found, may, reload }) {
  const { t, roughly, whenExactly } = useLanguage();
  const { pushes } = t;
  const time = useNow();
  const names = useNames([...new Set(found.items.flatMap((n) => n.driver_id || []))]);
  const [asked, setAsked] = useState(/** @type {Schemas["Notification"][]|null} */ (null));
  const [outcome, setOutcome] = useState(/** @type {Tried|null} */ (null));
  const dead = state === "DEAD";
  const again = dead && may("dispatcher") ? found.items.filter(useful) : [];
  const closed = (/** @type {Tried|null} */ result) => {
    setAsked(null);
    if (result) setOutcome(result);
    if (result) reload();
  };
  return html`
    <${Outcome} outcome=${outcome} />
    ${again.length > 1 && html`<div><button onClick=${() => setAsked(again)}>${pushes.sendAll(again.length)}</button></div>`}
    ${asked && html`<${Redrive} items=${asked} onClose=${closed} />`}
    ${found.items.length === 0 ? html`<p class="soft">${pushes.empty[state]}</p>` : html`
    <div class="scroll card flush" tabindex="0" role="region" aria-label=${pushes.table(pushes.tabs[state])}>
      <table class="dense">
        <thead><tr><th scope="col">${pushes.what}</th><th scope="col">${pushes.dispatch}</th><th scope="col">${pushes.to}</th>
          <th scope="col" class="number">${pushes.attempts}</th><th scope="col">${pushes.came}</th><th scope="col" class="number">${pushes.age}</th>
          <th scope="col">${pushes.last[state]}</th>
          ${dead && may("dispatcher") && html`<th scope="col"><span class="hidden">${pushes.again}</span></th>`}</tr></thead>
        <tbody>${found.items.map((n) => html`<tr key=${n.id}>
          <td>${t.pushTypes[n.type]}${n.silent && html` <span class="soft" title=${pushes.silentMore}>${t.lists.silent}</span>`}</td>
          <td class="short"><a href=${"#/dispatches/" + n.dispatch_id} title=${n.dispatch_id}><bdi>…${n.dispatch_id.slice(-8)}</bdi></a> <span class="soft">${t.round(n.round)}</span></td>
          <td class="short">${n.driver_id ? html`<span title=${n.driver_id}>${names(n.driver_id)}</span>` : html`<span class="soft">${pushes.topic}</span> ${n.topic}`}</td>
          <td class="number">${n.attempts}</td>
          <td>${came(n, t)}</td>
          <td class="number" title=${whenExactly(n.created_at)}>${roughly(time - Date.parse(n.created_at))}</td>
          <${Last} n=${n} time=${time} />
          ${dead && may("dispatcher") && html`<td class="act">${useful(n) && html`<button aria-label=${pushes.againTo(t.pushTypes[n.type], n.driver_id ? names(n.driver_id) : n.topic)}
            onClick=${() => setAsked([n])}>${pushes.again}</button>`}</td>`}
        </tr>`)}</tbody>
      </table>
    </div>`}`;
}

/** The column that differs from state to state. @param {{n: Schemas["Notification"], time: number}} props */
function Last({ n, time }) {
  const { t: { pushes }, roughly, whenExactly } = useLanguage();
  if (n.status === "PENDING") {
    const wait = n.next_at ? Date.parse(n.next_at) - time : 0;
    return html`<td class="short" title=${whenExactly(n.next_at)}>${wait > 0 ? pushes.inTime(roughly(wait)) : pushes.due}</td>`;
  }
  if (n.status === "SENT") {
    return html`<td class="short" title=${whenExactly(n.sent_at)}>${n.delay_ms === null ? "–" : pushes.after(roughly(n.delay_ms))}</td>`;
  }
  const still = Date.parse(n.expires_at) - time;
  return html`<td class="short" title=${whenExactly(n.expires_at)}>${still > 0 ? pushes.still(roughly(still)) : html`<span class="soft">${pushes.noMore}</span>`}</td>`;
}

const atOnce = 4;

/** Reports whether a refusal is about one push, and not about all of them. @param {unknown} err */
const ofOne = (err) => err instanceof Problem && err.status !== 401 && err.status !== 403;

/** @typedef {{sent: number, of: number, failed: {item: Schemas["Notification"], error: Failure}[]}} Tried */

/**
 * Asks for confirmation, and sends dead pushes again, a few at a time. Closing it stops the pushes that have not begun.
 * @param {{items: Schemas["Notification"][], onClose: (outcome: Tried|null) => void}} props
 * null if no push was tried
 */
function Redrive({ items: shown, onClose }) {
  const { t: { pushes } } = useLanguage();
  const [items] = useState(shown); // the list behind changes, and the confirmed one does not
  const [sent] = useState(() => new Set());
  const [failed, setFailed] = useState(/** @type {Tried["failed"]} */ ([]));
  const [count, setCount] = useState(/** @type {number|null} */ (null));
  const stop = useRef(new AbortController());
  const latest = useRef(/** @type {Tried["failed"]|null} */ (null)); // the outcome so far; null before the first try
  useEffect(() => () => stop.current.abort(), []);

  const act = async () => {
    stop.current = new AbortController();
    const { signal } = stop.current;
    const queue = items.filter((n) => !sent.has(n.id));
    latest.current = [];
    const tell = () => { setFailed(latest.current ?? []); setCount(sent.size); };
    tell();
    const work = async () => {
      for (let n; !signal.aborted && (n = queue.shift());) {
        try {
          await send("POST", `/v1/admin/notifications/${n.id}/redrive`, { signal });
          sent.add(n.id);
        } catch (error) {
          if (signal.aborted) return;
          if (!ofOne(error)) {
            stop.current.abort();
            throw error;
          }
          latest.current = [...latest.current ?? [], { item: n, error }];
        }
        tell();
      }
    };
    await Promise.all(Array.from({ length: atOnce }, work));
  };
  const close = () => {
    stop.current.abort();
    onClose(latest.current === null ? null : { sent: sent.size, of: items.length, failed: latest.current });
  };
  return html`<${Ask} title=${pushes.title(items.length)} word=${pushes.again} act=${act} onClose=${close}>
    <p>${pushes.more(items.length)}</p>
    <p role="status">${count !== null && pushes.progress(count, items.length, failed.length)}</p>
  <//>`;
}

/** Shows the outcome. @param {{outcome: Tried|null}} props */
function Outcome({ outcome }) {
  const language = useLanguage();
  const { t: { pushes } } = language;
  /** @type {Ref<HTMLElement>} */
  const place = useRef(null);
  useEffect(() => { if (outcome) place.current.focus(); }, [outcome]); // the button that began it has disappeared
  return html`<div ref=${place} tabindex="-1" role="status" class="outcome">
    ${outcome && html`<p class=${outcome.sent === outcome.of ? "good" : "bad"}>
      ${pushes.outcome(outcome.sent, outcome.of)}</p>
      ${outcome.failed.length > 0 && html`<ul>${outcome.failed.map(({ item, error }) => html`<li key=${item.id}>
        <code>${item.id}</code>: ${error.code === "INVALID_STATE" ? pushes.notDead : explain(error, language)}</li>`)}</ul>`}`}
  </div>`;
}
