import { useEffect, useRef, useState } from "../assets/preact.js";
import { get, list, now, pause, worthRetrying } from "../assets/api.js";
import { empty, ended, live, reduce } from "./board_state.js";
import { queryOf } from "./kept.js";
import { useLive } from "./reading.js";

/** @import { Action, State } from "./board_state.js" */

const countEvery = 10_000, typing = 250, patience = 1000, mostQueued = 3000; // ms, and events

/**
 * Keeps the board's state up to date: from the stream, once per frame at most, and by readings of what the stream omits.
 * @param {string} region the readings and the counts are of this region, "" for all
 * @param {string} q the text of an additional search
 * @returns {{state: State, connection: "live"|"cut", error: Failure|null, partial: boolean}} partial: the search has not looked at all dispatches
 */
export function useBoard(region, q) {
  const [, draw] = useState(/** @type {State|null} */ (null));
  const [error, onError] = useState(/** @type {Failure|null} */ (null));
  const kept = useRef(/** @type {{state: State, queue: Schemas["AdminEvent"][], reading: ReturnType<typeof startReading>|null, wasLive: boolean}|null} */ (null));
  const k = kept.current ??= { state: empty(region), queue: [], reading: null, wasLive: false };

  const dispatch = (/** @type {Action} */ action) => {
    const next = reduce(k.state, action);
    if (next === k.state) return;
    k.state = next;
    draw(next);
    if (next.wanted.size > 0) k.reading?.ask("wanted");
    if (next.recount) k.reading?.ask("counts");
  };
  const frame = useFrame(() => {
    const events = k.queue.splice(0);
    if (events.length > 0) dispatch({ type: "events", events, now: now() });
  });
  const connection = useLive({
    onEvent(type, data) {
      if (k.queue.length >= mostQueued) {
        k.queue.length = 0; // the page is hidden: read again rather than catch up
        k.reading?.ask("all");
      }
      k.queue.push(data);
      frame();
    },
    onResync: () => k.reading?.ask("all"),
  });

  useEffect(() => {
    k.state = { ...empty(region), regions: k.state.regions, classes: k.state.classes };
    draw(k.state);
    const reading = k.reading = startReading({ region, state: () => k.state, dispatch, onError });
    // The connected stream causes a full reading. Without a stream the board is read after a second too.
    if (connection === "live") reading.ask("all");
    const late = setTimeout(() => k.state.loaded || reading.ask("all"), patience);
    const count = () => document.visibilityState === "visible" && reading.ask("counts");
    const timer = setInterval(count, countEvery);
    const clock = setInterval(() => dispatch({ type: "clock", now: now() }), 1000);
    document.addEventListener("visibilitychange", count);
    return () => {
      clearTimeout(late);
      clearInterval(timer);
      clearInterval(clock);
      document.removeEventListener("visibilitychange", count);
      reading.close();
    };
  }, [region]);

  useEffect(() => {
    if (connection !== "live") return;
    if (k.wasLive) k.reading?.ask("all");
    k.wasLive = true;
  }, [connection]);

  const partial = useSearch(region, q, dispatch, onError);
  return { state: k.state, connection, error, partial };
}

/** Returns a function that calls act in the next frame, or within a second if the browser renders no frames. @param {() => void} act */
function useFrame(act) {
  const latest = useRef(act);
  latest.current = act;
  const asked = useRef(/** @type {{frame: number, timer: number}|null} */ (null));
  const cancel = () => {
    if (!asked.current) return;
    cancelAnimationFrame(asked.current.frame);
    clearTimeout(asked.current.timer);
    asked.current = null;
  };
  useEffect(() => cancel, []);
  return () => {
    if (asked.current) return;
    const run = () => {
      cancel();
      latest.current();
    };
    asked.current = { frame: requestAnimationFrame(run), timer: setTimeout(run, 1000) };
  };
}

/**
 * Searches by the API, because the board does not hold every dispatch, until there is an answer. It returns whether the search has not looked at
 * all of them.
 * @param {string} region @param {string} q @param {(action: Action) => void} dispatch @param {(err: Failure|null) => void} onError
 */
function useSearch(region, q, dispatch, onError) {
  const [partial, setPartial] = useState(false);
  useEffect(() => {
    setPartial(false);
    if (!q) return undefined;
    const abort = new AbortController();
    (async () => {
      await pause(typing, abort.signal);
      const onFound = (/** @type {Schemas["Dispatch"][]} */ items) => dispatch({ type: "read", items, now: now() });
      setPartial(await search({ region, q }, { signal: abort.signal, onFound, onError }));
    })().catch((err) => {
      if (!abort.signal.aborted) onError(err);
    });
    return () => abort.abort();
  }, [region, q]);
  return partial;
}

/** The number of cards that a column is filled with. */
export const mostCards = 600;
const mostEnded = 20, mostSingle = 4, mostPages = 10;
const apart = 1000, slowest = 10_000; // ms between two readings, and after repeated failures

/** @param {Schemas["DispatchStatus"]} status @param {{region: string, q?: string}} filter */
const path = (status, { region, q = "" }) => "/v1/admin/dispatches?" + queryOf({ status, region, q });

/**
 * Reads the beginning of each column, narrowed to a region.
 * @param {string} region @param {AbortSignal} signal @returns {Promise<{items: Schemas["Dispatch"][], cut: State["cut"]}>}
 */
