// Exports a list: its columns, its reading, and the dialog.
import { html, useEffect, useRef, useState } from "../assets/preact.js";
import { now, send } from "../assets/api.js";
import { useLanguage } from "../assets/language.js";
import { Dialog } from "../assets/ui.js";
import { named } from "../assets/words.js";
import { detailText } from "./audit_detail.js";
import { csv, isoTime as time, readAll, stamp } from "./csv.js";
import { Trouble } from "./dialogs.js";
import { fractionDigits } from "./forms.js";
import { queryOf } from "./kept.js";
import { forever } from "./names.js";

/** @typedef {{items: any[], next_cursor: string|null}} Page of any list */
/** @typedef {import("./reading.js").Exported} Exported */

const most = 50_000; // rows: what a browser makes at once, and a spreadsheet opens
const mostNamed = 10_000; // drivers and keys: the others are shown by their ids alone
const size = 200;

/**
 * Returns a function that reads a page of a list. A reading is repeated a few times, also because a long list meets the rate limit.
 * @param {string} path @param {Record<string, string>} query @param {AbortSignal} signal @returns {(page: string) => Promise<Page>}
 */
const pagesOf = (path, query, signal) => async (page) =>
  (await send("GET", `${path}?${[queryOf(query), page].filter(Boolean).join("&")}`, { signal, timeout: 30_000 })).data;

/**
 * Returns the one page of a list that the API answers whole, the oldest first.
 * @param {string} path @param {Record<string, string>} query @param {AbortSignal} signal @returns {() => Promise<Page>}
 */
const wholeOf = (path, query, signal) => async () => {
  const { items } = (await send("GET", `${path}?${queryOf(query)}`, { signal, timeout: 30_000 })).data;
  return { items: items.reverse(), next_cursor: null };
};

/**
 * Reads the names of these drivers.
 * @param {string} path @param {string[]} ids @param {AbortSignal} signal @returns {Promise<Map<string, string>>} by id
 */
async function namesOf(path, ids, signal) {
  const names = /** @type {Map<string, string>} */ (new Map()), missing = new Set(ids);
  if (missing.size === 0) return names;
  const keep = (/** @type {{id: string, name: string}} */ { id, name }) => missing.delete(id) && Boolean(names.set(id, name));
  const page = pagesOf(path, {}, signal);
  const enough = async (/** @type {string} */ query) => (missing.size === 0 ? { items: [], next_cursor: null } : page(query));
  await readAll(enough, { most: mostNamed, size, keep });
  return names;
}

/**
 * Reads a list and makes its file.
 * @param {Exported} what
 * @param {Reader} language
 * @param {AbortSignal} signal
 * @param {(read: number) => void} onRead
 * @returns {Promise<{parts: string[], rows: number, looked: number, more: boolean}>}
 */
async function make({ list, query = {}, keep }, language, signal, onRead) {
  const of = lists[list];
  const { items, looked, more } = await readAll(of.whole ? wholeOf(of.path, query, signal) : pagesOf(of.path, query, signal), { most, size, keep, onRead });
  const drivers = await namesOf("/v1/admin/drivers", of.driver ? items.flatMap((item) => of.driver?.(item) || []) : [], signal);
  const keys = await namesOf("/v1/admin/api-keys", of.keys ? items.flatMap((e) => [e.actor, e.target]).filter((id) => id.startsWith("key_")) : [], signal);
  const columns = of.columns(language, { who: (id) => drivers.get(id ?? "") ?? "", keys });
  const rows = items.slice(0, most).map((item) => columns.map(([, value]) => value(item)));
  return { parts: csv(columns.map(([title]) => title), rows, columns.map(([, , kind]) => kind)), rows: rows.length, looked: Math.min(looked, most), more: more || items.length > most };
}

/** Saves a file by the browser's own download. @param {string} name @param {string[]} parts */
function save(name, parts) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob(parts, { type: "text/csv;charset=utf-8" }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000); // some browsers read it later
}

