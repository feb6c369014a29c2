import { html, useEffect, useRef, useState } from "../assets/preact.js";
import { Problem, Unreachable, freshKey, send } from "../assets/api.js";
import { useLanguage } from "../assets/language.js";
import { forget, keep, kept } from "./kept.js";

// Reports whether an answer is about the request itself. Any other leaves the outcome of an earlier try of the request open.
export const settles = (err) => err instanceof Problem && err.status < 500 && ![401, 403, 429].includes(err.status) &&
  err.code !== "IDEMPOTENCY_KEY_IN_USE";

const unknown = (err) => err instanceof Unreachable || err.status >= 500 || err.code === "IDEMPOTENCY_KEY_IN_USE";

/**
 * Creates something by POST, once. Until an answer comes the same body is sent with the same Idempotency-Key, also after a
 * reload; another body gets another key. It begins no second creation while one is under way.
 *
 * @param {string} path
 * @param {string} name the name under which the unanswered request is stored
 * @returns {{make: (body: any) => Promise<any>, busy: boolean, error: Error|null, unsettled: boolean}}
 * make returns the created object, or undefined after a failure, which error then holds; unsettled: the last outcome is
 * unknown
 */
export function useMaking(path, name) {
  const [state, set] = useState(() => ({ busy: false, error: null, unsettled: kept(name) !== null }));
  const underWay = useRef(null);
  // Leaving the page aborts the request. Its key stays stored, so that it can be sent again.
  useEffect(() => () => underWay.current?.abort(), []);

  const make = async (body) => {
    if (underWay.current) return undefined; // the second click of a double click comes before the button is disabled
    const { signal } = underWay.current = new AbortController();
    const said = JSON.stringify(body);
    const before = kept(name);
    const { key } = before?.said === said ? before : { key: freshKey() };
    keep(name, { said, key });
    set((s) => ({ ...s, busy: true }));
    try {
      const { data } = await send("POST", path, { body, idempotencyKey: key, signal });
      forget(name);
      set({ busy: false, error: null, unsettled: false });
      return data;
    } catch (error) {
      if (signal.aborted) return undefined;
      if (settles(error)) forget(name);
      set({ busy: false, error, unsettled: unknown(error) });
      return undefined;
    } finally {
      underWay.current = null;
    }
  };
  return { ...state, make };
}

/** Shows the next step while the outcome of a creation is unknown. @param {{unsettled: boolean, thing: "dispatch"|"driver"|"key"|"webhook"}} props */
export function Unsettled({ unsettled, thing }) {
  const { t } = useLanguage();
  return html`<div role="status" class="unsettled">${unsettled && t.making[thing]}</div>`;
}
