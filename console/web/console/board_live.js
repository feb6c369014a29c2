import { useEffect, useRef, useState } from "../assets/preact.js";
import { now, pause } from "../assets/api.js";
import { useLive } from "./live.js";
import { search, startReading } from "./board_read.js";
import { empty, reduce } from "./board_state.js";

const countEvery = 10_000, typing = 250, patience = 1000, mostQueued = 3000; // ms, and events

/**
 * Keeps the board's state up to date: from the stream, once per frame at most, and by readings of what the stream omits.
 * @param {string} region the readings and the counts are of this region, "" for all
 * @param {string} q the text of an additional search
 * @returns {{state: object, connection: "live"|"cut", error: Error|null, partial: boolean}} partial: the search has not looked at all dispatches
 */
export function useBoard(region, q) {
  const [, draw] = useState(null);
  const [error, onError] = useState(null);
  const kept = useRef(null);
  kept.current ??= { state: empty(region), queue: [], reading: null, wasLive: false };
  const k = kept.current;

  const dispatch = (action) => {
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
    k.reading = startReading({ region, state: () => k.state, dispatch, onError });
    // The connected stream causes a full reading. Without a stream the board is read after a second too.
    if (connection === "live") k.reading.ask("all");
    const late = setTimeout(() => k.state.loaded || k.reading.ask("all"), patience);
    const count = () => document.visibilityState === "visible" && k.reading.ask("counts");
    const timer = setInterval(count, countEvery);
    const clock = setInterval(() => dispatch({ type: "clock", now: now() }), 1000);
    document.addEventListener("visibilitychange", count);
    return () => {
      clearTimeout(late);
      clearInterval(timer);
      clearInterval(clock);
      document.removeEventListener("visibilitychange", count);
      k.reading.close();
    };
  }, [region]);

  useEffect(() => {
    if (connection !== "live") return;
    if (k.wasLive) k.reading.ask("all");
    k.wasLive = true;
  }, [connection]);

  const partial = useSearch(region, q, dispatch, onError);
  return { state: k.state, connection, error, partial };
}

// useFrame returns a function that calls act in the next frame, or within a second if the browser renders no frames.
function useFrame(act) {
  const latest = useRef(act);
  latest.current = act;
  const asked = useRef(null);
  const cancel = () => {
    cancelAnimationFrame(asked.current?.frame);
    clearTimeout(asked.current?.timer);
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

// useSearch searches by the API, because the board does not hold every dispatch, until there is an answer. It returns whether the search has not
// looked at all of them.
function useSearch(region, q, dispatch, onError) {
  const [partial, setPartial] = useState(false);
  useEffect(() => {
    setPartial(false);
    if (!q) return undefined;
    const abort = new AbortController();
    (async () => {
      await pause(typing, abort.signal);
      const onFound = (items) => dispatch({ type: "read", items, now: now() });
      setPartial(await search({ region, q }, { signal: abort.signal, onFound, onError }));
    })().catch((err) => {
      if (!abort.signal.aborted) onError(err);
    });
    return () => abort.abort();
  }, [region, q]);
  return partial;
}
