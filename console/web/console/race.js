import { html, useEffect, useRef, useState } from "../assets/preact.js";
import { list } from "../assets/api.js";
import { useLoaded } from "../assets/ui.js";
import { At } from "./dispatch_lists.js";
import { Unread } from "./dispatch_words.js";
import { useNames } from "./names.js";
import { RaceChart } from "./race_chart.js";
import { behindWords, readRace } from "./race_read.js";
import { beginnings, span } from "./race_scale.js";

const atOnce = 300, tableAtOnce = 50;
// The service writes taps after the answer, up to 200 ms later on each instance, or seconds later if it is busy: after an event they
// are read again until two readings are the same and show a tap.
const looks = [300, 300, 600, 1200, 2400, 5000];

/** Reads the taps, again when turn moves, and then a few times more while their number grows. */
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
  const { data, error, showMore } = useTaps(id, round, turn);
  const count = data?.items.length ?? 0;
  useEffect(() => { if (count > 0) onMore(); }, [count]);
  const [wish, setWish] = useState("auto");
  const [rows, setRows] = useState(tableAtOnce);
  const { taps, winner } = readRace(data?.items ?? [], holder);
  const until = Number(wish) || 0; // µs, 0 for all
  const drawn = until ? taps.filter((t) => t.after_us <= until) : taps;
  const named = taps.slice(0, rows);
  const name = useNames([...new Set(named.map((t) => t.driver_id).concat(winner?.driver_id ?? []))]);
  return html`<section class="card" aria-labelledby="race">
    <div class="row between"><h2 id="race">The race</h2>
      ${taps.length > 1 && html`<label class="row soft">Axis <select value=${wish} onChange=${(e) => setWish(e.target.value)}>
        <option value="auto">as it reads best</option><option value="linear">linear</option><option value="log">logarithmic</option>
        ${beginnings(taps.map((t) => t.after_us)).map((b) => html`<option key=${b.us} value=${String(b.us)}>the first ${span(b.us)} (${b.taps} taps)</option>`)}
        </select></label>`}
    </div>
    <${Unread} error=${error} shown=${data} />
    ${data && taps.length === 0 && html`<p class="soft">Nobody has tapped in round ${round}.</p>`}
    ${taps.length > 0 && html`
      <p role="status">${summary(taps, winner, name)}</p>
      <${RaceChart} key=${wish} taps=${drawn} winner=${drawn.includes(winner) ? winner : undefined} wish=${until ? "linear" : wish} name=${name} />
      <${Taps} taps=${named} name=${name} />
      <div class="row more">
        ${rows < taps.length && html`<button onClick=${() => setRows(rows + 100)}>More rows (${taps.length - rows})</button>`}
        ${data.more && html`<button onClick=${showMore}>Later taps</button> <span class="soft">These are the first ${taps.length}.</span>`}
      </div>`}
  </section>`;
}

function summary(taps, winner, name) {
  const lost = taps.filter((t) => t.kind === "lost");
  const drivers = new Set(taps.map((t) => t.driver_id)).size;
  const tapped = `${taps.length} ${taps.length === 1 ? "tap" : "taps"} by ${drivers} ${drivers === 1 ? "driver" : "drivers"}.`;
  if (!winner) return `${tapped} Nobody won by a tap.`;
  const next = Math.min(...lost.filter((t) => t.behind >= 0).map((t) => t.behind));
  return `${tapped} ${name(winner.driver_id)} won${next < Infinity ? `, ${span(next)} ahead of the next` : ""}.`;
}

function Taps({ taps, name }) {
  return html`<div class="scroll tall" tabindex="0" role="region" aria-label="The taps">
    <table><caption class="hidden">The taps, the first one first</caption><thead><tr>
      <th scope="col">Rank</th><th scope="col">Driver</th><th scope="col">Result</th><th scope="col">Behind the winner</th>
      <th scope="col">After the first tap</th><th scope="col">Reaction</th><th scope="col">At</th><th scope="col">Instance</th><th scope="col">App</th>
    </tr></thead>
    <tbody>${taps.map((t) => html`<tr key=${t.id} class=${t.kind}>
      <td>${t.rank ?? "–"}</td><td><a href=${`#/drivers/${t.driver_id}`}>${name(t.driver_id)}</a></td><td>${t.word}</td>
      <td class="number">${behindWords(t.behind)}</td><td class="number">${span(t.after_us)}</td>
      <td class="number">${t.reaction_ms === null ? "–" : span(t.reaction_ms * 1000)}</td><td><${At} at=${t.at} /></td>
      <td>${t.instance ?? "–"}</td><td>${t.app_version ?? "–"}</td></tr>`)}</tbody></table></div>`;
}
