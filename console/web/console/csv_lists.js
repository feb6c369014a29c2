// The columns of each exported list.
import { isoTime as time } from "./csv.js";
import { detailText } from "./audit.js";
import { forever } from "./drivers_state.js";

/** Returns an amount in its currency's main unit, as people write it. */
const major = ({ amount, currency }) =>
  amount / 10 ** new Intl.NumberFormat("en", { style: "currency", currency }).resolvedOptions().maximumFractionDigits;

const until = (at, t) => (at && Date.parse(at) >= forever ? t.drivers.suspendedOpen : time(at));

/**
 * By the name of a list: its path in the API, whether that answers it whole, the driver that a row names, whether rows name API keys,
 * and the columns, each with the title, the value of a row, and the kind if it has one. who names drivers, and keys API keys, by their ids.
 * @type {Record<string, {path: string, whole?: boolean, driver?: (row: any) => string|null, keys?: boolean,
 *   columns: (language: any, names: {who: (id: string) => string, keys: Map<string, string>}) => [string, (row: any) => any, "phone"?][]}>}
 */
export const lists = {
  dispatches: {
    path: "/v1/admin/dispatches",
    driver: (d) => d.accepted_by ?? null,
    columns: ({ t }, { who }) => [
      [t.terms.id, (d) => d.id], [t.fields.external_id, (d) => d.external_id], [t.dispatch.state, (d) => t.states[d.status]],
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
      [t.pushes.what, (n) => t.pushTypes[n.type]], [t.lists.status, (n) => t.pushStates[n.status]], [t.pushes.dispatch, (n) => n.dispatch_id],
      [t.dispatch.round, (n) => n.round], [t.pushes.to, (n) => who(n.driver_id)], [t.export.idOf(t.pushes.to), (n) => n.driver_id],
      [t.pushes.topic, (n) => n.topic], [t.lists.silent, (n) => (n.silent ? t.audit.yes : t.audit.no)], [t.pushes.attempts, (n) => n.attempts],
      [t.pushes.came, (n) => t.pushResults[n.result] ?? n.result], [t.fields.reason_code, (n) => n.reason], [t.lists.made, (n) => time(n.created_at)],
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
      [t.fields.name, (k) => k.name], [t.fields.role, (k) => t.roles[k.role]], [t.keys.made, (k) => time(k.created_at)],
      [t.export.revokedAt, (k) => time(k.revoked_at)], [t.keys.id, (k) => k.id],
    ],
  },
  audit: {
    path: "/v1/admin/audit",
    keys: true,
    columns: (language, { keys }) => {
      const { t } = language;
      const name = (id) => keys.get(id) ?? { unknown: t.audit.unknown, system: t.actor.service }[id] ?? id;
      return [
        [t.audit.when, (e) => time(e.at)], [t.audit.who, (e) => name(e.actor)], [t.export.idOf(t.audit.who), (e) => e.actor],
        [t.audit.did, (e) => t.audit.actions[e.action] ?? e.action], [t.audit.to, (e) => keys.get(e.target) ?? e.target], [t.export.idOf(t.audit.to), (e) => e.target],
        [t.audit.details, (e) => detailText(e.detail, language)], [t.audit.request, (e) => e.request_id], [t.terms.id, (e) => e.id],
      ];
    },
  },
};
