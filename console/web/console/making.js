import { html, useEffect, useRef, useState } from "../assets/preact.js";
import { Problem, Unreachable, freshKey, send } from "../assets/api.js";
import { forget, keep, kept } from "./kept.js";

// Whether an answer is about the request itself. Any other leaves open what came of an earlier try of the same request.
const settles = (err) => err instanceof Problem && err.status < 500 && ![401, 403, 429].includes(err.status) &&
  err.code !== "IDEMPOTENCY_KEY_IN_USE";

const unknown = (err) => err instanceof Unreachable || err.status >= 500 || err.code === "IDEMPOTENCY_KEY_IN_USE";

/**
 * Makes something by POST, once. Until there is an answer the same body is sent with the same Idempotency-Key, also after a
 * reload; another body gets another key. While one is under way, another is not begun.
 *
 * @param {string} path
 * @param {string} name what is under way is kept by this name
 * @returns {{make: (body: any) => Promise<any>, busy: boolean, error: Error|null, unsettled: boolean}}
 *   make returns what was made, or undefined where it was not, which error then says; unsettled: nobody knows what came of the
 *   last one
 */
export function useMaking(path, name) {
  const [state, set] = useState(() => ({ busy: false, error: null, unsettled: kept(name) !== null }));
  const underWay = useRef(null);
  // Who leaves the page leaves the request: its key is kept, so that it can be sent again.
  useEffect(() => () => underWay.current?.abort(), []);

  const make = async (body) => {
    if (underWay.current) return undefined; // the second click of a double one comes before the button is disabled
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

/** Says what to do while nobody knows whether something was made. */
export function Unsettled({ unsettled, thing }) {
  return html`<div role="status" class="unsettled">${unsettled && `Nobody knows yet whether the last ${thing} was made. Send it again as it is, and it is made once.
    Changed, it would be another one.`}</div>`;
}
