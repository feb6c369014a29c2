// Repeats a request until its outcome is known.
import { Problem, Unreachable, pause } from "../assets/api.js";

/** @type {Set<() => void>} */
const waiting = new Set();

/** Ends every wait before a repetition, because the service may be reachable again. */
export function hurry() {
  for (const wake of waiting) wake();
}

// A longer Retry-After is a final answer, and not a short overload.
const longWait = 60; // s

/** Reports whether a request's outcome is unknown. The same request, sent again, returns the outcome. @param {unknown} err */
export const notKnown = (err) => err instanceof Unreachable ||
  (err instanceof Problem && (err.status >= 500 || (err.status === 429 && !(err.retryAfter > longWait))));

/** The wait in ms after a number of failures. It is bounded and random, so that phones do not repeat at the same time. @param {number} failures */
export const pace = (failures) => Math.min(8000, 400 * 2 ** failures) * (0.5 + Math.random() / 2);

/** Waits ms, or until hurry is called. It rejects when signal is aborted. @param {number} ms @param {AbortSignal} signal */
export async function nap(ms, signal) {
  const woken = new AbortController();
  const wake = () => woken.abort();
  waiting.add(wake);
  try {
    await pause(ms, AbortSignal.any([signal, woken.signal]));
  } catch {
    signal.throwIfAborted();
  } finally {
    waiting.delete(wake);
  }
}

/**
 * Waits before a request is sent again, for at least the service's Retry-After.
 * @param {Failure} err @param {number} failures @param {AbortSignal} signal
 */
export async function rest(err, failures, signal) {
  if (err.retryAfter) await pause(err.retryAfter * 1000 * (1 + Math.random() / 4), signal);
  else await nap(pace(failures), signal);
}

/**
 * Repeats act until its outcome is known.
 * @template T
 * @param {() => Promise<T>} act
 * @param {{signal: AbortSignal, onUnknown?: (err: Error) => void}} options
 * @returns {Promise<T>}
 * @throws the final error of act, or the abort of signal
 */
export async function insist(act, { signal, onUnknown }) {
  for (let failures = 0; ; failures++) {
    try {
      return await act();
    } catch (err) {
      signal.throwIfAborted();
      if (!notKnown(err)) throw err;
      onUnknown?.(err);
      await rest(err, failures, signal);
    }
  }
}
