// The board's state, as a pure function of its input: the answers that it read, the events of the stream, and the clock.
// They overlap and overtake each other. The larger version of a dispatch is the newer one. Within one version only the
// clock changes the status: SCHEDULED, then PENDING, then EXPIRED.

import { found, termsOf } from "./search.js";

export const live = ["SCHEDULED", "PENDING", "ACCEPTED", "IN_PROGRESS"];
export const ended = ["COMPLETED", "CANCELED", "EXPIRED"];

// The bounds of the ended dispatches that stay known, so that an older answer does not bring them back, and of the options,
// the uncounted moves and the cards to be read.
const mostEnded = 500, mostOptions = 300, mostMoves = 5000, mostWanted = 1000;

/** @param {string} [region] the region of the counts, "" for all */
export function empty(region = "") {
  return {
    region, cards: new Map(), counts: null, countedAt: 0, moves: [], unseen: new Set(), since: null, wanted: new Map(),
    recount: false, cut: {}, loaded: false, seq: 0, regions: new Set(), classes: new Set(),
  };
}

/**
 * @param {object} state
 * @param {object} action one of
 * {type: "events", events, now}: the stream's events, in their order;
 * {type: "lists", items, cut, from, now}: all dispatches, read since state.seq was from; cut[status] is true if the list
 * was longer than the part that was read;
 * {type: "read", items, asked, now}: some dispatches, read by id or by a search;
 *   {type: "board", board}: the counts;
 *   {type: "clock", now}: time has passed
 * @returns {object} the next state, or the same object if nothing has changed
 */
export function reduce(state, action) {
  return actions[action.type](state, action);
}

const actions = {
  events(state, { events, now }) {
    const s = draft(state);
    for (const e of events) happen(s, e, now);
    return forget(s);
  },
  lists(state, { items, cut, from, now }) {
    const s = draft(state);
    const there = new Set(items.map((d) => d.id));
    for (const d of items) learn(s, d, now);
    for (const [id, card] of s.cards) {
      if (card.seq <= from && !there.has(id) && live.includes(card.status)) s.cards.delete(id);
    }
    return forget(Object.assign(s, { cut, loaded: true }));
  },
  read(state, { items, asked = [], now }) {
    const s = draft(state);
    for (const d of items) learn(s, d, now);
    for (const [id, version] of asked) {
      if (s.wanted.get(id) === version) s.wanted.delete(id);
    }
    return forget(s);
  },
  board(state, { board }) {
    const countedAt = Date.parse(board.server_time);
    if (countedAt < state.countedAt) return state;
    const unseen = sameSet(state.unseen, new Set(board.unseen_ids ?? []));
    const s = { ...state, counts: { ...board.counts }, countedAt, since: board.since, unseen, recount: false };
    s.moves = state.moves.filter((m) => m.at > countedAt);
    for (const m of s.moves) count(s.counts, m);
    s.regions = withOptions(state.regions, board.regions.map((r) => r.region));
    return s;
  },
  clock(state, { now }) {
    const due = [...state.cards.values()].filter((c) => byClock(c, now) !== c.status);
    if (due.length === 0) return state;
    const s = draft(state);
    for (const c of due) put(s, c, { ...c, status: byClock(c, now) }, turnedAt(c, now));
    return forget(s);
  },
};

const draft = (state) => ({
  ...state, cards: new Map(state.cards), counts: state.counts && { ...state.counts }, moves: [...state.moves],
  wanted: new Map(state.wanted), seq: state.seq + 1,
});

const order = ["SCHEDULED", "PENDING", "EXPIRED"]; // the clock moves only forward

/** Returns a card's status by the clock. */
function byClock(card, now) {
  if (card.status === "SCHEDULED" && Date.parse(card.opens_at) <= now) return byClock({ ...card, status: "PENDING" }, now);
  return card.status === "PENDING" && Date.parse(card.expires_at) <= now ? "EXPIRED" : card.status;
}

const turnedAt = (card, now) => Date.parse(byClock(card, now) === "EXPIRED" ? card.expires_at : card.opens_at);

const later = (a, b) => (order.indexOf(a) > order.indexOf(b) ? a : b);

const held = ["ACCEPTED", "IN_PROGRESS", "COMPLETED", "CANCELED"];

// happen applies one event. An event has no address and no fee, so they are read from the API if they may have changed.
function happen(s, e, now) {
  const known = s.cards.get(e.dispatch_id);
  if (known && e.version < known.version) return;
  s.regions = withOptions(s.regions, [e.region]);
  s.classes = withOptions(s.classes, [e.vehicle_class]);
  if (known && e.version === known.version) {
    const status = order.includes(known.status) && order.includes(e.status) ? later(known.status, e.status) : known.status;
    const round = Math.max(known.round, e.round); // two events of one version end a round and begin the next
    if (status !== known.status || round !== known.round) put(s, known, { ...known, status, round }, Date.parse(e.at));
    return;
  }
  const card = {
    ...known, id: e.dispatch_id, status: e.status, round: e.round, version: e.version, region: e.region,
    vehicle_class: e.vehicle_class, opens_at: e.opens_at, expires_at: e.expires_at, updated_at: e.at,
  };
  card.accepted_by = held.includes(e.status) ? e.driver_id ?? known?.accepted_by ?? null : null;
  if (e.type === "dispatch.accepted") card.accepted_at = e.at;
  card.status = byClock(card, now);
  // New terms begin a new round. The event of a longer window is complete.
  const otherTerms = e.type === "dispatch.updated" && e.round !== known?.round;
  if (!known || otherTerms || e.version > known.version + 1) want(s, card);
  put(s, known, card, Date.parse(e.at));
}

