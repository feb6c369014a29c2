import { useCallback, useEffect, useRef, useState } from "../assets/preact.js";
import { useLive } from "./live.js";

const gather = 250; // ms in which what happens is read once
// What no event tells of: who has seen it, the pushes, a tap that lost.
const every = 5_000, endedEvery = 30_000;

/**
 * Counts up when what is shown of a dispatch may have changed: when something has happened to it, when events may have been
 * missed, and every few seconds while somebody looks.
 * @param {string} id
 * @param {boolean} ended whether little more will come
 * @returns {{turn: number, stir: () => void, state: "live"|"cut"}} stir has it read again soon
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
