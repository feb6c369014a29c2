import { createContext, html, useContext, useEffect, useRef, useState } from "../assets/preact.js";
import { now } from "../assets/api.js";
import { useLanguage } from "../assets/language.js";
import { share } from "../assets/shared_stream.js";

const Stream = createContext(null);

/** Opens the one live stream that all the pages of a session share, in all tabs. */
export function Live({ session, onRefused, children }) {
  const [{ state, since }, setState] = useState(() => ({ state: "cut", since: now() }));
  const listeners = useRef(new Set());
  useEffect(() => share("/v1/admin/stream", session.key_id, {
    onEvent: (type, data) => listeners.current.forEach((l) => l.onEvent?.(type, data)),
    onResync: () => listeners.current.forEach((l) => l.onResync?.()),
    onHeard: () => listeners.current.forEach((l) => l.onHeard?.()),
    onState: (s) => (s === "refused" ? onRefused() : setState({ state: s, since: now() })),
  }), []);
  return html`<${Stream.Provider} value=${{ listeners: listeners.current, state, since }}>${children}<//>`;
}

/**
 * Calls the listener at events, as long as the component is mounted.
 * @param {{onEvent?: (type: string, data: any) => void, onResync?: () => void, onHeard?: () => void}} listener the latest listener is
 * called; onResync: events may be lost, so the data must be read again; onHeard: the service sent something, which it does every 15 s
 * @returns {"live"|"cut"} live while events arrive
 */
export function useLive(listener) {
  const { listeners, state } = useContext(Stream);
  const latest = useRef(listener);
  latest.current = listener;
  useEffect(() => {
    const mine = {
      onEvent: (...a) => latest.current.onEvent?.(...a), onResync: () => latest.current.onResync?.(), onHeard: () => latest.current.onHeard?.(),
    };
    listeners.add(mine);
    return () => listeners.delete(mine);
  }, [listeners]);
  return state;
}

/** @returns {number} the time of the last change between live and cut, in ms by the service's clock */
export const useSince = () => useContext(Stream).since;

/** Shows whether the page is live. */
export function LiveBadge({ state }) {
  const { t } = useLanguage();
  return html`<span role="status" class=${"badge " + (state === "live" ? "good" : "bad")}>
    ${state === "live" ? t.live : t.cutOff}</span>`;
}
