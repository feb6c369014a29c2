import { html, useLayoutEffect, useRef, useState } from "../assets/preact.js";
import { useLanguage } from "../assets/language.js";
import { scaleOf } from "./race_scale.js";
import { behindWords, tapWords } from "./race_read.js";

const labelled = 40; // up to this many taps have a line with a name each; more are a curve
const line = 18, top = 6, foot = 26, right = 14, curve = 320; // px

/**
 * The taps of a round on an axis of time, the first one at the top. The arrow keys and the pointer select one, which is
 * described below in words.
 * @param {{taps: any[], winner: any, wish: "auto"|"linear"|"log", name: (id: string) => string}} props taps in readRace's form
 */
export function RaceChart({ taps, winner, wish, name }) {
  const language = useLanguage();
  const { t: { race }, duration } = language;
  const [frame, width] = useWidth();
  const [picked, pick] = useState(null);
  const scale = scaleOf(taps.map((t) => t.after_us), duration, wish);
  const named = taps.length <= labelled;
  const gutter = named ? Math.min(150, Math.round(width * 0.28)) : 14;
  const step = named ? line : curve / taps.length;
  const bottom = top + step * taps.length;
  const x = (us) => gutter + 8 + scale.place(us) * (width - gutter - 8 - right);
  const y = (i) => top + step * (i + 0.5);
  const points = taps.map((t, i) => ({ tap: t, x: x(t.after_us), y: y(i) }));
  const at = picked === null ? null : Math.min(picked, taps.length - 1);

  const onPointerMove = (e) => {
    const box = e.currentTarget.getBoundingClientRect();
    pick(nearest(points, e.clientX - box.left, e.clientY - box.top, named));
  };
  const onKeyDown = (e) => {
    const to = { ArrowDown: (at ?? -1) + 1, ArrowRight: (at ?? -1) + 1, ArrowUp: (at ?? 1) - 1, ArrowLeft: (at ?? 1) - 1, Home: 0, End: taps.length - 1 }[e.key];
    if (to === undefined) return;
    e.preventDefault();
    pick(Math.max(0, Math.min(taps.length - 1, to)));
  };
  return html`
    <div class="race-frame" ref=${frame} tabindex="0" role="group" aria-label=${race.drawn}
        onKeyDown=${onKeyDown} onFocus=${() => pick((p) => p ?? Math.max(0, taps.indexOf(winner)))}>
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

const short = (text, most) => (text.length > most ? text.slice(0, most - 1) + "…" : text);

// nearest returns the tap of the line at the pointer. Without lines it returns the tap at the smallest distance.
function nearest(points, x, y, named) {
  let best = 0, least = Infinity;
  points.forEach((p, i) => {
    const far = named ? Math.abs(p.y - y) : Math.hypot(p.x - x, p.y - y);
    if (far < least) [best, least] = [i, far];
  });
  return best;
}

function useWidth() {
  const frame = useRef(null);
  const [width, set] = useState(600);
  useLayoutEffect(() => {
    const observer = new ResizeObserver(([entry]) => set(Math.max(240, Math.floor(entry.contentRect.width))));
    observer.observe(frame.current);
    return () => observer.disconnect();
  }, []);
  return [frame, width];
}