/** Exports a list at once, and shows the progress and the outcome. Closing it stops the export. @param {Exported & {onClose: () => void}} props */
export function ExportDialog({ list, query, keep, onClose }) {
  const language = useLanguage();
  const { t } = language;
  const [state, set] = useState(/** @type {{read: number, error: Failure|null, done: {name: string, rows: number, looked: number, more: boolean}|null}} */ ({ read: 0, error: null, done: null }));
  const stop = useRef(new AbortController());
  const begin = async () => {
    const { signal } = stop.current = new AbortController();
    set({ read: 0, error: null, done: null });
    try {
      const made = await make({ list, query, keep }, language, signal, (read) => set((s) => ({ ...s, read })));
      if (signal.aborted) return;
      const name = `firsttap-${list}-${stamp(now())}${made.more ? `-first-${made.looked}` : ""}.csv`;
      save(name, made.parts);
      const { rows, looked, more } = made;
      set((s) => ({ ...s, done: { name, rows, looked, more } }));
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

// The columns of each exported list.

/** Returns an amount in its currency's main unit, as people write it. @param {Schemas["Money"]} fee */
const major = ({ amount, currency }) => amount / 10 ** fractionDigits(currency);

/** @param {string|null} at @param {Texts} t */
const until = (at, t) => (at && Date.parse(at) >= forever ? t.drivers.suspendedOpen : time(at));

/**
 * By the name of a list: its path in the API, whether that answers it whole, the driver that a row names, whether rows name API keys,
 * and the columns, each with the title, the value of a row, and the kind if it has one. who names drivers, and keys API keys, by their ids.
 * @template T
 * @typedef {{path: string, whole?: boolean, driver?: (row: T) => string|null, keys?: boolean,
 *   columns: (reader: Reader, names: {who: (id?: string|null) => string, keys: Map<string, string>}) => [string, (row: T) => unknown, "phone"?][]}} Listed
 */

/**
 * @type {{dispatches: Listed<Schemas["Dispatch"]>, drivers: Listed<Schemas["AdminDriver"]>, notifications: Listed<Schemas["Notification"]>,
 *   supply: Listed<Schemas["SupplyPoint"]>, keys: Listed<Schemas["Key"]>, audit: Listed<Schemas["AuditEntry"]>}}
 */
const lists = {
  dispatches: {
    path: "/v1/admin/dispatches",
    driver: (d) => d.accepted_by ?? null,
    columns: ({ t }, { who }) => [
      [t.terms.id, (d) => d.id], [t.fields.external_id, (d) => d.external_id], [t.dispatch.state, (d) => named(t.states, d.status)],
      [t.dispatch.round, (d) => d.round], [t.region, (d) => d.region], [t.fields.vehicle_class, (d) => d.vehicle_class],
      [t.edit.height, (d) => d.min_working_height_m], [t.fields.site_address, (d) => d.site_address], [t.fields.site_lat, (d) => d.site_lat],
      [t.fields.site_lng, (d) => d.site_lng], [t.fields.work_starts_at, (d) => time(d.work_starts_at)], [t.fields.work_ends_at, (d) => time(d.work_ends_at)],
      [t.fields.fee, (d) => major(d.fee)], [t.fields["fee.currency"], (d) => d.fee.currency], [t.fields.opens_at, (d) => time(d.opens_at)],
      [t.fields.expires_at, (d) => time(d.expires_at)], [t.export.acceptedAt, (d) => time(d.accepted_at)], [t.terms.holder, (d) => who(d.accepted_by)],
      [t.export.idOf(t.terms.holder), (d) => d.accepted_by], [t.fields.note, (d) => d.note], [t.terms.made, (d) => time(d.created_at)],
      [t.terms.changed, (d) => time(d.updated_at)],
    ],
  },
  drivers: {
    path: "/v1/admin/drivers",
    columns: ({ t }) => [
      [t.fields.name, (d) => d.name], [t.drivers.duty, (d) => (d.on_duty ? t.drivers.on : t.drivers.off)], [t.fields.regions, (d) => t.list(d.regions)],
      [t.fields.vehicle_class, (d) => d.vehicle_class], [t.drivers.heightM, (d) => d.working_height_m], [t.fields.phone, (d) => d.phone, "phone"],
      [t.drivers.suspension, (d) => until(d.suspended_until, t)], [t.fields.locale, (d) => d.locale], [t.fields.firebase_uid, (d) => d.firebase_uid],
      [t.drivers.id, (d) => d.id], [t.drivers.since, (d) => time(d.created_at)], [t.drivers.lastChange, (d) => time(d.updated_at)],
    ],
  },
  notifications: {
    path: "/v1/admin/notifications",
    driver: (n) => n.driver_id,
    columns: ({ t }, { who }) => [
      [t.pushes.what, (n) => named(t.pushTypes, n.type)], [t.lists.status, (n) => named(t.pushStates, n.status)], [t.pushes.dispatch, (n) => n.dispatch_id],
      [t.dispatch.round, (n) => n.round], [t.pushes.to, (n) => who(n.driver_id)], [t.export.idOf(t.pushes.to), (n) => n.driver_id],
      [t.pushes.topic, (n) => n.topic], [t.lists.silent, (n) => (n.silent ? t.audit.yes : t.audit.no)], [t.pushes.attempts, (n) => n.attempts],
      [t.pushes.came, (n) => named(t.pushResults, n.result) ?? n.result], [t.fields.reason_code, (n) => n.reason], [t.lists.made, (n) => time(n.created_at)],
      [t.pushes.last.PENDING, (n) => time(n.next_at)], [t.pushes.last.SENT, (n) => time(n.sent_at)], [t.export.delay, (n) => n.delay_ms],
      [t.fields.expires_at, (n) => time(n.expires_at)], [t.terms.id, (n) => n.id],
    ],
  },
  supply: {
    path: "/v1/admin/supply",
    whole: true,
    columns: ({ t }) => [
      [t.supply.at, (p) => time(p.at)], [t.region, (p) => p.region ?? t.supply.allRegions], [t.supply.onDuty, (p) => p.on_duty], [t.supply.open, (p) => p.open],
    ],
  },
  keys: {
    path: "/v1/admin/api-keys",
    columns: ({ t }) => [
      [t.fields.name, (k) => k.name], [t.fields.role, (k) => named(t.roles, k.role)], [t.keys.made, (k) => time(k.created_at)],
      [t.export.revokedAt, (k) => time(k.revoked_at)], [t.keys.id, (k) => k.id],
    ],
  },
  audit: {
    path: "/v1/admin/audit",
    keys: true,
    columns: (language, { keys }) => {
      const { t } = language;
      const name = (/** @type {string} */ id) => keys.get(id) ?? (id === "unknown" ? t.audit.unknown : id === "system" ? t.actor.service : id);
      return [
        [t.audit.when, (e) => time(e.at)], [t.audit.who, (e) => name(e.actor)], [t.export.idOf(t.audit.who), (e) => e.actor],
        [t.audit.did, (e) => named(t.audit.actions, e.action) ?? e.action], [t.audit.to, (e) => keys.get(e.target) ?? e.target], [t.export.idOf(t.audit.to), (e) => e.target],
        [t.audit.details, (e) => detailText(e.detail, language)], [t.audit.request, (e) => e.request_id], [t.terms.id, (e) => e.id],
      ];
    },
  },
};
