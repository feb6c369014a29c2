// Watches for dispatches that nobody sees or takes, in one tab of the browser.
import { get, list, now } from "../assets/api.js";
import { alertsOf, apart, every, expiredSince, gather, lookIsDue, news } from "./alerts_state.js";

/** @import { Kind } from "./alerts_state.js" */
/** @typedef {Pick<Schemas["Dispatch"], "id"|"region"|"vehicle_class"|"round"> & {site_address?: string}} Alerted */

const mostRead = 2000; // of the open dispatches, and of the expired ones
const mostEnds = 1000;
const longest = 600_000, late = 15_000; // ms: how far back a new watch looks, and how late the service may close a dispatch

const toldPlace = "firsttap.alerts.told";

// What was told and when the last look was is kept for the tab that takes over, and for after a reload.
/** @template T @param {string} name @param {T} otherwise @returns {T} */
function load(name, otherwise) {
  try {
    return JSON.parse(localStorage.getItem(name) ?? "null") ?? otherwise;
  } catch {
    return otherwise;
  }
}

/** @param {string} name @param {string[]|number} value */
function store(name, value) {
  try {
    localStorage.setItem(name, JSON.stringify(value));
  } catch {
    // The storage is full or forbidden: a reload forgets it.
  }
}

/**
 * Reads a few dispatches as they are now, without those that are in another state.
 * @param {string[]} ids @param {Schemas["DispatchStatus"]} status @param {AbortSignal} signal @returns {Promise<Schemas["Dispatch"][]>}
 */
async function readEach(ids, status, signal) {
  const gone = (/** @type {Failure} */ err) => {
    if (err.status !== 404) throw err;
    return null;
  };
  const found = await Promise.all(ids.map((id) => get(`/v1/admin/dispatches/${encodeURIComponent(id)}`, { signal }).catch(gone)));
  return found.filter((d) => d?.status === status);
}

/** @param {Schemas["DispatchStatus"]} status @param {AbortSignal} signal @returns {Promise<Schemas["Dispatch"][]>} */
const readList = async (status, signal) => (await list(`/v1/admin/dispatches?status=${status}`, mostRead, { signal })).items;

/**
 * Shows an alert. A click on it opens its dispatch, or the board.
 * @param {{kind: Kind, of: Alerted[]}} alert @param {Reader} language @param {boolean} silent
 */
function show({ kind, of }, { t, lang }, silent) {
  const [d] = of;
  const one = of.length === 1;
  const title = one ? t.alerts.kinds[kind] : t.alerts.many[kind](of.length);
  const body = one ? [d.site_address, d.region, d.vehicle_class, ...(d.round > 1 ? [t.round(d.round)] : [])].join(" · ") : undefined;
  try {
    const shown = new Notification(title, { body, lang, silent, tag: one ? `${kind} ${d.id} ${d.round}` : "" });
    shown.onclick = () => {
      focus();
      location.hash = one ? `#/dispatches/${d.id}` : "#/board";
      shown.close();
    };
  } catch {
    // Chrome on Android shows none for a page: the sound is all.
  }
}

/**
 * Looks, one look after the other, until it is closed.
 * @param {() => Reader} language @param {ReturnType<typeof prepare>} sound @param {string} lastLook
 */
