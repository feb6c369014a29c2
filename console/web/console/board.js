import { Component, html, useRef } from "../assets/preact.js";
import { Unreachable } from "../assets/api.js";
import { Trouble, when, whenExactly } from "../assets/ui.js";
import { LiveBadge, useSince } from "./live.js";
import { Card, Ended } from "./board_card.js";
import { Filters, useFilters } from "./board_filters.js";
import { useBoard } from "./board_live.js";
import { mostCards } from "./board_read.js";
import { columns, ended, live } from "./board_state.js";

const titles = {
  SCHEDULED: "Scheduled", PENDING: "Pending", ACCEPTED: "Accepted", IN_PROGRESS: "In progress",
  COMPLETED: "Completed", CANCELED: "Canceled", EXPIRED: "Expired",
};
const latest = 6; // of the ended dispatches

/** Every open dispatch, by its state, updated live. */
export function Board() {
  const [filters, change] = useFilters();
  const { state, connection, error } = useBoard(filters.region, filters.q.trim());
  const sorted = useRef({});
  sorted.current = columns(state, { ...filters, q: filters.q.trim() }, sorted.current);
  const narrowed = Boolean(filters.vehicleClass || filters.q.trim());
  const column = (status) => ({
    key: status, status, cards: sorted.current[status], count: state.counts?.[status], narrowed, cut: state.cut[status],
  });
  return html`
    <div class="row head">
      <h1>Board</h1>
      <${Filters} filters=${filters} change=${change} regions=${state.regions} classes=${state.classes} />
      <${LiveBadge} state=${connection} />
    </div>
    <${CutOff} cut=${connection !== "live" && state.loaded} />
    <${Trouble} error=${error instanceof Unreachable ? unreachable : error} />
    <div class="board" role="group" aria-label="Dispatches by state" aria-describedby="arrows" onKeyDown=${walk}>
      ${live.map((s) => html`<${Column} ...${column(s)} unseen=${s === "PENDING" ? state.unseen : none} loaded=${state.loaded} />`)}
      <div class="ends" role="group" aria-label=${state.since ? `Ended since ${when(state.since)}` : "Ended"}>
        <p class="soft">The last 24 hours</p>
        ${ended.map((s) => html`<${Ends} ...${column(s)} />`)}
      </div>
    </div>
    <p class="hidden" id="arrows">The arrow keys go from card to card.</p>`;
}

const none = new Set();
const unreachable = new Error("The service can't be reached; the board asks again.");

function CutOff({ cut }) {
  const since = useSince();
  return html`<div class="cutoff" role="alert">${cut && html`
    <strong>Cut off since ${whenExactly(new Date(since).toISOString()).slice(-8)}.</strong>
    ${" "}What you see is as it was then. It is read again as soon as the service answers.`}</div>`;
}

// Same prevents the rendering of a part of the board whose props have not changed.
class Same extends Component {
  shouldComponentUpdate(next) {
    return Object.keys(next).some((k) => next[k] !== this.props[k]);
  }
}

class Column extends Same {
  render({ status, cards, count, narrowed, cut, unseen, loaded }) {
    const id = "column-" + status;
    const ignored = cards.filter((c) => unseen.has(c.id)).length;
    const more = narrowed ? Math.max(0, cards.length - mostCards) : Math.max(0, (count ?? 0) - Math.min(cards.length, mostCards));
    return html`<section class="column" aria-labelledby=${id} data-status=${status}>
      <h2 id=${id}>${titles[status]} <${Count} count=${count} shown=${narrowed ? cards.length : undefined} /></h2>
      <p class="ignored" role="status">${ignored > 0 && `▲ ${ignored} not seen for 60 s`}</p>
      <ul>${cards.slice(0, mostCards).map((c) => html`<${Card} key=${c.id} card=${c} unseen=${unseen.has(c.id)} />`)}</ul>
      ${(cut || cards.length > mostCards) && more > 0 && html`<p class="soft">${more} more are not shown. Narrow the board to see them.</p>`}
      ${loaded && cards.length === 0 && html`<p class="soft">None.</p>`}
    </section>`;
  }
}

class Ends extends Same {
  render({ status, cards, count, narrowed }) {
    const id = "column-" + status;
    return html`<section aria-labelledby=${id} data-status=${status}>
      <h2 id=${id}>${titles[status]} <${Count} count=${count} shown=${narrowed ? cards.length : undefined} /></h2>
      <ul>${cards.slice(0, latest).map((c) => html`<${Ended} key=${c.id} card=${c} />`)}</ul>
    </section>`;
  }
}

// Count shows the service's count. With a narrower filter it shows the number of matching cards too.
function Count({ count, shown }) {
  if (count === undefined) return html`<span class="count soft">…</span>`;
  return html`<span class="count">${shown === undefined ? count : `${shown} of ${count}`}</span>`;
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