async function readLists(region, signal) {
  const lists = await Promise.all([...live, ...ended].map((s) => list(path(s, { region }), mostOf(s), { signal })));
  return { items: lists.flatMap((l) => l.items), cut: Object.fromEntries(live.map((s, i) => [s, lists[i].more])) };
}

/** @param {Schemas["DispatchStatus"]} status */
const mostOf = (status) => (live.includes(status) ? mostCards : mostEnded);

/**
 * Searches the columns' lists, one after the other: the service runs one search of a user at a time, and refuses those that wait for long. It sends a
 * request again until there is an answer.
 * @param {{region: string, q: string}} filter
 * @param {{signal: AbortSignal, onFound: (items: Schemas["Dispatch"][]) => void, onError: (err: Failure|null) => void}} options
 * @returns {Promise<boolean>} whether it has not looked at all dispatches
 */
export async function search(filter, { signal, onFound, onError }) {
  let partial = false;
  for (const status of [...live, ...ended]) {
    const found = await list(path(status, filter), mostOf(status), { signal, pages: mostPages, read: (url) => getAnswer(url, { signal, onError }) });
    onFound(found.items);
    partial ||= found.cut;
  }
  return partial;
}

/** @param {string} url @param {{signal: AbortSignal, onError: (err: Failure|null) => void}} options */
async function getAnswer(url, { signal, onError }) {
  for (let failures = 0; ; failures++) {
    try {
      const answer = await get(url, { signal });
      if (failures) onError(null);
      return answer;
    } catch (err) {
      signal.throwIfAborted();
      onError(err);
      if (!worthRetrying(err) && !(err.status >= 500)) throw err;
      await pause(Math.max((err.retryAfter || 0) * 1000, Math.min(slowest, apart * 2 ** failures)), signal);
    }
  }
}

/**
 * Reads a few dispatches one by one, and more of them by their columns: under load that is one page of each column.
 * @param {State} state @param {[id: string, version: number][]} asked @param {AbortSignal} signal @returns {Promise<Schemas["Dispatch"][]>}
 */
async function readWanted(state, asked, signal) {
  const gone = (/** @type {Failure} */ err) => {
    if (err.status !== 404) throw err;
    return null;
  };
  if (asked.length <= mostSingle) {
    const read = await Promise.all(asked.map(([id]) => get(`/v1/admin/dispatches/${id}`, { signal }).catch(gone)));
    return read.filter(Boolean);
  }
  const items = [];
  for (const status of new Set(asked.map(([id]) => state.cards.get(id)?.status))) {
    const ids = new Set(asked.map(([id]) => id).filter((id) => state.cards.get(id)?.status === status));
    if (!status) continue;
    let limit = Math.min(200, 2 * ids.size); // they are mostly new, and so at the column's beginning
    let cursor = "";
    do {
      const page = await get(path(status, state) + `&limit=${limit}` + (cursor && `&cursor=${encodeURIComponent(cursor)}`), { signal });
      items.push(...page.items);
      for (const d of page.items) ids.delete(d.id);
      cursor = page.next_cursor;
      limit = 200;
    } while (cursor && ids.size > 0 && items.length < mostCards);
  }
  return items;
}

/**
 * Reads the board's data, one request after another and once a second at most, until it is closed. After a failure it tries
 * again, at growing intervals.
 *
 * @param {{region: string, state: () => State, dispatch: (action: Action) => void, onError: (err: Failure|null) => void}} options
 * @returns {{ask: (what: "all"|"counts"|"wanted") => void, close: () => void}}
 */
function startReading({ region, state, dispatch, onError }) {
  const abort = new AbortController();
  const { signal } = abort;
  const due = /** @type {Set<"all"|"counts"|"wanted">} */ (new Set());
  let running = false, failures = 0;

  const counts = async () => {
    due.delete("counts");
    dispatch({ type: "board", board: await get("/v1/admin/board?" + queryOf({ region }), { signal }) });
  };
  const read = {
    async all() {
      due.clear();
      const from = state().seq;
      const lists = await readLists(region, signal);
      dispatch({ type: "lists", ...lists, from, now: now() });
      await counts();
    },
    async wanted() {
      due.delete("wanted");
      const asked = [...state().wanted];
      dispatch({ type: "read", items: await readWanted(state(), asked, signal), asked, now: now() });
    },
    counts,
  };

  async function run() {
    running = true;
    while (due.size > 0 && !signal.aborted) {
      const what = due.has("all") ? "all" : due.has("wanted") ? "wanted" : "counts";
      try {
        await read[what]();
        failures = 0;
        onError(null);
      } catch (err) {
        if (signal.aborted) return;
        due.add(what);
        failures++;
        onError(err);
      }
      await rest(failures ? Math.min(slowest, apart * 2 ** (failures - 1)) : apart);
    }
    running = false;
  }

  let wake = () => {};
  const rest = (/** @type {number} */ ms) => new Promise((/** @type {(_?: unknown) => void} */ resolve) => {
    const timer = setTimeout(resolve, ms);
    wake = () => {
      clearTimeout(timer);
      resolve();
    };
  });

  return {
    ask(what) {
      due.add(what);
      if (what === "all") wake(); // the stream is back, so the service is back
      if (!running && !signal.aborted) run();
    },
    close() {
      abort.abort();
      wake();
    },
  };
}
