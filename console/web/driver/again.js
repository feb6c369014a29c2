// Asking again until somebody knows.
import { Problem, Unreachable, pause } from "../assets/api.js";

const waiting = new Set();

/** Wakes who waits to ask again: there is hope. */
export function hurry() {
  for (const wake of waiting) wake();
}

// A wait that is longer than this is an answer, and not a moment's load.
const longWait = 60; // s

/** Whether nobody knows what came of a request: the same one again will tell. */
export const notKnown = (err) => err instanceof Unreachable ||
  (err instanceof Problem && (err.status >= 500 || (err.status === 429 && !(err.retryAfter > longWait))));

/** How long to wait after a number of failures, in ms: a bounded pace that differs from phone to phone. */
export const pace = (failures) => Math.min(8000, 400 * 2 ** failures) * (0.5 + Math.random() / 2);

/** Waits ms, or until hurry; rejects when signal is aborted. */
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

/** Waits before a request is sent again: at least for as long as the service asks for. */
export async function rest(err, failures, signal) {
  if (err.retryAfter) await pause(err.retryAfter * 1000 * (1 + Math.random() / 4), signal);
  else await nap(pace(failures), signal);
}

/**
 * Does something that may be repeated, until it is known what came of it.
 * @param {() => Promise<any>} act
 * @param {{signal: AbortSignal, onUnknown?: (err: Error) => void}} options
 * @throws what is known to have failed, or when signal is aborted
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
