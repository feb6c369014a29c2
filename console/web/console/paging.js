import { html, useEffect, useState } from "../assets/preact.js";
import { list } from "../assets/api.js";
import { useLoaded } from "../assets/ui.js";

const step = 50;
const most = 1000;

/**
 * The beginning of a list, and more of it when asked. It is read again now and then, as the stream does not tell of everything.
 * @param {string} path
 * @param {Object<string, string>} [query] "" is left out
 * @param {number} [again] ms; 0 for never
 */
export function usePages(path, query = {}, again = 15_000) {
  const given = new URLSearchParams(Object.entries(query).filter(([, value]) => value !== "")).toString();
  const at = given ? `${path}?${given}` : path;
  const [size, setSize] = useState({ at, items: step });
  const items = size.at === at ? size.items : step;
  const loaded = useLoaded((signal) => list(at, items, { signal }).then((page) => ({ ...page, at })), [at, items]);
  useEffect(() => {
    if (!again) return undefined;
    const timer = setInterval(() => document.visibilityState === "visible" && loaded.reload(), again);
    return () => clearInterval(timer);
  }, [again]);
  return {
    ...loaded, items: loaded.data?.items ?? [], filtering: loaded.loading && loaded.data?.at !== at,
    more: () => setSize({ at, items: Math.min(most, items + step) }), full: items >= most,
  };
}

/** How much of a list is shown, and the button for more. @param {{pages: ReturnType<typeof usePages>, thing: string}} props thing in the plural */
export function More({ pages, thing }) {
  const { items, data, loading, error, filtering, more, full } = pages;
  const count = data && (items.length === 0 ? `No ${thing}.` : `${items.length} ${thing}${data.more ? ", and there are more" : ""}.`);
  return html`<div class="row">
    <span role="status" class="soft">${!data || filtering ? loading && "Reading …" : count}
      ${error && data && " What you see may be old."}</span>
    ${data?.more && !full && html`<button type="button" disabled=${loading} onClick=${more}>Show more</button>`}
    ${data?.more && full && html`<span class="soft">No more than these are shown: filter them.</span>`}
  </div>`;
}
