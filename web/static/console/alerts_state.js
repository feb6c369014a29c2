// Which alerts are due, as pure functions.
/** @typedef {"unseen"|"expired"} Kind */

const most = 1000; // alerts that are remembered
/** The number of alerts of one kind at once that are shown one by one; more of them are one. */
export const apart = 3;

/** @param {string} kind @param {{id: string, round: number}} d */
const key = (kind, d) => `${kind} ${d.id} ${d.round}`;

/**
 * Finds the dispatches that nobody was alerted to yet in their round.
 * @param {string[]} told what was alerted to, the latest last
 * @param {Kind} kind
 * @param {D[]} dispatches of that kind now
 * @returns {{told: string[], due: D[]}} told is the same array if it has not changed
 * @template {{id: string, round: number}} D
 */
export function news(told, kind, dispatches) {
  const known = new Set(told);
  const due = dispatches.filter((d) => !known.has(key(kind, d)));
  if (due.length === 0) return { told, due };
  // What goes on keeps its place among the latest, or it would be alerted to again.
  const now = new Set(dispatches.map((d) => key(kind, d)));
  return { told: [...told.filter((k) => !now.has(k)), ...now].slice(-most), due };
}

/**
 * Returns the alerts to be shown: one for each dispatch, or one for many.
 * @template D @param {Kind} kind @param {D[]} due @returns {{kind: Kind, of: D[]}[]}
 */
export const alertsOf = (kind, due) =>
  due.length > apart ? [{ kind, of: due }] : due.map((d) => ({ kind, of: [d] }));

/**
 * Returns the dispatches that nobody took, and that expired at a time or later.
 * @param {Schemas["Dispatch"][]} dispatches @param {number} since ms
 */
export const expiredSince = (dispatches, since) =>
  dispatches.filter((d) => d.status === "EXPIRED" && Date.parse(d.expires_at) >= since);

/** How often a watch looks, and how long it waits for more events after one that asks for a look; ms. */
export const every = 10_000, gather = 1000;

/**
 * Reports whether a look is due. While events gather, their look is the next one: none begins before it and takes a part of them.
 * @param {{at: number, looked: number, asked?: number}} times ms: now, the last look, and the first event that asks for the next
 */
export const lookIsDue = ({ at, looked, asked }) => (asked === undefined ? at - looked >= every : at - asked >= gather);
