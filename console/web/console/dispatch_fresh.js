import { useCallback, useEffect, useRef, useState } from "../assets/preact.js";
import { useLive } from "./live.js";

const gather = 250; // ms in which several events cause one reading
// No event announces a driver's view, a push, or a lost tap.
const every = 5_000, endedEvery = 30_000;

/**
 * Counts up when the shown data of a dispatch may have changed: after an event of it, after events may have been missed, and
 * every few seconds while the page is visible.
 * @param {string} id
 * @param {boolean} ended few changes are still to come
 * @returns {{turn: number, stir: () => void, state: "live"|"cut"}} stir causes another reading soon
 */
export function useTurns(id, ended) {
  const [turn, setTurn] = useState(0);
  const timer = useRef(0);
  const stir = useCallback(() => {
    timer.current ||= setTimeout(() => {
      timer.current = 0;
      setTurn((n) => n + 1);
    }, gather);
  }, []);
  useEffect(() => () => clearTimeout(timer.current), []);
  useEffect(() => {
    const poll = setInterval(() => document.visibilityState === "visible" && stir(), ended ? endedEvery : every);
    return () => clearInterval(poll);
  }, [ended]);
  const state = useLive({ onEvent: (_, event) => event.dispatch_id === id && stir(), onResync: stir });
  return { turn, stir, state };
}
