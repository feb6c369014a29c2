// One live stream for all tabs of a browser that show the same user's data. Over HTTP/1.1 a browser opens six connections to a
// host, for all its tabs together, and a stream keeps one of them.
import { pause } from "./api.js";
import { follow } from "./stream.js";

const mostStreams = 4; // of a browser, whoever its tabs are: the other two connections are for requests
const unheard = 25_000; // ms: the leading tab passes on the service's heartbeats, which come every 15 s
const unanswered = 2000, soon = 300, again = 5000; // ms

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
  let last = "", state = "cut", joined = false, leading = false, asleep = !locks && !visible(), steals = false, closed = false;
  let turn = new AbortController(), watchdog, wake = () => {};

  const steal = () => {
    if (!locks || leading || steals || !visible()) return;
    steals = true;
    turn.abort();
  };
  const expect = (ms) => {
    clearTimeout(watchdog);
    watchdog = setTimeout(steal, ms); // the leading tab is frozen
  };
  // take handles what the leading tab says, in every tab.
  const take = ({ id, event, resync, now, hidden }) => {
    if (closed) return;
    expect(unheard);
    if (id) last = id;
    if (resync || (now === "live" && !joined)) {
      joined = true;
      onResync();
    }
    if (event) onEvent(...event);
    if (now && now !== state) onState(state = now);
    onHeard?.();
    if (hidden) steal();
  };
  const tell = (news) => {
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

  // leadInSlot leads while the browser has a stream for this user.
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
      while (asleep && !closed) await new Promise((resolve) => { wake = resolve; });
      if (closed) return;
      turn = new AbortController();
      const { signal } = turn;
      const how = steals ? { steal: true } : { signal };
      steals = false;
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
