// Watches for dispatches that nobody sees or takes, in one tab of the browser.
import { get, list, now } from "../assets/api.js";
import { lastLook } from "./alerts.js";
import { alertsOf, apart, every, expiredSince, gather, lookIsDue, news } from "./alerts_state.js";
import { prepare } from "./alerts_sound.js";

const mostRead = 2000; // of the open dispatches, and of the expired ones
const mostEnds = 1000;
const longest = 600_000, late = 15_000; // ms: how far back a new watch looks, and how late the service may close a dispatch

const toldPlace = "firsttap.alerts.told";

// What was told and when the last look was is kept for the tab that takes over, and for after a reload.
function load(name, otherwise) {
  try {
    return JSON.parse(localStorage.getItem(name)) ?? otherwise;
  } catch {
    return otherwise;
  }
}

function store(name, value) {
  try {
    localStorage.setItem(name, JSON.stringify(value));
  } catch {
    // The storage is full or forbidden: a reload forgets it.
  }
}

/** Reads a few dispatches as they are now, without those that are in another state. */
async function readEach(ids, status, signal) {
  const gone = (err) => {
    if (err.status !== 404) throw err;
    return null;
  };
  const found = await Promise.all(ids.map((id) => get(`/v1/admin/dispatches/${encodeURIComponent(id)}`, { signal }).catch(gone)));
  return found.filter((d) => d?.status === status);
}

const readList = async (status, signal) => (await list(`/v1/admin/dispatches?status=${status}`, mostRead, { signal })).items;

/** Shows an alert. A click on it opens its dispatch, or the board. @param {{kind: string, of: any[]}} alert */
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

/** Looks, one look after the other, until it is closed. */
function look(language, sound) {
  const abort = new AbortController();
  const { signal } = abort;
  let told = load(toldPlace, []);
  const known = new Map(); // the unseen dispatches, by id
  const ended = new Map(); // the events of dispatches that have expired, by id
  let missed = true; // such events may have been missed
  let last = load(lastLook, now() + late); // without a look before, what has expired until now is not alerted to
  let running = false, again = false, looked = 0, later;
  let asked; // when the first event came whose look waits for more of them; undefined if none waits

  const alert = (kind, dispatches) => {
    const { told: next, due } = news(told, kind, dispatches);
    if (due.length === 0) return;
    store(toldPlace, told = next);
    const heard = sound.ring();
    for (const a of alertsOf(kind, due)) show(a, language(), heard);
  };
  const unseen = async () => {
    const ids = (await get("/v1/admin/board", { signal })).unseen_ids ?? [];
    for (const id of known.keys()) if (!ids.includes(id)) known.delete(id);
    const others = ids.filter((id) => !known.has(id));
    const read = others.length > apart ? (await readList("PENDING", signal)).filter((d) => others.includes(d.id)) : await readEach(others, "PENDING", signal);
    for (const d of read) known.set(d.id, d);
    alert("unseen", [...known.values()]);
  };
  const expired = async (at) => {
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
    onEvent(event) {
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
 * @param {() => any} language the reader's language now
 * @returns {{onEvent: (event: any) => void, onResync: () => void, onHeard: () => void, ring: () => boolean, close: () => void}}
 */
export function watch(language) {
  const sound = prepare();
  const abort = new AbortController();
  let looking = null, end = () => {};
  const turn = () => new Promise((resolve) => {
    end = resolve;
    looking = look(language, sound);
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
