import { html, useEffect, useRef, useState } from "../assets/preact.js";
import { now, send } from "../assets/api.js";
import { useLanguage } from "../assets/language.js";
import { Dialog, Trouble } from "../assets/ui.js";
import { csv, readAll, stamp } from "./csv.js";
import { lists } from "./csv_lists.js";
import { queryOf } from "./query.js";

const most = 50_000; // rows: what a browser makes at once, and a spreadsheet opens
const mostNamed = 10_000; // drivers and keys: the others are shown by their ids alone
const size = 200;

/** Returns a function that reads a page of a list. A reading is repeated a few times, also because a long list meets the rate limit. */
const pagesOf = (path, query, signal) => async (page) =>
  (await send("GET", `${path}?${[queryOf(query), page].filter(Boolean).join("&")}`, { signal, timeout: 30_000 })).data;

/** Returns the one page of a list that the API answers whole, the oldest first. */
const wholeOf = (path, query, signal) => async () => {
  const { items } = (await send("GET", `${path}?${queryOf(query)}`, { signal, timeout: 30_000 })).data;
  return { items: items.reverse(), next_cursor: null };
};

/** Reads the names of these drivers. @returns {Promise<Map<string, string>>} by id */
async function namesOf(path, ids, signal) {
  const names = new Map(), missing = new Set(ids);
  if (missing.size === 0) return names;
  const keep = ({ id, name }) => missing.delete(id) && names.set(id, name);
  const page = pagesOf(path, {}, signal);
  const enough = async (query) => (missing.size === 0 ? { items: [], next_cursor: null } : page(query));
  await readAll(enough, { most: mostNamed, size, keep });
  return names;
}

/** Reads a list and makes its file. @returns {Promise<{parts: string[], rows: number, looked: number, more: boolean}>} */
async function make({ list, query, keep }, language, signal, onRead) {
  const of = lists[list];
  const { items, looked, more } = await readAll(of.whole ? wholeOf(of.path, query, signal) : pagesOf(of.path, query, signal), { most, size, keep, onRead });
  const drivers = await namesOf("/v1/admin/drivers", of.driver ? items.map(of.driver).filter(Boolean) : [], signal);
  const keys = await namesOf("/v1/admin/api-keys", of.keys ? items.flatMap((e) => [e.actor, e.target]).filter((id) => id.startsWith("key_")) : [], signal);
  const columns = of.columns(language, { who: (id) => drivers.get(id) ?? "", keys });
  const rows = items.slice(0, most).map((item) => columns.map(([, value]) => value(item)));
  return { parts: csv(columns.map(([title]) => title), rows, columns.map(([, , kind]) => kind)), rows: rows.length, looked: Math.min(looked, most), more: more || items.length > most };
}

/** Saves a file by the browser's own download. */
function save(name, parts) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob(parts, { type: "text/csv;charset=utf-8" }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000); // some browsers read it later
}

/** Exports a list at once, and shows the progress and the outcome. Closing it stops the export. */
export function ExportDialog({ list, query, keep, onClose }) {
  const language = useLanguage();
  const { t } = language;
  const [state, set] = useState({ read: 0, error: null, done: null });
  const stop = useRef(null);
  const begin = async () => {
    const { signal } = stop.current = new AbortController();
    set({ read: 0, error: null, done: null });
    try {
      const made = await make({ list, query, keep }, language, signal, (read) => set((s) => ({ ...s, read })));
      if (signal.aborted) return;
      const name = `firsttap-${list}-${stamp(now())}${made.more ? `-first-${made.looked}` : ""}.csv`;
      save(name, made.parts);
      set((s) => ({ ...s, done: { name, ...made, parts: null } }));
    } catch (error) {
      if (!signal.aborted) set((s) => ({ ...s, error }));
    }
  };
  useEffect(() => {
    begin();
    return () => stop.current.abort();
  }, []);
  const { read, error, done } = state;
  return html`<${Dialog} title=${t.export.title} onClose=${onClose}>
    <div class="stack">
      ${!done && !error && html`<p>${t.export.read(read)}</p><progress aria-label=${t.export.title} />`}
      <div role="status">${done && html`<p class="good">${t.export.done(done.rows)} <code>${done.name}</code></p>
        ${done.more && html`<p class="warn">${t.export.cut(done.looked)}</p>`}`}</div>
      <${Trouble} error=${error} reading />
      <div class="row">
        ${error && html`<button type="button" class="primary" onClick=${begin}>${t.export.again}</button>`}
        <button type="button" onClick=${onClose}>${done ? t.done : t.export.stop}</button>
      </div>
    </div>
  <//>`;
}
