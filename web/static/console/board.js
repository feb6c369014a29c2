import { Component, html, useLayoutEffect, useRef } from "../assets/preact.js";
import { Unreachable, now } from "../assets/api.js";
import { Language, useLanguage } from "../assets/language.js";
import { left } from "../assets/ui.js";
import { mostCards, useBoard } from "./board_live.js";
import { columns, ended, live } from "./board_state.js";
import { PageError, Trouble } from "./dialogs.js";
import { useQuery } from "./kept.js";
import { shown, useNames } from "./names.js";
import { Export, LiveBadge, useSince } from "./reading.js";

const latest = 6; // of the ended dispatches

/** Every open dispatch, by its state, updated live. */
export function Board() {
  const { t, when } = useLanguage();
  const [filters, change] = useFilters();
  const { state, connection, error, partial } = useBoard(filters.region, filters.q.trim());
  const sorted = useRef(/** @type {import("./board_state.js").Columns|undefined} */ (undefined));
  const cards = sorted.current = columns(state, { ...filters, q: filters.q.trim() }, sorted.current);
  const returned = useReturn(state.loaded);
  const narrowed = Boolean(filters.vehicleClass || filters.q.trim());
  const column = (/** @type {Schemas["DispatchStatus"]} */ status) => ({
    key: status, status, cards: cards[status], count: state.counts?.[status], narrowed, cut: state.cut[status],
  });
  return html`
    <div class="row head">
      <h1>${t.page.board}</h1>
      <${Filters} filters=${filters} change=${change} regions=${state.regions} classes=${state.classes} />
      <${Export} list="dispatches" query=${{ region: filters.region, q: filters.q.trim() }}
        keep=${(/** @type {Schemas["Dispatch"]} */ d) => !filters.vehicleClass || d.vehicle_class === filters.vehicleClass} />
      <${LiveBadge} state=${connection} />
    </div>
    <${CutOff} cut=${connection !== "live" && state.loaded} />
    <${Trouble} error=${error instanceof Unreachable ? unreachable : error} />
    <div class="board" role="group" ref=${returned} aria-label=${t.board.byState} aria-describedby="arrows" onKeyDown=${walk} onClick=${leaveBoard}>
      ${live.map((s) => html`<${Column} ...${column(s)} unseen=${s === "PENDING" ? state.unseen : none} loaded=${state.loaded} />`)}
      <div class="ends" role="group" aria-label=${state.since ? t.board.endedSince(when(state.since)) : t.board.ended}>
        <p class="soft">${t.board.lastDay}</p>
        <p class="soft" role="status">${partial && t.board.partial}</p>
        ${ended.map((s) => html`<${Ends} ...${column(s)} />`)}
      </div>
    </div>
    <p class="hidden" id="arrows">${t.board.arrows}</p>`;
}

const none = new Set();
const unreachable = new PageError(({ t }) => t.board.unreachable);

/** @param {{cut: boolean}} props */
function CutOff({ cut }) {
  const { t, clock } = useLanguage();
  const since = useSince();
  return html`<div class="cutoff" role="alert">${cut && html`
    <strong>${t.board.cutSince(clock(since))}</strong> ${t.board.cutMore}`}</div>`;
}

// It prevents the rendering of a part of the board whose props have not changed. Another language renders it nevertheless.
class Same extends Component {
  static contextType = Language;

  /** @param {Record<string, unknown>} next */
  shouldComponentUpdate(next) {
    return Object.keys(next).some((k) => next[k] !== this.props[k]);
  }

  /** @param {any} _ @returns {import("preact").ComponentChildren} */
  render(_) {
    return null;
  }
}

/**
 * @typedef {{status: Schemas["DispatchStatus"], cards: import("./board_state.js").Card[], count?: number, narrowed: boolean, cut?: boolean}} Shown
 */
