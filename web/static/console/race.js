// The taps of a round, drawn and listed.
import { html, useEffect, useLayoutEffect, useRef, useState } from "../assets/preact.js";
import { list } from "../assets/api.js";
import { useLanguage } from "../assets/language.js";
import { useLoaded } from "../assets/ui.js";
import { named } from "../assets/words.js";
import { At, Unread } from "./dispatch_words.js";
import { useNames } from "./names.js";

const atOnce = 300, tableAtOnce = 50;
// The service writes taps after the answer, up to 200 ms later on each instance, or seconds later if it is busy: after an event they
// are read again until two readings are the same and show a tap.
const looks = [300, 300, 600, 1200, 2400, 5000];

/**
 * Reads the taps, again when turn moves, and then a few times more while their number grows.
 * @param {string} id @param {number} round @param {number} turn
 */
function useTaps(id, round, turn) {
  const [most, setMost] = useState(atOnce);
  const [look, setLook] = useState(0);
  const settled = useRef({ turn: null, look: 0, count: -1 });
  const loaded = useLoaded((signal) => list(`/v1/admin/dispatches/${id}/attempts?round=${round}`, most, { signal }), [id, round, turn, most, look]);
  useEffect(() => {
    if (!loaded.data || loaded.loading) return;
    const s = settled.current, count = loaded.data.items.length;
    if (s.turn !== turn) Object.assign(s, { turn, look: 0 });
    else if (s.count === count && count > 0 && s.look > 1 || s.look >= looks.length) return;
    s.count = count;
    const timer = setTimeout(() => setLook((n) => n + 1), looks[s.look++]);
    return () => clearTimeout(timer);
  }, [loaded.data, loaded.loading, turn]);
  return { ...loaded, showMore: () => setMost((n) => n + atOnce) };
}

/**
 * The taps of a round, and their distances from the winner.
 * @param {{id: string, round: number, holder?: string, turn: number, onMore: () => void}} props turn moves after an event;
 * onMore is called when there are more taps than before, because no event announces them
 */
export function Race({ id, round, holder, turn, onMore }) {
  const language = useLanguage();
  const { t, duration } = language;
  const { race } = t;
  const { data, error, showMore } = useTaps(id, round, turn);
  const count = data?.items.length ?? 0;
  useEffect(() => { if (count > 0) onMore(); }, [count]);
  const [wish, setWish] = useState("auto");
  const [rows, setRows] = useState(tableAtOnce);
  const { taps, winner } = readRace(data?.items ?? [], holder, t);
  const until = Number(wish) || 0; // µs, 0 for all
  const drawn = until ? taps.filter((tap) => tap.after_us <= until) : taps;
  const named = taps.slice(0, rows);
  const name = useNames([...new Set(named.map((tap) => tap.driver_id).concat(winner?.driver_id ?? []))]);
  return html`<section class="card" aria-labelledby="race">
    <div class="row between"><h2 id="race">${race.title}</h2>
      ${taps.length > 1 && html`<label class="row soft">${race.axis} <select value=${wish} onChange=${(e) => setWish(e.target.value)}>
        <option value="auto">${race.auto}</option><option value="linear">${race.linear}</option><option value="log">${race.log}</option>
        ${beginnings(taps.map((tap) => tap.after_us)).map((b) => html`<option key=${b.us} value=${String(b.us)}>${race.beginning(duration(b.us), b.taps)}</option>`)}
        </select></label>`}
    </div>
    <${Unread} error=${error} shown=${data} />
    ${data && taps.length === 0 && html`<p class="soft">${race.nobody(round)}</p>`}
    ${taps.length > 0 && html`
      <p role="status">${summary(taps, winner, name, language)}</p>
      <${RaceChart} key=${wish} taps=${drawn} winner=${winner && drawn.includes(winner) ? winner : undefined} wish=${until ? "linear" : wish} name=${name} />
      <${Taps} taps=${named} name=${name} />
      <div class="row more">
        ${rows < taps.length && html`<button onClick=${() => setRows(rows + 100)}>${race.moreRows(taps.length - rows)}</button>`}
        ${data?.more && html`<button onClick=${showMore}>${race.later}</button> <span class="soft">${t.lists.first(taps.length)}</span>`}
      </div>`}
  </section>`;
}

