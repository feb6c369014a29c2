// The board's state, as a pure function of its input: the answers that it read, the events of the stream, and the clock.
// They overlap and overtake each other. The larger version of a dispatch is the newer one. Within one version only the
// clock changes the status: SCHEDULED, then PENDING, then EXPIRED.

/** @type {Status[]} */
export const live = ["SCHEDULED", "PENDING", "ACCEPTED", "IN_PROGRESS"];
/** @type {Status[]} */
export const ended = ["COMPLETED", "CANCELED", "EXPIRED"];

// The bounds of the ended dispatches that stay known, so that an older answer does not bring them back, and of the options,
// the uncounted moves and the cards to be read.
const mostEnded = 500, mostOptions = 300, mostMoves = 5000, mostWanted = 1000;

/**
 * A dispatch as the board shows it: of one that only an event has told of, some fields are not known yet. seq: when it was put there.
 * @typedef {Omit<Partial<Schemas["Dispatch"]>, "accepted_by"> & {accepted_by?: string|null} & Pick<Schemas["Dispatch"], "id"|"status"|"round"|"version"|"region"> & {seq?: number}} Card
 * @typedef {{at: number, from: Status|null, to: Status|null}} Move
 * @typedef {Schemas["DispatchStatus"]} Status
 * @typedef {{region: string, cards: Map<string, Card>, counts: Schemas["Counts"]|null, countedAt: number, moves: Move[], unseen: Set<string>,
 *   since: string|null, wanted: Map<string, number>, recount: boolean, cut: Partial<Record<Status, boolean>>, loaded: boolean, seq: number,
 *   regions: Set<string>, classes: Set<string>}} State
 * wanted: the dispatches that must be read, and their versions; cut: the columns of which only a part was read
 */

/** @param {string} [region] the region of the counts, "" for all @returns {State} */
export function empty(region = "") {
  return {
    region, cards: new Map(), counts: null, countedAt: 0, moves: [], unseen: new Set(), since: null, wanted: new Map(),
    recount: false, cut: {}, loaded: false, seq: 0, regions: new Set(), classes: new Set(),
  };
}

/**
 * events: the stream's events, in their order;
 * lists: all dispatches, read since state.seq was from; cut[status] is true if the list was longer than the part that was read;
 * read: some dispatches, read by id or by a search; asked: those of state.wanted that were asked for;
 * board: the counts;
 * clock: time has passed.
 * @typedef {{type: "events", events: Schemas["AdminEvent"][], now: number}} Events
 * @typedef {{type: "lists", items: Schemas["Dispatch"][], cut: State["cut"], from: number, now: number}} Lists
 * @typedef {{type: "read", items: Schemas["Dispatch"][], asked?: [id: string, version: number][], now: number}} Read
 * @typedef {{type: "board", board: Schemas["Board"]}} Counted
 * @typedef {{type: "clock", now: number}} Clock
 * @typedef {Events|Lists|Read|Counted|Clock} Action
 */

/**
 * @param {State} state
 * @param {Action} action
 * @returns {State} the next state, or the same object if nothing has changed
 */
export function reduce(state, action) {
  switch (action.type) {
    case "events": return actions.events(state, action);
    case "lists": return actions.lists(state, action);
    case "read": return actions.read(state, action);
    case "board": return actions.board(state, action);
    default: return actions.clock(state, action);
  }
}

const actions = {
  /** @param {State} state @param {Events} action */
  events(state, { events, now }) {
    const s = draft(state);
    for (const e of events) happen(s, e, now);
    return forget(s);
  },
  /** @param {State} state @param {Lists} action */
  lists(state, { items, cut, from, now }) {
    const s = draft(state);
    const there = new Set(items.map((d) => d.id));
    for (const d of items) learn(s, d, now);
    for (const [id, card] of s.cards) {
      if ((card.seq ?? 0) <= from && !there.has(id) && live.includes(card.status)) s.cards.delete(id);
    }
    return forget(Object.assign(s, { cut, loaded: true }));
  },
  /** @param {State} state @param {Read} action */
  read(state, { items, asked = [], now }) {
    const s = draft(state);
    for (const d of items) learn(s, d, now);
    for (const [id, version] of asked) {
      if (s.wanted.get(id) === version) s.wanted.delete(id);
    }
    return forget(s);
  },
  /** @param {State} state @param {Counted} action */
  board(state, { board }) {
    const countedAt = Date.parse(board.server_time);
    if (countedAt < state.countedAt) return state;
    const unseen = sameSet(state.unseen, new Set(board.unseen_ids ?? []));
    const counts = { ...board.counts };
    const s = { ...state, counts, countedAt, since: board.since, unseen, recount: false };
    s.moves = state.moves.filter((m) => m.at > countedAt);
    for (const m of s.moves) count(counts, m);
    s.regions = withOptions(state.regions, board.regions.map((r) => r.region));
    return s;
  },
  /** @param {State} state @param {Clock} action */
  clock(state, { now }) {
    const due = [...state.cards.values()].filter((c) => byClock(c, now) !== c.status);
    if (due.length === 0) return state;
    const s = draft(state);
    for (const c of due) put(s, c, { ...c, status: byClock(c, now) }, turnedAt(c, now));
    return forget(s);
  },
};

