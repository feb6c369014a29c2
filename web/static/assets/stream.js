// The live stream: of one tab, and shared by all tabs of a browser.
import { createParser } from "./preact.js";
import { pause } from "./api.js";

// The service sends something every 15 s at least: a client that has received nothing for longer has lost its connection.
const silence = 20_000;
const slowest = 10_000;
// Somebody has more streams than the service allows, and a newer one has ended this one. It would end another one in turn.
const afterReplaced = 60_000;

/** @typedef {"live"|"cut"|"refused"} State refused: the token or the session is no longer valid */

/**
 * Follows a live stream until it is closed. It reconnects after a lost connection, and continues after its last event.
 *
 * @param {string} path
 * @param {{token?: string, after?: string, onEvent: (type: string, data: any, id: string) => void, onResync: () => void,
 *   onState: (state: State) => void, onHeard?: () => void}} options
 * after: the id of the last event that the caller has. onResync: events may be lost, so the caller must read its data again. It is
 * called at the first connection too, unless that continues after an event: the stream delivers every event from then on. onState is
 * called at each change, and the stream ends after refused; onHeard after whatever comes, also a heartbeat.
 * @returns {() => void} closes it
 */
export function follow(path, { token, after = "", onEvent, onResync, onState, onHeard }) {
  /** @type {State|""} */
  let state = "";
  let last = after, failures = 0, pause = 0, closed = false;
  let attempt = new AbortController();

  const become = (/** @type {State} */ next) => {
    if (next === state || closed) return;
    state = next;
    onState(next);
  };

  /** @returns {Promise<State>} how it ended */
  async function connect() {
    attempt = new AbortController();
    const { signal } = attempt;
    /** @type {number|undefined} */
    let watchdog;
    const heard = () => {
      clearTimeout(watchdog);
      watchdog = setTimeout(() => attempt.abort(), silence);
    };
    heard();
    try {
      /** @type {Record<string, string>} */
      const headers = { Accept: "text/event-stream" };
      if (token) headers.Authorization = `Bearer ${token}`;
      if (last) headers["Last-Event-ID"] = last;
      const response = await fetch(path, { headers, signal, cache: "no-store", credentials: token ? "omit" : "same-origin" });
      if (response.status === 401 || response.status === 403) return "refused";
      if (!response.ok || !response.body) return "cut";
      failures = 0;
      if (!last) onResync();
      become("live");
      const parser = createParser({
        onEvent({ id, event = "message", data }) {
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
      await new Promise((/** @type {(_?: unknown) => void} */ resolve) => { wake = resolve; setTimeout(resolve, wait); });
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

// One live stream for all tabs of a browser that show the same user's data. Over HTTP/1.1 a browser opens six connections to a
// host, for all its tabs together, and a stream keeps one of them.

const mostStreams = 4; // of a browser, whoever its tabs are: the other two connections are for requests
const unheard = 25_000; // ms: the leading tab passes on the service's heartbeats, which come every 15 s
const unanswered = 2000, soon = 300, again = 5000; // ms

/**
 * What the leading tab says: an event and the id of the last one, the state, that events may be lost, whether it is hidden.
 * @typedef {{id?: string, event?: [type: string, data: any], resync?: boolean, now?: State, hidden?: boolean}} News
 */

/**
 * Follows a live stream as follow does, together with the browser's other tabs that use the same name: one of them leads, which means
 * that it opens the stream and passes on what comes. When it closes, or is hidden while another is visible, another leads and continues
 * after the last event. A user without a free stream reads again every few seconds; for a visible tab, the hidden ones give their streams
 * up. Without Web Locks, which browsers have only over TLS or on the service's own machine, each visible tab has its own stream.
 *
 * @param {string} path
 * @param {string} name names the user and the session
 * @param {Parameters<typeof follow>[1]} options
 * @returns {() => void} closes it
 */
export function share(path, name, { token, onEvent, onResync, onState, onHeard }) {
  const { locks } = navigator;
  const mine = `firsttap.stream ${name}`;
  const tabs = new BroadcastChannel(mine), users = new BroadcastChannel("firsttap.streams");
  const visible = () => document.visibilityState === "visible";
  /** @type {State} */
  let state = "cut";
  let last = "", joined = false, leading = false, asleep = !locks && !visible(), steals = false, closed = false;
  let turn = new AbortController(), wake = () => {};
  /** @type {number|undefined} */
  let watchdog;

  const steal = () => {
    if (!locks || leading || steals || !visible()) return;
    steals = true;
    turn.abort();
  };
  const expect = (/** @type {number} */ ms) => {
    clearTimeout(watchdog);
    watchdog = setTimeout(steal, ms); // the leading tab is frozen
  };
  /** Handles what the leading tab says, in every tab. @param {News} news */
  const take = ({ id, event, resync, now, hidden }) => {
    if (closed) return;
    expect(unheard);
    if (id) last = id;
    if (resync || (now === "live" && !joined)) {
      joined = true;
      onResync();
    }
    if (event) onEvent(...event, last);
    if (now && now !== state) onState(state = now);
    onHeard?.();
    if (hidden) steal();
  };
  const tell = (/** @type {News} */ news) => {
    take(news);
    if (locks && !closed) tabs.postMessage({ ...news, hidden: !visible() });
  };
  tabs.onmessage = ({ data }) => {
    if (data !== "who leads?") take(data);
    else if (leading) tell({ id: last, now: state });
  };
  const sleep = () => {
    asleep = true;
    turn.abort();
  };
  users.onmessage = () => visible() || sleep();
  const shown = () => {
    if (!visible()) {
      if (!locks) sleep();
      return;
    }
    asleep = false;
    wake();
    if (leading || !locks) return;
    tabs.postMessage("who leads?");
    expect(unanswered);
  };

  /** @param {AbortSignal} signal @returns {Promise<void>} */
  const lead = (signal) => new Promise((resolve) => {
    const stop = follow(path, {
      token, after: last,
      onEvent: (type, data, id) => tell({ id, event: [type, data] }),
      onResync: () => tell({ resync: true }),
      onHeard: () => tell({ id: last, now: state }),
      onState: (now) => {
        if (now !== "refused") return tell({ now });
        close(); // each tab asks for itself
        return onState(now);
      },
    });
    const end = () => {
      stop();
      resolve();
    };
    signal.aborted ? end() : signal.addEventListener("abort", end);
  });

  /** Leads while the browser has a stream for this user. @param {AbortSignal} signal */
  const leadInSlot = async (signal) => {
    leading = true;
    for (let wait = soon; !signal.aborted; wait = again) {
      for (let n = 1; n <= mostStreams && !signal.aborted; n++) {
        await locks.request(`firsttap.streams ${n}`, { ifAvailable: true }, (slot) => slot && lead(signal));
      }
      if (signal.aborted) break;
      if (!visible()) {
        sleep();
        break;
      }
      users.postMessage("a visible tab needs a stream");
      if (wait === again) tell({ resync: true });
      await pause(wait, signal).catch(() => {});
    }
    leading = false;
  };

  (async () => {
    while (!closed) {
      while (asleep && !closed) await new Promise((/** @type {(_?: unknown) => void} */ resolve) => { wake = resolve; });
      if (closed) return;
      turn = new AbortController();
      const { signal } = turn;
      const how = steals ? { steal: true } : { signal };
      steals = false;
      /** @type {Promise<void>|undefined} */
      let led;
      try {
        await (locks ? locks.request(mine, how, () => (led = leadInSlot(signal))) : lead(signal));
      } catch (err) {
        if (err.name !== "AbortError") throw err;
        turn.abort(); // another tab has stolen the lock
        await led;
      }
    }
  })();

  document.addEventListener("visibilitychange", shown);
  addEventListener("pageshow", shown); // a page that comes back from the browser's cache
  shown();

  function close() {
    closed = true;
    document.removeEventListener("visibilitychange", shown);
    removeEventListener("pageshow", shown);
    clearTimeout(watchdog);
    tabs.close();
    users.close();
    turn.abort();
    wake();
  }
  return close;
}