/** @param {Tap[]} taps @param {Tap|undefined} winner @param {(id: string) => string} name @param {Reader} reader */
function summary(taps, winner, name, { t: { race }, duration }) {
  const lost = taps.filter((t) => t.kind === "lost");
  const drivers = new Set(taps.map((t) => t.driver_id)).size;
  const tapped = race.tapped(taps.length, drivers);
  if (!winner) return `${tapped} ${race.noWinner}`;
  const next = Math.min(...lost.map((t) => t.behind ?? -1).filter((behind) => behind >= 0));
  const won = name(winner.driver_id);
  return `${tapped} ${next < Infinity ? race.wonAhead(won, duration(next)) : race.won(won)}`;
}

/** @param {{taps: Tap[], name: (id: string) => string}} props */
function Taps({ taps, name }) {
  const language = useLanguage();
  const { t: { race, lists }, duration } = language;
  return html`<div class="scroll tall" tabindex="0" role="region" aria-label=${race.table}>
    <table><caption class="hidden">${race.caption}</caption><thead><tr>
      ${[race.rank, lists.driver, race.result, race.behind, race.after, race.reaction, race.at, race.instance, race.app].map((title) => html`
        <th key=${title} scope="col">${title}</th>`)}
    </tr></thead>
    <tbody>${taps.map((t) => html`<tr key=${t.id} class=${t.kind}>
      <td>${t.rank ?? "–"}</td><td><a href=${`#/drivers/${t.driver_id}`}>${name(t.driver_id)}</a></td><td>${t.word}</td>
      <td class="number">${behindWords(t.behind, language)}</td><td class="number">${duration(t.after_us)}</td>
      <td class="number">${t.reaction_ms === null ? "–" : duration(t.reaction_ms * 1000)}</td><td><${At} at=${t.at} /></td>
      <td>${t.instance ?? "–"}</td><td>${t.app_version ?? "–"}</td></tr>`)}</tbody></table></div>`;
}

const labelled = 40; // up to this many taps have a line with a name each; more are a curve
const line = 18, top = 6, foot = 26, right = 14, curve = 320; // px

/**
 * The taps of a round on an axis of time, the first one at the top. The arrow keys and the pointer select one, which is
 * described below in words.
 * @param {{taps: Tap[], winner: Tap|undefined, wish: "auto"|"linear"|"log", name: (id: string) => string}} props taps in readRace's form
 */
function RaceChart({ taps, winner, wish, name }) {
  const language = useLanguage();
  const { t: { race }, duration } = language;
  const [frame, width] = useWidth();
  const [picked, pick] = useState(/** @type {number|null} */ (null));
  const scale = scaleOf(taps.map((t) => t.after_us), duration, wish);
  const named = taps.length <= labelled;
  const gutter = named ? Math.min(150, Math.round(width * 0.28)) : 14;
  const step = named ? line : curve / taps.length;
  const bottom = top + step * taps.length;
  const x = (/** @type {number} */ us) => gutter + 8 + scale.place(us) * (width - gutter - 8 - right);
  const y = (/** @type {number} */ i) => top + step * (i + 0.5);
  const points = taps.map((t, i) => ({ tap: t, x: x(t.after_us), y: y(i) }));
  const at = picked === null ? null : Math.min(picked, taps.length - 1);

  const onPointerMove = (/** @type {PointerEvent & {currentTarget: Element}} */ e) => {
    const box = e.currentTarget.getBoundingClientRect();
    pick(nearest(points, e.clientX - box.left, e.clientY - box.top, named));
  };
  const onKeyDown = (/** @type {KeyboardEvent} */ e) => {
    /** @type {Record<string, number|undefined>} */
    const keys = { ArrowDown: (at ?? -1) + 1, ArrowRight: (at ?? -1) + 1, ArrowUp: (at ?? 1) - 1, ArrowLeft: (at ?? 1) - 1, Home: 0, End: taps.length - 1 };
    const to = keys[e.key];
    if (to === undefined) return;
    e.preventDefault();
    pick(Math.max(0, Math.min(taps.length - 1, to)));
  };
  return html`
    <div class="race-frame" ref=${frame} tabindex="0" role="group" aria-label=${race.drawn}
        onKeyDown=${onKeyDown} onFocus=${() => pick((p) => p ?? (winner ? Math.max(0, taps.indexOf(winner)) : 0))}>
      <svg class="race" width=${width} height=${bottom + foot} aria-hidden="true" onPointerMove=${onPointerMove}>
        <${Axis} scale=${scale} x=${x} bottom=${bottom} width=${width} />
        ${winner && html`<line class="finish" x1=${x(winner.after_us)} x2=${x(winner.after_us)} y1=${top} y2=${bottom} />`}
        ${points.map((p, i) => html`<${Tap} key=${p.tap.id} ...${p} i=${i} picked=${i === at} named=${named} width=${width}
          gutter=${gutter} driver=${named ? name(p.tap.driver_id) : ""} />`)}
        ${at !== null && html`<circle class="ring" cx=${points[at].x} cy=${points[at].y} r="8" />`}
      </svg>
    </div>
    <p class="readout" aria-live="polite">${at === null
      ? html`<span class="soft">${race.point}</span>`
      : tapWords(taps[at], name(taps[at].driver_id), language)}</p>`;
}