/** @param {State} state @returns {State} */
const draft = (state) => ({
  ...state, cards: new Map(state.cards), counts: state.counts && { ...state.counts }, moves: [...state.moves],
  wanted: new Map(state.wanted), seq: state.seq + 1,
});

/** @type {Status[]} */
const order = ["SCHEDULED", "PENDING", "EXPIRED"]; // the clock moves only forward

/** Returns a card's status by the clock. @param {Pick<Card, "status"|"opens_at"|"expires_at">} card @param {number} now @returns {Status} */
function byClock(card, now) {
  if (card.status === "SCHEDULED" && Date.parse(card.opens_at ?? "") <= now) return byClock({ ...card, status: "PENDING" }, now);
  return card.status === "PENDING" && Date.parse(card.expires_at ?? "") <= now ? "EXPIRED" : card.status;
}

/** @param {Card|Schemas["Dispatch"]} card @param {number} now */
const turnedAt = (card, now) => Date.parse((byClock(card, now) === "EXPIRED" ? card.expires_at : card.opens_at) ?? "");

/** @param {Status} a @param {Status} b */
const later = (a, b) => (order.indexOf(a) > order.indexOf(b) ? a : b);

/** @type {Status[]} */
const held = ["ACCEPTED", "IN_PROGRESS", "COMPLETED", "CANCELED"];

/**
 * Applies one event. An event has no address and no fee, so they are read from the API if they may have changed.
 * @param {State} s @param {Schemas["AdminEvent"]} e @param {number} now
 */
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
  /** @type {Card} */
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

/** @param {State} s @param {Card} card */
function want(s, card) {
  if (s.wanted.size < mostWanted || s.wanted.has(card.id)) s.wanted.set(card.id, card.version);
}

/** Applies an answer of the API, unless a newer version is known. @param {State} s @param {Schemas["Dispatch"]} d @param {number} now */
function learn(s, d, now) {
  const known = s.cards.get(d.id);
  if (known && d.version < known.version) return;
  const read = { ...d, status: byClock(d, now) };
  if (known?.version === d.version && order.includes(read.status)) read.status = later(read.status, known.status);
  s.regions = withOptions(s.regions, [d.region]);
  s.classes = withOptions(s.classes, [d.vehicle_class]);
  if ((s.wanted.get(d.id) ?? Infinity) <= d.version) s.wanted.delete(d.id);
  if (known && same(known, read)) return;
  put(s, known, read, read.status === d.status ? Date.parse(d.updated_at) : turnedAt(d, now));
}

/** @type {(keyof Card)[]} */
const shown = ["status", "round", "version", "site_address", "accepted_by", "expires_at", "opens_at", "external_id"];
/** @param {Card} a @param {Card} b */
const same = (a, b) => shown.every((k) => a[k] === b[k]);

/** Stores a card, and counts its move at that time. @param {State} s @param {Card|undefined} before @param {Card} card @param {number} at */
function put(s, before, card, at) {
  card.seq = s.seq;
  s.cards.set(card.id, card);
  if (s.unseen.has(card.id) && (card.status !== "PENDING" || before?.round !== card.round)) {
    s.unseen = new Set([...s.unseen].filter((id) => id !== card.id));
  }
  if (before?.status === card.status && before.region === card.region) return;
  const here = (/** @type {Card} */ c) => !s.region || c.region === s.region;
  const was = before && here(before) ? before.status : null, is = here(card) ? card.status : null;
  if (at <= s.countedAt || !(was || is)) return;
  if (!before && card.version > 1) {
    s.recount = true; // the card's earlier column is unknown
    return;
  }
  const move = { at, from: was, to: is };
  s.moves.push(move);
  if (s.counts) count(s.counts, move);
}

/** @param {Schemas["Counts"]} counts @param {Pick<Move, "from"|"to">} move */
function count(counts, { from, to }) {
  if (from) counts[from] = Math.max(0, counts[from] - 1);
  if (to) counts[to]++;
}

