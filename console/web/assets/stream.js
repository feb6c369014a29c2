import { createParser } from "./preact.js";

// The service sends something every 15 s at least: a client that has received nothing for longer has lost its connection.
const silence = 20_000;
const slowest = 10_000;
// Somebody has more streams than the service allows, and a newer one has ended this one. It would end another one in turn.
const afterReplaced = 60_000;

/**
 * Follows a live stream until it is closed. It reconnects after a lost connection, and continues after its last event.
 *
 * @param {string} path
 * @param {{token?: string, after?: string, onEvent: (type: string, data: any, id: string) => void, onResync: () => void,
 *   onState: (state: "live"|"cut"|"refused") => void, onHeard?: () => void}} options
 * after: the id of the last event that the caller has. onResync: events may be lost, so the caller must read its data again. It is
 * called at the first connection too, unless that continues after an event: the stream delivers every event from then on. refused: the
 * token or the session is no longer valid, and the stream ends. onState is called at each change; onHeard after whatever comes, also a
 * heartbeat.
 * @returns {() => void} closes it
 */
export function follow(path, { token, after = "", onEvent, onResync, onState, onHeard }) {
  let last = after, state = "", failures = 0, pause = 0, closed = false;
  let attempt = new AbortController();

  const become = (next) => {
    if (next === state || closed) return;
    state = next;
    onState(next);
  };

  async function connect() {
    attempt = new AbortController();
    const { signal } = attempt;
    let watchdog;
    const heard = () => {
      clearTimeout(watchdog);
      watchdog = setTimeout(() => attempt.abort(), silence);
    };
    heard();
    try {
      const headers = { Accept: "text/event-stream" };
      if (token) headers.Authorization = `Bearer ${token}`;
      if (last) headers["Last-Event-ID"] = last;
      const response = await fetch(path, { headers, signal, cache: "no-store", credentials: token ? "omit" : "same-origin" });
      if (response.status === 401 || response.status === 403) return "refused";
      if (!response.ok) return "cut";
      failures = 0;
      if (!last) onResync();
      become("live");
      const parser = createParser({
        onEvent({ id, event, data }) {
          if (closed) return;
          if (id) last = id;
          if (event === "resync") onResync();
          else if (event === "replaced") pause = afterReplaced;
          else if (event !== "reconnect") onEvent(event, JSON.parse(data), last); // the service ends the stream after "reconnect"
        },
      });
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      for (;;) {
        const { value, done } = await reader.read();
        if (done) return "cut";
        heard();
        parser.feed(value);
        onHeard?.();
      }
    } catch {
      return "cut";
    } finally {
      clearTimeout(watchdog);
      attempt.abort();
    }
  }

  let wake = () => {};
  const hurry = () => { if (document.visibilityState === "visible") wake(); };
  const lost = () => attempt.abort(); // the browser knows before the socket does
  addEventListener("online", hurry);
  addEventListener("offline", lost);
  document.addEventListener("visibilitychange", hurry);

  (async () => {
    while (!closed) {
      const end = await connect();
      become(end);
      if (end === "refused") return;
      const wait = pause || Math.min(slowest, 250 * 2 ** failures++) * (0.5 + Math.random() / 2);
      pause = 0;
      await new Promise((resolve) => { wake = resolve; setTimeout(resolve, wait); });
    }
  })();

  return () => {
    closed = true;
    removeEventListener("online", hurry);
    removeEventListener("offline", lost);
    document.removeEventListener("visibilitychange", hurry);
    attempt.abort();
    wake();
  };
}