/** @param {{scale: Scale, x: (us: number) => number, bottom: number, width: number}} props */
function Axis({ scale, x, bottom, width }) {
  let free = -Infinity; // the end of the label before
  return html`<g class="axis">${scale.ticks.map(({ us, label }) => {
    const px = x(us), half = label.length * 3.8;
    const fits = px - half > free + 6;
    if (fits) free = px + half;
    return html`<line x1=${px} x2=${px} y1=${top} y2=${bottom + (fits ? 5 : 0)} />
      ${fits && html`<text x=${Math.min(px, width - half)} y=${bottom + 18} text-anchor="middle">${label}</text>`}`;
  })}</g>`;
}

/** @param {{tap: Tap, x: number, y: number, i: number, picked: boolean, named: boolean, width: number, gutter: number, driver: string}} props */
function Tap({ tap, x, y, i, picked, named, width, gutter, driver }) {
  const language = useLanguage();
  const before = x > width - 110; // its label would not fit behind it
  const words = tap.kind === "won" || tap.behind === null ? tap.word : behindWords(tap.behind, language);
  return html`<g class=${`tap ${tap.kind}${picked ? " picked" : ""}`}>
    ${named && html`<text class="who" x="0" y=${y + 4}>${short(driver, Math.floor(gutter / 7.2))}</text>
      ${i % 2 === 0 && html`<line class="lane" x1=${gutter} x2=${width} y1=${y} y2=${y} />`}`}
    ${tap.kind === "won"
      ? html`<path d=${`M${x},${y - 7} l7,7 l-7,7 l-7,-7 z`} />`
      : html`<circle cx=${x} cy=${y} r=${named ? 4.5 : 3} />`}
    ${(named || tap.kind === "won") && html`<text x=${before ? x - 11 : x + 11} y=${y + 4} text-anchor=${before ? "end" : "start"}>${words}</text>`}
  </g>`;
}

/** @param {string} text @param {number} most */
const short = (text, most) => (text.length > most ? text.slice(0, most - 1) + "…" : text);

/**
 * Returns the tap of the line at the pointer. Without lines it returns the tap at the smallest distance.
 * @param {{x: number, y: number}[]} points @param {number} x @param {number} y @param {boolean} named
 */
function nearest(points, x, y, named) {
  let best = 0, least = Infinity;
  points.forEach((p, i) => {
    const far = named ? Math.abs(p.y - y) : Math.hypot(p.x - x, p.y - y);
    if (far < least) [best, least] = [i, far];
  });
  return best;
}

/** @returns {[Ref<HTMLElement>, number]} */
function useWidth() {
  /** @type {Ref<HTMLElement>} */
  const frame = useRef(null);
  const [width, set] = useState(600);
  useLayoutEffect(() => {
    const observer = new ResizeObserver(([entry]) => set(Math.max(240, Math.floor(entry.contentRect.width))));
    observer.observe(frame.current);
    return () => observer.disconnect();
  }, []);
  return [frame, width];
}

/**
 * A tap with its kind. behind is in µs from the winner's first tap, below 0 for an earlier tap that lost nevertheless; null for a tap outside
 * the race, and without a winner by a tap.
 * @typedef {Schemas["Attempt"] & {kind: "won"|"again"|"lost"|"other", word: string, behind: number|null}} Tap
 */

/**
 * Reads the taps of a round, the oldest first.
 * @param {Schemas["Attempt"][]} attempts the API's list
 * @param {string|undefined} holder the driver who has the dispatch in this round, if any
 * @param {Texts} t
 * @returns {{taps: Tap[], winner: Tap|undefined}}
 */
function readRace(attempts, holder, t) {
  const winner = attempts.find((a) => a.result === "SUCCESS") ??
    attempts.find((a) => a.driver_id === holder && a.result === "CLAIM_UNAVAILABLE");
  const start = winner && attempts.find((a) => a.driver_id === winner.driver_id && inRace(a));
  const taps = attempts.map((a) => {
    /** @type {Tap["kind"]} */
    const kind = a === start ? "won" : winner?.driver_id === a.driver_id && inRace(a) ? "again" : a.result === "ALREADY_TAKEN" ? "lost" : "other";
    const word = kind === "won" ? t.race.wonWord : kind === "again" ? t.race.again : named(t.tapResults, a.result) ?? t.tapResults.OTHER;
    return { ...a, kind, word, behind: kind === "lost" && start ? a.after_us - start.after_us : null };
  });
  return { taps, winner: taps.find((tap) => tap.kind === "won") };
}

