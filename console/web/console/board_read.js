import { get, list, now, pause, worthRetrying } from "../assets/api.js";
import { ended, live } from "./board_state.js";
import { queryOf } from "./query.js";

/** The number of cards that a column is filled with. */
export const mostCards = 600;
const mostEnded = 20, mostSingle = 4, mostPages = 10;
const apart = 1000, slowest = 10_000; // ms between two readings, and after repeated failures

const path = (status, { region, q = "" }) => "/v1/admin/dispatches?" + queryOf({ status, region, q });

/** Reads the beginning of each column, narrowed to a region. @returns {Promise<{items: any[], cut: object}>} */
async function readLists(region, signal) {
  const lists = await Promise.all([...live, ...ended].map((s) => list(path(s, { region }), mostOf(s), { signal })));
  return { items: lists.flatMap((l) => l.items), cut: Object.fromEntries(live.map((s, i) => [s, lists[i].more])) };
}

const mostOf = (status) => (live.includes(status) ? mostCards : mostEnded);

/**
 * Searches the columns' lists, one after the other: the service runs one search of a user at a time, and refuses those that wait for long. It sends a
 * request again until there is an answer.
 * @param {{region: string, q: string}} filter
 * @param {{signal: AbortSignal, onFound: (items: any[]) => void, onError: (err: Error|null) => void}} options
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

// readWanted reads a few dispatches one by one, and more of them by their columns: under load that is one page of each column.
async function readWanted(state, asked, signal) {
  const gone = (err) => {
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
 * @param {{region: string, state: () => object, dispatch: (action: object) => void, onError: (err: Error|null) => void}} options
 * @returns {{ask: (what: "all"|"counts"|"wanted") => void, close: () => void}}
 */
export function startReading({ region, state, dispatch, onError }) {
  const abort = new AbortController();
  const { signal } = abort;
  const due = new Set();
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
      const what = ["all", "wanted", "counts"].find((w) => due.has(w));
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
  const rest = (ms) => new Promise((resolve) => {
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