function want(s, card) {
  if (s.wanted.size < mostWanted || s.wanted.has(card.id)) s.wanted.set(card.id, card.version);
}

// learn applies an answer of the API, unless a newer version is known.
function learn(s, d, now) {
  const known = s.cards.get(d.id);
  if (known && d.version < known.version) return;
  const read = { ...d, status: byClock(d, now) };
  if (known?.version === d.version && order.includes(read.status)) read.status = later(read.status, known.status);
  s.regions = withOptions(s.regions, [d.region]);
  s.classes = withOptions(s.classes, [d.vehicle_class]);
  if (s.wanted.get(d.id) <= d.version) s.wanted.delete(d.id);
  if (known && same(known, read)) return;
  put(s, known, read, read.status === d.status ? Date.parse(d.updated_at) : turnedAt(d, now));
}

const shown = ["status", "round", "version", "site_address", "accepted_by", "expires_at", "opens_at", "external_id"];
const same = (a, b) => shown.every((k) => a[k] === b[k]);

// put stores a card, and counts its move at that time.
function put(s, before, card, at) {
  card.seq = s.seq;
  s.cards.set(card.id, card);
  if (s.unseen.has(card.id) && (card.status !== "PENDING" || before?.round !== card.round)) {
    s.unseen = new Set([...s.unseen].filter((id) => id !== card.id));
  }
  if (before?.status === card.status && before.region === card.region) return;
  const here = (c) => Boolean(c) && (!s.region || c.region === s.region);
  if (at <= s.countedAt || !(here(before) || here(card))) return;
  if (!before && card.version > 1) {
    s.recount = true; // the card's earlier column is unknown
    return;
  }
  const move = { at, from: here(before) ? before.status : null, to: here(card) ? card.status : null };
  s.moves.push(move);
  if (s.counts) count(s.counts, move);
}

function count(counts, { from, to }) {
  if (from) counts[from] = Math.max(0, counts[from] - 1);
  if (to) counts[to]++;
}

// forget bounds the ended cards and the uncounted moves.
function forget(s) {
  if (s.moves.length > mostMoves) {
    s.moves = s.moves.slice(-mostMoves);
    s.recount = true;
  }
  const over = [...s.cards.values()].filter((c) => ended.includes(c.status));
  if (over.length > 2 * mostEnded) {
    for (const c of over.sort(newestChange).slice(mostEnded)) s.cards.delete(c.id);
  }
  return s;
}

function sameSet(old, next) {
  return old.size === next.size && [...next].every((v) => old.has(v)) ? old : next;
}

function withOptions(set, values) {
  const fresh = values.filter((v) => !set.has(v));
  return fresh.length === 0 || set.size >= mostOptions ? set : new Set([...set, ...fresh]);
}

const by = (key, sign) => (a, b) => {
  const [x, y] = [a[key] ?? "", b[key] ?? ""];
  return x === y ? (a.id < b.id ? 1 : -1) : (x < y ? -sign : sign);
};
const newestChange = by("updated_at", -1);
// The earliest opening or end comes first, and in the other columns the newest dispatch.
const orders = { SCHEDULED: by("opens_at", 1), PENDING: by("expires_at", 1), ACCEPTED: by("accepted_at", -1) };

/** Reports whether a filter lets a card through, which finds it by its words as the API's q does. */
export function passes(card, { region, vehicleClass, q }, terms = termsOf(q ?? "")) {
  if (region && card.region !== region || vehicleClass && card.vehicle_class !== vehicleClass) return false;
  return !q || terms.length > 0 && found(card, terms);
}

/**
 * Sorts the cards that a filter lets through into their columns. A column without a change stays the same array.
 * @returns {Object<string, object[]>} by status
 */
export function columns(state, filter, old = {}) {
  const of = Object.fromEntries([...live, ...ended].map((s) => [s, []]));
  const terms = termsOf(filter.q ?? "");
  for (const c of state.cards.values()) if (passes(c, filter, terms)) of[c.status].push(c);
  for (const [status, cards] of Object.entries(of)) {
    cards.sort(orders[status] ?? newestChange);
    if (status === "PENDING" && state.unseen.size > 0) cards.sort((a, b) => state.unseen.has(b.id) - state.unseen.has(a.id));
    if (old[status]?.length === cards.length && cards.every((c, i) => c === old[status][i])) of[status] = old[status];
  }
  return of;
}
