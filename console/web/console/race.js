import { html, useEffect, useRef, useState } from "../assets/preact.js";
import { list } from "../assets/api.js";
import { useLanguage } from "../assets/language.js";
import { useLoaded } from "../assets/ui.js";
import { At } from "./dispatch_lists.js";
import { Unread } from "./dispatch_words.js";
import { useNames } from "./names.js";
import { RaceChart } from "./race_chart.js";
import { behindWords, readRace } from "./race_read.js";
import { beginnings } from "./race_scale.js";

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
      <${RaceChart} key=${wish} taps=${drawn} winner=${drawn.includes(winner) ? winner : undefined} wish=${until ? "linear" : wish} name=${name} />
      <${Taps} taps=${named} name=${name} />
      <div class="row more">
        ${rows < taps.length && html`<button onClick=${() => setRows(rows + 100)}>${race.moreRows(taps.length - rows)}</button>`}
        ${data.more && html`<button onClick=${showMore}>${race.later}</button> <span class="soft">${t.lists.first(taps.length)}</span>`}
      </div>`}
  </section>`;
}

function summary(taps, winner, name, { t: { race }, duration }) {
  const lost = taps.filter((t) => t.kind === "lost");
  const drivers = new Set(taps.map((t) => t.driver_id)).size;
  const tapped = race.tapped(taps.length, drivers);
  if (!winner) return `${tapped} ${race.noWinner}`;
  const next = Math.min(...lost.filter((t) => t.behind >= 0).map((t) => t.behind));
  const won = name(winner.driver_id);
  return `${tapped} ${next < Infinity ? race.wonAhead(won, duration(next)) : race.won(won)}`;
}

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