class Column extends Same {
  /** @param {Shown & {unseen: Set<string>, loaded: boolean}} props */
  render({ status, cards, count, narrowed, cut, unseen, loaded }) {
    /** @type {Reader} */
    const { t } = this.context;
    const id = "column-" + status;
    const ignored = cards.filter((c) => unseen.has(c.id)).length;
    const more = narrowed ? Math.max(0, cards.length - mostCards) : Math.max(0, (count ?? 0) - Math.min(cards.length, mostCards));
    return html`<section class="column" tabindex="-1" aria-labelledby=${id} data-status=${status}>
      <h2 id=${id}>${t.board.columns[status]} <${Count} count=${count} shown=${narrowed ? cards.length : undefined} /></h2>
      <p class="ignored" role="status">${ignored > 0 && t.board.unseenCount(ignored)}</p>
      <ul>${cards.slice(0, mostCards).map((c) => html`<${Card} key=${c.id} card=${c} unseen=${unseen.has(c.id)} />`)}</ul>
      ${(cut || cards.length > mostCards) && more > 0 && html`<p class="soft">${t.board.notShown(more)}</p>`}
      ${loaded && cards.length === 0 && html`<p class="soft">${t.none}</p>`}
    </section>`;
  }
}

class Ends extends Same {
  /** @param {Shown} props */
  render({ status, cards, count, narrowed }) {
    /** @type {Reader} */
    const { t } = this.context;
    const id = "column-" + status;
    return html`<section tabindex="-1" aria-labelledby=${id} data-status=${status}>
      <h2 id=${id}>${t.board.columns[status]} <${Count} count=${count} shown=${narrowed ? cards.length : undefined} /></h2>
      <ul>${cards.slice(0, latest).map((c) => html`<${Ended} key=${c.id} card=${c} />`)}</ul>
    </section>`;
  }
}

/** Shows the service's count. With a narrower filter it shows the number of matching cards too. @param {{count?: number, shown?: number}} props */
function Count({ count, shown }) {
  const { t } = useLanguage();
  if (count === undefined) return html`<span class="count soft">…</span>`;
  return html`<span class="count">${shown === undefined ? count : t.board.shownOf(shown, count)}</span>`;
}

/**
 * Moves the focus: up and down in a column, left and right between the columns that have cards.
 * @param {KeyboardEvent & {currentTarget: HTMLElement}} e
 */
function walk(e) {
  const link = /** @type {HTMLElement} */ (e.target).closest("a");
  /** @type {Record<string, [number, number]|undefined>} */
  const keys = { ArrowUp: [0, -1], ArrowDown: [0, 1], ArrowLeft: [-1, 0], ArrowRight: [1, 0] };
  const to = keys[e.key];
  if (!link || !to || e.altKey || e.ctrlKey || e.metaKey) return;
  const lists = [...e.currentTarget.querySelectorAll("ul")].filter((ul) => ul.firstElementChild);
  const x = lists.findIndex((ul) => ul.contains(link)), items = [...lists[x].children];
  const y = items.findIndex((li) => li.contains(link)) + to[1];
  const next = to[0] ? lists[x + to[0]]?.children[0] : items[y];
  if (!next) return;
  e.preventDefault();
  next.querySelector("a")?.focus();
}

/**
 * The filters of the board. The address stores them: #/board?region=seoul&class=45m&q=gate.
 * @returns {[{region: string, vehicleClass: string, q: string}, (changes: Record<string, string>) => void]}
 */
function useFilters() {
  const [{ region, class: vehicleClass, q }, change] = useQuery(["region", "class", "q"]);
  return [{ region, vehicleClass, q }, change];
}

/** @param {{label: string, all: string, value: string, options: Set<string>, onChange: (value: string) => void}} props */
function Choice({ label, all, value, options, onChange }) {
  const sorted = [...new Set([...options, ...(value ? [value] : [])])].sort();
  return html`<label>${label} <select value=${value} onChange=${(e) => onChange(e.target.value)}>
    <option value="">${all}</option>
    ${sorted.map((o) => html`<option key=${o} value=${o}>${o}</option>`)}
  </select></label>`;
}