/** Bounds the ended cards and the uncounted moves. @param {State} s */
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

/** @param {Set<string>} old @param {Set<string>} next */
function sameSet(old, next) {
  return old.size === next.size && [...next].every((v) => old.has(v)) ? old : next;
}

/** @param {Set<string>} set @param {string[]} values */
function withOptions(set, values) {
  const fresh = values.filter((v) => !set.has(v));
  return fresh.length === 0 || set.size >= mostOptions ? set : new Set([...set, ...fresh]);
}

/** @param {"updated_at"|"opens_at"|"expires_at"|"accepted_at"} key @param {1|-1} sign @returns {(a: Card, b: Card) => number} */
const by = (key, sign) => (a, b) => {
  const [x, y] = [a[key] ?? "", b[key] ?? ""];
  return x === y ? (a.id < b.id ? 1 : -1) : (x < y ? -sign : sign);
};
const newestChange = by("updated_at", -1);
// The earliest opening or end comes first, and in the other columns the newest dispatch.
/** @type {Partial<Record<Status, (a: Card, b: Card) => number>>} */
const orders = { SCHEDULED: by("opens_at", 1), PENDING: by("expires_at", 1), ACCEPTED: by("accepted_at", -1) };

/** @typedef {{region?: string, vehicleClass?: string, q?: string}} Filter */

/** Reports whether a filter lets a card through, which finds it by its words as the API's q does. @param {Card} card @param {Filter} filter */
export function passes(card, { region, vehicleClass, q }, terms = termsOf(q ?? "")) {
  if (region && card.region !== region || vehicleClass && card.vehicle_class !== vehicleClass) return false;
  return !q || terms.length > 0 && found(card, terms);
}

/** @typedef {Record<Status, Card[]>} Columns */

/**
 * Sorts the cards that a filter lets through into their columns. A column without a change stays the same array.
 * @param {State} state
 * @param {Filter} filter
 * @param {Columns} [old]
 * @returns {Columns}
 */
export function columns(state, filter, old) {
  /** @type {Columns} */
  const of = { SCHEDULED: [], PENDING: [], ACCEPTED: [], IN_PROGRESS: [], COMPLETED: [], CANCELED: [], EXPIRED: [] };
  const terms = termsOf(filter.q ?? "");
  for (const c of state.cards.values()) if (passes(c, filter, terms)) of[c.status].push(c);
  for (const status of [...live, ...ended]) {
    const cards = of[status], before = old?.[status];
    cards.sort(orders[status] ?? newestChange);
    if (status === "PENDING" && state.unseen.size > 0) cards.sort((a, b) => Number(state.unseen.has(b.id)) - Number(state.unseen.has(a.id)));
    if (before?.length === cards.length && cards.every((c, i) => c === before[i])) of[status] = before;
  }
  return of;
}

// Dispatches are found by words, as the API's q finds them: every term of a search is the beginning of a word, or of the id. A word begins
// wherever letters and digits begin, and ends at a space; its punctuation is one hyphen: "12-3" is found by "12", "12/3" and "3".

const longest = 40; // characters of a word that count
const idLength = 8; // of an id without its prefix

/** @param {string} text */
const chunks = (text) => text.normalize("NFKC").toLowerCase().split(/\s+/u).map((c) => c.split(/[^\p{L}\p{N}\p{M}]+/u).filter(Boolean));
/** @param {string[]} runs */
const joined = (runs, by = "-") => [...runs.join(by)].slice(0, longest).join("");

/** Returns the terms of a search: none if it has no letter and no digit. @param {string} q @returns {string[]} */
const termsOf = (q) => chunks(q).filter((runs) => runs.length > 0).map((runs) => joined(runs));

/** @type {WeakMap<Card, string[]>} */
const known = new WeakMap();

/** @param {Card} card */
function wordsOf(card) {
  let words = known.get(card);
  if (!words) {
    const texts = [card.external_id, card.site_address, card.note].map((text) => chunks(text ?? ""));
    words = [...texts.flat().flatMap((runs) => runs.map((_, i) => joined(runs.slice(i)))), joined(texts[0].flat(), "")];
    known.set(card, words);
  }
  return words;
}

/** Reports whether a dispatch has all the terms. @param {Card} card @param {string[]} terms */
export function found(card, terms) {
  const id = card.id.replace("_", "-");
  const begins = (/** @type {string} */ term) => id.startsWith(term) && term.includes("-") || term.length >= idLength && id.slice(4).startsWith(term);
  return terms.every((term) => begins(term) || wordsOf(card).some((word) => word.startsWith(term)));
}