/** @param {Schemas["Attempt"]} a */
const inRace = (a) => a.result !== "NOT_OPEN_YET" && a.result !== "OFFER_STALE";

/** Formats "+1.2 ms", or how much earlier than the winner a lost tap came. @param {number|null} behind @param {Reader} reader */
function behindWords(behind, { t, duration }) {
  if (behind === null) return "–";
  return behind < 0 ? t.race.before(duration(-behind)) : `+${duration(behind)}`;
}

/** Describes a tap in a sentence. @param {Tap} tap @param {string} name @param {Reader} reader */
function tapWords(tap, name, { t: { race }, duration }) {
  const parts = [race.tap(name, tap.word)];
  if (tap.behind !== null) {
    parts.push(tap.behind < 0 ? race.tappedBefore(duration(-tap.behind)) : race.tappedBehind(duration(tap.behind)));
  }
  parts.push(tap.after_us === 0 ? race.firstTap : race.tappedAfter(duration(tap.after_us)));
  if (tap.reaction_ms !== null) parts.push(race.reacted(duration(tap.reaction_ms * 1000)));
  if (tap.instance) parts.push(race.decidedBy(tap.instance));
  if (tap.app_version) parts.push(race.appVersion(tap.app_version));
  return parts.join(" · ");
}

const second = 1e6, minute = 60 * second, hour = 60 * minute; // µs

/** @typedef {{kind: "linear"|"log", place: (us: number) => number, ticks: {us: number, label: string}[]}} Scale */

/**
 * Places moments on an axis from 0 to 1.
 * @param {number[]} moments in µs, from 0
 * @param {(us: number) => string} duration writes a time
 * @param {"auto"|"linear"|"log"} wish auto is log if most of the taps would otherwise overlap at the left
 * @returns {Scale}
 */
function scaleOf(moments, duration, wish = "auto") {
  const later = moments.filter((us) => us > 0).sort((a, b) => a - b);
  const last = later.at(-1) ?? 100;
  const spread = later.length > 1 && last > 20 * later[Math.floor((later.length - 1) / 2)];
  const kind = wish === "auto" ? (spread ? "log" : "linear") : wish;
  return kind === "log" ? logarithmic(later[0] ?? 1, last, duration) : linear(last, duration);
}

/** @param {number} last @param {(us: number) => string} duration @returns {Scale} */
function linear(last, duration) {
  const step = niceStep(last / 6);
  const ticks = [];
  for (let us = 0; us <= last * 1.001; us += step) ticks.push({ us, label: us ? duration(us) : "0" });
  return { kind: "linear", place: (us) => us / last, ticks };
}

const sexagesimal = [1, 2, 5, 10, 15, 30].flatMap((n) => [n * second, n * minute]).concat(hour).sort((a, b) => a - b);

/** @param {number} least */
function niceStep(least) {
  if (least > second && least <= hour) return sexagesimal.find((s) => s >= least) ?? hour;
  const decade = 10 ** Math.floor(Math.log10(least));
  return Math.max(1, [1, 2, 5].map((n) => n * decade).find((s) => s >= least * 0.999) ?? 10 * decade);
}

const decades = [1, 10, 100, 1e3, 1e4, 1e5, second, 10 * second, minute, 10 * minute, hour, 10 * hour, 100 * hour];

/**
 * Returns the parts of the beginning that deserve a view of their own: whole decades, followed by later taps.
 * @param {number[]} moments in µs, from 0
 * @returns {{us: number, taps: number}[]} the end of the part, and its number of taps
 */
export function beginnings(moments) {
  return decades.map((us) => ({ us, taps: moments.filter((m) => m <= us).length }))
    .filter(({ taps }, i, all) => taps > 1 && taps < moments.length && taps !== all[i - 1]?.taps);
}

// logarithmic includes 0: the place is log(1 + us/unit), where unit is the decade of the first moment.
/** @param {number} first @param {number} last @param {(us: number) => string} duration @returns {Scale} */
function logarithmic(first, last, duration) {
  const unit = decades.findLast((d) => d <= first) ?? 1;
  const most = Math.log1p(last / unit);
  return {
    kind: "log",
    place: (us) => Math.log1p(us / unit) / most,
    ticks: [{ us: 0, label: "0" }, ...decades.filter((d) => d >= unit && d <= last).map((us) => ({ us, label: duration(us) }))],
  };
}