/**
 * @param {{filters: {region: string, vehicleClass: string, q: string}, change: (changes: Record<string, string>) => void, regions: Set<string>, classes: Set<string>}} props
 */
function Filters({ filters, change, regions, classes }) {
  const { t } = useLanguage();
  return html`<form class="row filters" role="search" onSubmit=${(e) => e.preventDefault()}>
    <${Choice} label=${t.region} all=${t.board.allRegions} value=${filters.region} options=${regions} onChange=${(region) => change({ region })} />
    <${Choice} label=${t.board.vehicle} all=${t.board.allClasses} value=${filters.vehicleClass} options=${classes}
      onChange=${(c) => change({ class: c })} />
    <label>${t.search} <input type="search" value=${filters.q} maxlength="200" placeholder=${t.board.searchHint}
      title=${t.board.searchMore} onInput=${(e) => change({ q: e.target.value.trimStart() })} /></label>
    ${(filters.region || filters.vehicleClass || filters.q) && html`
      <button type="button" onClick=${() => change({ region: "", class: "", q: "" })}>${t.showAll}</button>`}
  </form>`;
}

/** The number of cards rendered so far. A test bounds it, because a large board must render few cards. */
export const drawn = { cards: 0 };

/** @typedef {{card: import("./board_state.js").Card, unseen?: boolean}} Props */

/** @type {(keyof Props)[]} */
const shows = ["card", "unseen"];

/** The card of one dispatch. It renders again only when the dispatch's object or the language changes. */
class Card extends Component {
  static contextType = Language;

  /** @param {Props} next */
  shouldComponentUpdate(next) {
    return shows.some((k) => next[k] !== this.props[k]);
  }

  /** @param {Props} props */
  render({ card: c, unseen }) {
    /** @type {Reader} */
    const { t, money, fromTo } = this.context;
    drawn.cards++;
    return html`<li class=${unseen ? "job unseen" : "job"}>
      <a href=${"#/dispatches/" + c.id}>
        <span class="where"><bdi>${c.site_address ? shown(c.site_address, c.id) : "…"}</bdi></span>
        <${Until} card=${c} />
        <span class="terms soft">${c.region} · ${c.vehicle_class}${c.min_working_height_m ? ` · ≥\u00a0${c.min_working_height_m}\u00a0m` : ""}</span>
        <span class="fee">${c.fee && money(c.fee)}</span>
        <span class="time soft">${c.work_starts_at && c.work_ends_at && fromTo(c.work_starts_at, c.work_ends_at)}${c.round > 1 && ` · ${t.round(c.round)}`}</span>
        ${c.accepted_by && html`<${Who} id=${c.accepted_by} />`}
        ${unseen && html`<span class="flag"><span aria-hidden="true">▲</span> ${t.board.unseen}</span>`}
      </a>
    </li>`;
  }
}

/** The card of an ended dispatch: its place, and the time of its end. */
class Ended extends Component {
  static contextType = Language;

  /** @param {Props} next */
  shouldComponentUpdate(next) {
    return next.card !== this.props.card;
  }

  /** @param {Props} props */
  render({ card: c }) {
    drawn.cards++;
    return html`<li class="job over"><a href=${"#/dispatches/" + c.id}>
      <span class="where"><bdi>${c.site_address ? shown(c.site_address, c.id) : "…"}</bdi></span>
      <span class="soft">${c.region}</span>
      <time class="soft" datetime=${c.updated_at}>${this.context.clockShort(c.updated_at)}</time>
      ${c.accepted_by && html`<${Who} id=${c.accepted_by} />`}
    </a></li>`;
  }
}

/** @param {{id: string}} props */
function Who({ id }) {
  const name = useNames([id]);
  return html`<span class="who">${name(id)}</span>`;
}

// One timer writes all the countdowns past the components, because nothing else on a card changes with them.
/** @typedef {{at: number, scheduled: boolean, word: (time: string) => string}} Counting */

/** @type {Map<HTMLElement, Counting>} */
const counting = new Map();
/** @type {number|undefined} */
let timer;

