import { Component, html, useRef } from "../assets/preact.js";
import { Unreachable } from "../assets/api.js";
import { Language, useLanguage } from "../assets/language.js";
import { PageError } from "../assets/problems.js";
import { Trouble } from "../assets/ui.js";
import { LiveBadge, useSince } from "./live.js";
import { Card, Ended } from "./board_card.js";
import { Filters, useFilters } from "./board_filters.js";
import { Export } from "./export.js";
import { useBoard } from "./board_live.js";
import { leaveBoard, useReturn } from "./board_return.js";
import { mostCards } from "./board_read.js";
import { columns, ended, live } from "./board_state.js";

const latest = 6; // of the ended dispatches

/** Every open dispatch, by its state, updated live. */
export function Board() {
  const { t, when } = useLanguage();
  const [filters, change] = useFilters();
  const { state, connection, error, partial } = useBoard(filters.region, filters.q.trim());
  const sorted = useRef({});
  sorted.current = columns(state, { ...filters, q: filters.q.trim() }, sorted.current);
  const returned = useReturn(state.loaded);
  const narrowed = Boolean(filters.vehicleClass || filters.q.trim());
  const column = (status) => ({
    key: status, status, cards: sorted.current[status], count: state.counts?.[status], narrowed, cut: state.cut[status],
  });
  return html`
    <div class="row head">
      <h1>${t.page.board}</h1>
      <${Filters} filters=${filters} change=${change} regions=${state.regions} classes=${state.classes} />
      <${Export} list="dispatches" query=${{ region: filters.region, q: filters.q.trim() }}
        keep=${(d) => !filters.vehicleClass || d.vehicle_class === filters.vehicleClass} />
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

function CutOff({ cut }) {
  const { t, clock } = useLanguage();
  const since = useSince();
  return html`<div class="cutoff" role="alert">${cut && html`
    <strong>${t.board.cutSince(clock(since))}</strong> ${t.board.cutMore}`}</div>`;
}

// Same prevents the rendering of a part of the board whose props have not changed. Another language renders it nevertheless.
class Same extends Component {
  static contextType = Language;

  shouldComponentUpdate(next) {
    return Object.keys(next).some((k) => next[k] !== this.props[k]);
  }
}

class Column extends Same {
  render({ status, cards, count, narrowed, cut, unseen, loaded }) {
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
  render({ status, cards, count, narrowed }) {
    const { t } = this.context;
    const id = "column-" + status;
    return html`<section tabindex="-1" aria-labelledby=${id} data-status=${status}>
      <h2 id=${id}>${t.board.columns[status]} <${Count} count=${count} shown=${narrowed ? cards.length : undefined} /></h2>
      <ul>${cards.slice(0, latest).map((c) => html`<${Ended} key=${c.id} card=${c} />`)}</ul>
    </section>`;
  }
}

// Count shows the service's count. With a narrower filter it shows the number of matching cards too.
function Count({ count, shown }) {
  const { t } = useLanguage();
  if (count === undefined) return html`<span class="count soft">…</span>`;
  return html`<span class="count">${shown === undefined ? count : t.board.shownOf(shown, count)}</span>`;
}

// walk moves the focus: up and down in a column, left and right between the columns that have cards.
function walk(e) {
  const link = e.target.closest("a");
  const to = { ArrowUp: [0, -1], ArrowDown: [0, 1], ArrowLeft: [-1, 0], ArrowRight: [1, 0] }[e.key];
  if (!link || !to || e.altKey || e.ctrlKey || e.metaKey) return;
  const lists = [...e.currentTarget.querySelectorAll("ul")].filter((ul) => ul.firstElementChild);
  const x = lists.indexOf(link.closest("ul")), items = [...lists[x].children];
  const y = items.indexOf(link.closest("li")) + to[1];
  const next = to[0] ? lists[x + to[0]]?.children[0] : items[y];
  if (!next) return;
  e.preventDefault();
  next.querySelector("a").focus();
}
