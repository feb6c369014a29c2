// How pages read: from the live stream, at intervals, and lists page by page, which can be exported.
import { createContext, html, useContext, useEffect, useRef, useState } from "../assets/preact.js";
import { Problem, Unreachable, list, now } from "../assets/api.js";
import { useLanguage } from "../assets/language.js";
import { share } from "../assets/stream.js";
import { useLoaded, useTurn } from "../assets/ui.js";
import { PageError, Trouble, explain } from "./dialogs.js";
import { queryOf, useSettled } from "./kept.js";

/** @typedef {{onEvent?: (type: string, data: Schemas["AdminEvent"]) => void, onResync?: () => void, onHeard?: () => void}} Listener */

const Stream = createContext({ listeners: /** @type {Set<Listener>} */ (new Set()), state: /** @type {"live"|"cut"} */ ("cut"), since: 0 });

/**
 * Opens the one live stream that all the pages of a session share, in all tabs.
 * @param {{session: Schemas["Session"], onRefused: () => void, children?: unknown}} props
 */
export function Live({ session, onRefused, children }) {
  const [{ state, since }, setState] = useState(() => ({ state: /** @type {"live"|"cut"} */ ("cut"), since: now() }));
  const listeners = useRef(/** @type {Set<Listener>} */ (new Set()));
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
 * @param {Listener} listener the latest listener is
 * called; onResync: events may be lost, so the data must be read again; onHeard: the service sent something, which it does every 15 s
 * @returns {"live"|"cut"} live while events arrive
 */
export function useLive(listener) {
  const { listeners, state } = useContext(Stream);
  const latest = useRef(listener);
  latest.current = listener;
  useEffect(() => {
    /** @type {Listener} */
    const mine = {
      onEvent: (type, data) => latest.current.onEvent?.(type, data), onResync: () => latest.current.onResync?.(), onHeard: () => latest.current.onHeard?.(),
    };
    listeners.add(mine);
    return () => listeners.delete(mine);
  }, [listeners]);
  return state;
}

/** @returns {number} the time of the last change between live and cut, in ms by the service's clock */
export const useSince = () => useContext(Stream).since;

/** Shows whether the page is live. @param {{state: "live"|"cut"}} props */
export function LiveBadge({ state }) {
  const { t } = useLanguage();
  return html`<span role="status" class=${"badge " + (state === "live" ? "good" : "bad")}>
    ${state === "live" ? t.live : t.cutOff}</span>`;
}

/**
 * Reads a component's data, and again every ms while the page is visible. After a failure the old data stays, beside the
 * error.
 * @template T
 * @param {(signal: AbortSignal) => Promise<T>} load
 * @param {number} ms
 * @param {unknown[]} dependencies a change of one causes a reading at once
 * @returns {{data: T|undefined, error: Failure|null, at: number, reload: () => void}} at is the time of data, 0 before it is read
 */
export function usePolled(load, ms, dependencies) {
  const [state, set] = useState(/** @type {{data: T|undefined, error: Failure|null, at: number}} */ ({ data: undefined, error: null, at: 0 }));
  const [turn, reload] = useTurn();
  useEffect(() => {
    const abort = new AbortController();
    /** @type {number|undefined} */
    let timer;
    let busy = false;
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

/** Shows whether the data is current, and otherwise its age and the error. @param {{of: {error: Failure|null, at: number}}} props */
export function Freshness({ of: { error, at } }) {
  const language = useLanguage();
  const { t: { freshness }, clock } = language;
  const text = !error ? (at ? freshness.current : freshness.reading) : at ? freshness.old(clock(at)) : freshness.nothing;
  return html`<span role="status" class="row"><span class=${"badge " + (error ? "bad" : "good")}>${text}</span>
    ${error && html`<span class="bad">${why(error, language)}</span>`}</span>`;
}

/** @param {Failure} error @param {Reader} language */
function why(error, language) {
  const text = explain(error, language, true);
  return error instanceof Problem && error.code === "INTERNAL" ? language.t.freshness.withStatus(error.status, text) : text;
}

const step = 50;
// The pages of a search may be short: so many are read for each step, and then the button reads on.
const mostPages = 10;
const most = 1000;

/**
 * The beginning of a list, and more of it on demand. The stream does not announce changes of these lists, so they are read
 * again at intervals, and after a reconnection of the stream.
 * @param {string} path
 * @param {Object<string, string>} [query] a "" is omitted
 * @param {number} [again] ms
 */
export function usePages(path, query = {}, again = 15_000) {
  const given = queryOf(query);
  const asked = given ? `${path}?${given}` : path;
  const at = useSettled(asked); // not at every key
  const [size, setSize] = useState({ at, items: step });
  const items = size.at === at ? size.items : step;
  const loaded = useLoaded((signal) => list(at, items, { signal, pages: (items / step) * mostPages }).then((page) => ({ ...page, at })), [at, items]);
  const live = useLive({});
  const before = useRef(live);
  useEffect(() => {
    if (live === "live" && before.current === "cut") loaded.reload();
    before.current = live;
  }, [live]);
  useEffect(() => {
    const timer = setInterval(() => document.visibilityState === "visible" && loaded.reload(), again);
    return () => clearInterval(timer);
  }, [again]);
  return {
    ...loaded, items: loaded.data?.items ?? [], old: loaded.data && (loaded.error !== null || live === "cut"),
    filtering: loaded.data?.at !== asked && loaded.error === null,
    more: () => setSize({ at, items: Math.min(most, items + step) }), full: items >= most,
  };
}

/**
 * The shown part of a list, and the button for more.
 * @param {{pages: ReturnType<typeof usePages>, of: "drivers"|"keys"|"entries"|"devices"|"webhooks"|"deliveries"}} props of names the list's items
 */
export function More({ pages, of }) {
  const { t } = useLanguage();
  const { items, data, loading, old, filtering, more, full } = pages;
  const count = t.paging.count(t.paging[of](items.length), data?.more);
  return html`<div class="row">
    <span role="status" class="soft">${filtering ? t.reading : data && count}
      ${old && ` ${t.paging.old}`}</span>
    ${data?.more && !full && html`<button type="button" disabled=${loading || filtering} onClick=${more}>${t.paging.more}</button>`}
    ${data?.more && full && html`<span class="soft">${t.paging.full}</span>`}
  </div>`;
}

/**
 * query has the present filters, of which a "" is omitted; keep is a filter that the API does not have.
 * @typedef {{list: "dispatches"|"drivers"|"notifications"|"supply"|"keys"|"audit", query?: Record<string, string>, keep?: (item: any) => boolean}} Exported
 */

const notLoaded = new PageError(({ t }) => t.export.notLoaded);

/**
 * The button that exports a list as a file. What it takes is loaded when it is pressed.
 * @param {Exported} props
 */
export function Export({ list, query = {}, keep }) {
  const { t } = useLanguage();
  const [open, setOpen] = useState(/** @type {{Dialog?: typeof import("./export_dialog.js").ExportDialog, error?: Error}|null} */ (null));
  const begin = () => import("./export_dialog.js").then(({ ExportDialog }) => setOpen({ Dialog: ExportDialog }), () => setOpen({ error: notLoaded }));
  return html`<button type="button" onClick=${begin}>${t.export.button}</button>
    ${open?.error && html`<${Trouble} error=${open.error} />`}
    ${open?.Dialog && html`<${open.Dialog} list=${list} query=${query} keep=${keep} onClose=${() => setOpen(null)} />`}`;
}
