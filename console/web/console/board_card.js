import { Component, html, useLayoutEffect, useRef } from "../assets/preact.js";
import { now } from "../assets/api.js";
import { left, money, when } from "../assets/ui.js";
import { useNames } from "./names.js";

/** The number of cards rendered so far. A test bounds it, because a large board must render few cards. */
export const drawn = { cards: 0 };

const shows = ["card", "unseen"];

/** The card of one dispatch. It renders again only when the dispatch's object changes. */
export class Card extends Component {
  shouldComponentUpdate(next) {
    return shows.some((k) => next[k] !== this.props[k]);
  }

  render({ card: c, unseen }) {
    drawn.cards++;
    return html`<li class=${unseen ? "job unseen" : "job"}>
      <a href=${"#/dispatches/" + c.id}>
        <span class="where">${c.site_address ?? "…"}</span>
        <${Until} card=${c} />
        <span class="terms soft">${c.region} · ${c.vehicle_class}${c.min_working_height_m ? ` · ≥\u00a0${c.min_working_height_m}\u00a0m` : ""}</span>
        <span class="fee">${c.fee && money(c.fee)}</span>
        <span class="time soft">${c.work_starts_at && span(c.work_starts_at, c.work_ends_at)}${c.round > 1 && ` · round ${c.round}`}</span>
        ${c.accepted_by && html`<${Who} id=${c.accepted_by} />`}
        ${unseen && html`<span class="flag"><span aria-hidden="true">▲</span> not seen for 60 s</span>`}
      </a>
    </li>`;
  }
}

/** The card of an ended dispatch: its place, and the time of its end. */
export class Ended extends Component {
  shouldComponentUpdate(next) {
    return next.card !== this.props.card;
  }

  render({ card: c }) {
    drawn.cards++;
    return html`<li class="job over"><a href=${"#/dispatches/" + c.id}>
      <span class="where">${c.site_address ?? "…"}</span>
      <span class="soft">${c.region}</span>
      <time class="soft" datetime=${c.updated_at}>${when(c.updated_at).slice(-5)}</time>
      ${c.accepted_by && html`<${Who} id=${c.accepted_by} />`}
    </a></li>`;
  }
}

function Who({ id }) {
  const name = useNames([id]);
  return html`<span class="who">${name(id)}</span>`;
}

const clock = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit" });
const span = (from, to) => clock.formatRange(new Date(from), new Date(to));

// One timer writes all the countdowns past the components, because nothing else on a card changes with them.
const counting = new Map();
let timer;

function write(el, { at, word }) {
  const text = word + left(at - now());
  if (el.textContent !== text) el.textContent = text;
  el.classList.toggle("soon", !word && at - now() < 60_000);
}

function writeAll() {
  for (const [el, what] of counting) write(el, what);
}

function Until({ card: c }) {
  const el = useRef(null);
  const scheduled = c.status === "SCHEDULED";
  const at = scheduled ? c.opens_at : c.expires_at;
  const counts = scheduled || c.status === "PENDING";
  useLayoutEffect(() => {
    if (!counts) return undefined;
    const what = { at: Date.parse(at), word: scheduled ? "opens in " : "" };
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
  }, [at, counts, scheduled]);
  return counts ? html`<time ref=${el} class="until" datetime=${at} />` : null;
}
