import { Component, html, useLayoutEffect, useRef } from "../assets/preact.js";
import { now } from "../assets/api.js";
import { Language, useLanguage } from "../assets/language.js";
import { left } from "../assets/ui.js";
import { shown, useNames } from "./names.js";

/** The number of cards rendered so far. A test bounds it, because a large board must render few cards. */
export const drawn = { cards: 0 };

const shows = ["card", "unseen"];

/** The card of one dispatch. It renders again only when the dispatch's object or the language changes. */
export class Card extends Component {
  static contextType = Language;

  shouldComponentUpdate(next) {
    return shows.some((k) => next[k] !== this.props[k]);
  }

  render({ card: c, unseen }) {
    const { t, money, fromTo } = this.context;
    drawn.cards++;
    return html`<li class=${unseen ? "job unseen" : "job"}>
      <a href=${"#/dispatches/" + c.id}>
        <span class="where"><bdi>${c.site_address ? shown(c.site_address, c.id) : "…"}</bdi></span>
        <${Until} card=${c} />
        <span class="terms soft">${c.region} · ${c.vehicle_class}${c.min_working_height_m ? ` · ≥\u00a0${c.min_working_height_m}\u00a0m` : ""}</span>
        <span class="fee">${c.fee && money(c.fee)}</span>
        <span class="time soft">${c.work_starts_at && fromTo(c.work_starts_at, c.work_ends_at)}${c.round > 1 && ` · ${t.round(c.round)}`}</span>
        ${c.accepted_by && html`<${Who} id=${c.accepted_by} />`}
        ${unseen && html`<span class="flag"><span aria-hidden="true">▲</span> ${t.board.unseen}</span>`}
      </a>
    </li>`;
  }
}

/** The card of an ended dispatch: its place, and the time of its end. */
export class Ended extends Component {
  static contextType = Language;

  shouldComponentUpdate(next) {
    return next.card !== this.props.card;
  }

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

function Who({ id }) {
  const name = useNames([id]);
  return html`<span class="who">${name(id)}</span>`;
}

// One timer writes all the countdowns past the components, because nothing else on a card changes with them.
const counting = new Map();
let timer;

function write(el, { at, scheduled, word }) {
  const text = word(left(at - now()));
  if (el.textContent !== text) el.textContent = text;
  el.classList.toggle("soon", !scheduled && at - now() < 60_000);
}

function writeAll() {
  for (const [el, what] of counting) write(el, what);
}

function Until({ card: c }) {
  const { t } = useLanguage();
  const el = useRef(null);
  const scheduled = c.status === "SCHEDULED";
  const at = scheduled ? c.opens_at : c.expires_at;
  const counts = scheduled || c.status === "PENDING";
  useLayoutEffect(() => {
    if (!counts) return undefined;
    const what = { at: Date.parse(at), scheduled, word: scheduled ? t.board.opensIn : (time) => time };
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
