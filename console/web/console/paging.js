import { html, useEffect, useRef, useState } from "../assets/preact.js";
import { list } from "../assets/api.js";
import { useLanguage } from "../assets/language.js";
import { useLoaded } from "../assets/ui.js";
import { useLive } from "./live.js";
import { queryOf, useSettled } from "./query.js";

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
