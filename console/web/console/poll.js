import { html, useEffect, useReducer, useState } from "../assets/preact.js";
import { Problem, Unreachable, now } from "../assets/api.js";
import { useLanguage } from "../assets/language.js";
import { explain } from "../assets/problems.js";

/**
 * Reads a component's data, and again every ms while the page is visible. After a failure the old data stays, beside the
 * error.
 * @param {(signal: AbortSignal) => Promise<any>} load
 * @param {number} ms
 * @param {any[]} dependencies a change of one causes a reading at once
 * @returns {{data: any, error: Error|null, at: number, reload: () => void}} at is the time of data, 0 before it is read
 */
export function usePolled(load, ms, dependencies) {
  const [state, set] = useState({ data: undefined, error: null, at: 0 });
  const [turn, reload] = useReducer((n) => n + 1, 0);
  useEffect(() => {
    const abort = new AbortController();
    let timer, busy = false;
    const read = async () => {
      if (busy || document.visibilityState !== "visible") return;
      clearTimeout(timer);
      busy = true;
      let wait = ms;
      try {
        const data = await load(abort.signal);
        if (!abort.signal.aborted) set({ data, error: null, at: now() });
      } catch (error) {
        wait = Math.max(ms, (error.retryAfter || 0) * 1000);
        if (!abort.signal.aborted) set((s) => ({ ...s, error }));
      }
      busy = false;
      if (!abort.signal.aborted) timer = setTimeout(read, wait);
    };
    const cut = () => set((s) => ({ ...s, error: new Unreachable() })); // the browser knows before a request does
    read();
    document.addEventListener("visibilitychange", read);
    addEventListener("online", read);
    addEventListener("offline", cut);
    return () => {
      abort.abort();
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", read);
      removeEventListener("online", read);
      removeEventListener("offline", cut);
    };
  }, [...dependencies, ms, turn]);
  return { ...state, reload };
}

/** Shows whether the data is current, and otherwise its age and the error. */
export function Freshness({ of: { error, at } }) {
  const language = useLanguage();
  const { t: { freshness }, clock } = language;
  const text = !error ? (at ? freshness.current : freshness.reading) : at ? freshness.old(clock(at)) : freshness.nothing;
  return html`<span role="status" class="row"><span class=${"badge " + (error ? "bad" : "good")}>${text}</span>
    ${error && html`<span class="bad">${why(error, language)}</span>`}</span>`;
}

function why(error, language) {
  const text = explain(error, language, true);
  return error instanceof Problem && error.code === "INTERNAL" ? language.t.freshness.withStatus(error.status, text) : text;
}