/** @param {HTMLElement} el @param {Counting} what */
function write(el, { at, scheduled, word }) {
  const text = word(left(at - now()));
  if (el.textContent !== text) el.textContent = text;
  el.classList.toggle("soon", !scheduled && at - now() < 60_000);
}

function writeAll() {
  for (const [el, what] of counting) write(el, what);
}

/** @param {Props} props */
function Until({ card: c }) {
  const { t } = useLanguage();
  const el = useRef(null);
  const scheduled = c.status === "SCHEDULED";
  const at = scheduled ? c.opens_at : c.expires_at;
  const counts = scheduled || c.status === "PENDING";
  useLayoutEffect(() => {
    if (!counts) return undefined;
    const what = { at: Date.parse(at ?? ""), scheduled, word: scheduled ? t.board.opensIn : (/** @type {string} */ time) => time };
    write(el.current, what);
    counting.set(el.current, what);
    timer ??= setInterval(writeAll, 1000);
    const mine = el.current;
    return () => {
      counting.delete(mine);
      if (counting.size > 0) return;
      clearInterval(timer);
      timer = undefined;
    };
  }, [at, counts, scheduled, t]);
  return counts ? html`<time ref=${el} class="until" datetime=${at} />` : null;
}

const patience = 5000; // ms: a card that only a search finds comes after the others

// Where the reader left the board: its address, the opened card, its column, and the column's cards after and before it, the nearest
// first. The board is not rendered meanwhile.
/** @type {{address: string, id: string, near: string[], status: string, until?: number, placed?: HTMLElement}|null} */
let place = null;

/** @param {Element} card */
const idOf = (card) => card.querySelector("a")?.hash ?? "";

/** Notices which card of the board is opened. @param {MouseEvent} e a click on the board; Enter is one too */
function leaveBoard(e) {
  const card = /** @type {HTMLElement} */ (e.target).closest("li");
  if (!card || e.ctrlKey || e.metaKey || e.shiftKey) return; // those open another tab or window
  const ids = [...card.parentElement?.children ?? []].map(idOf);
  const at = ids.indexOf(idOf(card)), status = card.closest("section")?.dataset.status ?? "";
  place = { address: location.hash, id: ids[at], near: [...ids.slice(at + 1), ...ids.slice(0, at).reverse()], status };
}

/** Returns the address of the board as the reader left it, with its filters. */
export const boardAddress = () => place?.address ?? "#/board";

/**
 * Once the board has its cards again, focuses the card of the dispatch that the reader comes back from, in whichever column it is now.
 * If it is gone, the focus goes to the next card of its former column, or the one before, or the column. It stays where the reader has
 * put it meanwhile.
 * @param {boolean} loaded
 * @returns {{current: HTMLElement|null}} the board's element
 */
function useReturn(loaded) {
  /** @type {Ref<HTMLElement>} */
  const board = useRef(null);
  const back = useRef(place);
  useLayoutEffect(() => {
    const b = back.current;
    if (!b || !loaded) return;
    place = null;
    b.until ??= Date.now() + patience;
    const own = /** @type {HTMLElement|null} */ (board.current.querySelector(`a[href="${CSS.escape(b.id)}"]`));
    const active = document.activeElement;
    const moved = active !== document.body && active?.id !== "main" && active !== b.placed;
    if (own || moved || Date.now() > b.until) back.current = null;
    if (moved) return;
    const to = b.placed = own ?? near(board.current, b);
    if (to !== active) to.focus();
  });
  return board;
}

/** @param {HTMLElement} board @param {{near: string[], status: string}} left @returns {HTMLElement} */
function near(board, { near: ids, status }) {
  const column = /** @type {HTMLElement} */ (board.querySelector(`[data-status=${status}]`));
  const cards = new Map([...column.querySelectorAll("li")].map((card) => [idOf(card), card.querySelector("a")]));
  return cards.get(ids.find((id) => cards.has(id)) ?? "") ?? column;
}