function look(language, sound, lastLook) {
  const abort = new AbortController();
  const { signal } = abort;
  let told = load(toldPlace, /** @type {string[]} */ ([]));
  const known = /** @type {Map<string, Schemas["Dispatch"]>} */ (new Map()); // the unseen dispatches, by id
  const ended = /** @type {Map<string, Schemas["AdminEvent"]>} */ (new Map()); // the events of dispatches that have expired, by id
  let missed = true; // such events may have been missed
  let last = load(lastLook, now() + late); // without a look before, what has expired until now is not alerted to
  let running = false, again = false, looked = 0;
  /** @type {number|undefined} */
  let later;
  /** @type {number|undefined} */
  let asked; // when the first event came whose look waits for more of them; undefined if none waits

  const alert = (/** @type {Kind} */ kind, /** @type {Alerted[]} */ dispatches) => {
    const { told: next, due } = news(told, kind, dispatches);
    if (due.length === 0) return;
    store(toldPlace, told = next);
    const heard = sound.ring();
    for (const a of alertsOf(kind, due)) show(a, language(), heard);
  };
  const unseen = async () => {
    const ids = /** @type {Schemas["Board"]} */ (await get("/v1/admin/board", { signal })).unseen_ids ?? [];
    for (const id of known.keys()) if (!ids.includes(id)) known.delete(id);
    const others = ids.filter((id) => !known.has(id));
    const read = others.length > apart ? (await readList("PENDING", signal)).filter((d) => others.includes(d.id)) : await readEach(others, "PENDING", signal);
    for (const d of read) known.set(d.id, d);
    alert("unseen", [...known.values()]);
  };
  const expired = async (/** @type {number} */ at) => {
    const events = [...ended.values()]; // the next look is for those that come meanwhile
    if (missed) {
      const since = Math.max(last, at - longest) - late;
      missed = false;
      const items = await readList("EXPIRED", signal).catch((err) => {
        missed = true;
        throw err;
      });
      alert("expired", expiredSince(items, since));
    }
    const few = events.length <= apart; // only an alert to one has its address, which an event does not have
    alert("expired", few ? await readEach(events.map((e) => e.dispatch_id), "EXPIRED", signal) : events.map((e) => ({ ...e, id: e.dispatch_id })));
    for (const e of events) if (ended.get(e.dispatch_id) === e) ended.delete(e.dispatch_id);
  };
  const run = async () => {
    again = true;
    if (running || signal.aborted) return;
    running = true;
    again = false;
    clearTimeout(later);
    asked = undefined;
    looked = Date.now();
    const at = now();
    try {
      await expired(at);
      await unseen();
      store(lastLook, last = at);
    } catch {
      // The next look finds what this one did not; the page shows itself that the service is away.
    }
    running = false;
    if (again && !signal.aborted) soon();
  };
  // Dispatches that expire together are one look, and one alert if they are many.
  const soon = () => {
    again = true;
    if (running || asked !== undefined) return;
    asked = Date.now();
    later = setTimeout(run, gather);
  };
  run();
  const timer = setInterval(() => asked === undefined && run(), every);
  return {
    onEvent(/** @type {Schemas["AdminEvent"]} */ event) {
      known.delete(event.dispatch_id); // another round may have begun
      if (event.type !== "dispatch.expired") return;
      if (ended.size < mostEnds) ended.set(event.dispatch_id, event);
      else missed = true;
      soon();
    },
    onResync() {
      missed = true;
      soon();
    },
    // Browsers slow down the timers of a hidden tab, and not what it receives.
    onHeard: () => lookIsDue({ at: Date.now(), looked, asked }) && run(),
    close() {
      abort.abort();
      clearInterval(timer);
      clearTimeout(later);
    },
  };
}

/**
 * Watches as soon as no other tab of this browser does, until it is closed.
 * @param {() => Reader} language the reader's language now
 * @param {string} lastLook where the time of the last look is stored
 * @returns {{onEvent: (event: Schemas["AdminEvent"]) => void, onResync: () => void, onHeard: () => void, ring: () => boolean, close: () => void}}
 */
export function watch(language, lastLook) {
  const sound = prepare();
  const abort = new AbortController();
  /** @type {ReturnType<typeof look>|null} */
  let looking = null;
  let end = () => {};
  const turn = () => new Promise((/** @type {(_?: unknown) => void} */ resolve) => {
    end = resolve;
    looking = look(language, sound, lastLook);
  });
  navigator.locks.request("firsttap.alerts", { signal: abort.signal }, turn).catch((err) => {
    if (!abort.signal.aborted) throw err;
  });
  return {
    onEvent: (event) => looking?.onEvent(event),
    onResync: () => looking?.onResync(),
    onHeard: () => looking?.onHeard(),
    ring: sound.ring,
    close() {
      abort.abort();
      looking?.close();
      end();
      sound.close();
    },
  };
}

const tones = [[880, 0], [660, 0.18], [880, 0.36]]; // Hz, and when, in s
const length = 0.16, loud = 0.25;

/**
 * Prepares the sound. A browser lets a page sound only after its user has pressed something in it.
 * @returns {{ring: () => boolean, close: () => void}} ring reports whether it is heard
 */
function prepare() {
  const context = new AudioContext();
  const wake = () => context.state === "suspended" && context.resume().catch(() => {}); // it was closed before it could
  for (const press of ["pointerdown", "keydown"]) addEventListener(press, wake);
  wake();
  return {
    ring() {
      for (const [pitch, after] of context.state === "running" ? tones : []) play(context, pitch, context.currentTime + after);
      return context.state === "running";
    },
    close() {
      for (const press of ["pointerdown", "keydown"]) removeEventListener(press, wake);
      context.close();
    },
  };
}

/** @param {AudioContext} context @param {number} pitch @param {number} at */
function play(context, pitch, at) {
  const tone = context.createOscillator(), volume = context.createGain();
  tone.frequency.value = pitch;
  volume.gain.setValueAtTime(0, at);
  volume.gain.linearRampToValueAtTime(loud, at + 0.02);
  volume.gain.linearRampToValueAtTime(0, at + length);
  tone.connect(volume).connect(context.destination);
  tone.start(at);
  tone.stop(at + length);
}
