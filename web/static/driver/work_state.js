// The driver's work, as a pure function of what happened: the driver, the offers, the jobs, the taps on Accept, and the changes under way.
// Lists, events and answers overtake each other: what a list lacks may have come after it was asked for, and what it has may be over.

const endedShown = 5, noticesKept = 30, endsKept = 200;
const tapsKept = 30; // those with an answer; a tap without one always stays
const active = ["ACCEPTED", "IN_PROGRESS"];
/** @type {Record<string, Why>} */
const ends = { "dispatch.taken": "taken", "dispatch.canceled": "canceled", "dispatch.expired": "expired" };

/**
 * @typedef {Schemas["DriverDispatch"]} Dispatch
 * @typedef {"taken"|"canceled"|"expired"|"gone"} Why an offer ended; gone: the page does not know why
 * @typedef {{dispatch: Dispatch, why: Why}} Ended
 * @typedef {{kind: "canceled"|"unassigned", dispatch: Dispatch}} Notice a job that was taken away from the driver
 * @typedef {{what?: "decline"|"withdraw"|"start"|"complete", wanted?: boolean, unknown?: boolean, error?: Failure}} Deed
 */

/**
 * What the driver has tapped. key tells it from another tap on the same dispatch. dispatch is as it was then. state: asking: no answer yet;
 * deciding: the service is writing another's tap; unknown: an answer was lost. at: the time of the answer, by performance.now(); 0 if it came
 * to an earlier page.
 * @typedef {{key: string, driver: string, round: number, dispatch: Dispatch, state: "asking"|"deciding"|"unknown"|"done", at?: number, answer?: Answer}} Tap
 */

/**
 * detail: the code of a refusal; missed: the tap did not arrive; gone: the driver won the dispatch, and another has it now; waiting: behind
 * is not known yet.
 * @typedef {{kind: "won"|"taken"|"early"|"stale"|"expired"|"canceled"|"busy"|"unfit"|"missed"|"gone"|"refused", rank?: number, behind?: number,
 *   waiting?: boolean, opensAt?: string, reasons?: string[], detail?: string}} Answer
 */

/**
 * @typedef {{me: Schemas["Driver"]|null, offers: Dispatch[]|null, jobs: Dispatch[]|null, at: number|null, notices: Notice[]}} Known what a reload keeps
 */

/**
 * me, offers, jobs: null until known; more, moreJobs: the list is incomplete; at: the time of the last full reading, and until then of the
 * first part that was read, in ms; trouble: the error of the last reading; ended: offers that ended on the screen; before: the terms of an
 * offer's earlier round; deeds: the changes under way, by their subject; heard: how a dispatch's latest round ended; shown: the offers that
 * were on the screen, and reported: those of them that the service is told of, with their rounds.
 * @typedef {Known & {more: boolean, moreJobs: boolean, link: "connecting"|"live"|"cut", trouble: Failure|null, ended: Ended[],
 *   before: Map<string, Dispatch>, deeds: Record<string, Deed|undefined>, taps: Map<string, Tap>, heard: Map<string, {round: number, why: Why}>,
 *   shown: Set<string>, reported: Set<string>}} State
 */

/** @param {Partial<Known>} [known] @param {Record<string, Tap>} [taps] of an earlier page, whose lists are older @returns {State} */
export function begin(known = {}, taps = {}) {
  return {
    me: null, offers: null, jobs: null, at: null, notices: [], ...known, more: false, moreJobs: false, link: "connecting", trouble: null, ended: [],
    before: new Map(), deeds: {}, heard: new Map(), shown: new Set(), reported: new Set(),
    taps: new Map(Object.entries(taps).filter(([, tap]) => !known.me || tap.driver === known.me.id).map(([id, tap]) => [id, { ...tap, at: 0 }])),
  };
}

/**
 * What happened. at: when, in ms; asked, now: when a list was asked for and when an answer came, by performance.now(), as any other clock may
 * be set meanwhile.
 *
 * link: the stream is live, or cut, which is known for sure, or may be its beginning; heard: an event of it;
 * me, offers, jobs: a part was read, offers without items if they have not changed since; of the jobs that are missing, held are still the
 * driver's and lost are not; read: all parts were; failed: the reading has, unreachable: without an answer;
 * tap: on Accept; undecided, answered: what came of it; measured: by how much it lost; forget: the driver has read its answer, or an offer's end;
 * shown: an offer is on the screen; noted: the service knows that;
 * deed: a change is under way, of unknown outcome, refused, or over; duty, changed: it was made;
 * dismiss: the driver has read a notice.
 * @typedef {{type: "link", link: "live"|"cut", sure?: boolean}
 *   | {type: "heard", event: string, id: string, round: number}
 *   | {type: "me", me: Schemas["Driver"], at: number}
 *   | {type: "offers", items?: Dispatch[], more?: boolean, asked: number, at: number}
 *   | {type: "jobs", items: Dispatch[], held: Dispatch[], lost: Notice[], more: boolean, asked: number, now: number, at: number}
 *   | {type: "read", at: number}
 *   | {type: "failed", error: Failure, unreachable: boolean}
 *   | {type: "tap", dispatch: Dispatch, key: string}
 *   | {type: "undecided", id: string, key: string, state: "deciding"|"unknown"}
 *   | {type: "answered", id: string, key: string, answer: Answer, dispatch?: Dispatch, now: number}
 *   | {type: "measured", id: string, key: string, answer: Answer}
 *   | {type: "forget", id: string}
 *   | {type: "shown", id: string, round: number, status?: Schemas["OfferStatus"]}
 *   | {type: "noted", id: string, round: number, status?: Schemas["OfferStatus"]}
 *   | {type: "deed", about: string, deed: Deed|undefined}
 *   | {type: "duty", me: Schemas["Driver"]}
 *   | {type: "changed", what: Deed["what"], id: string}
 *   | {type: "dismiss", notice: Notice}} Event
 */

/** @param {State} s @param {Event} e @returns {State} the next state, or the same object if nothing has changed */
export function reduce(s, e) {
  switch (e.type) {
    case "link": return e.link === "live" || s.link === "live" || e.sure ? { ...s, link: e.link } : s;
    case "heard": return hear(s, e);
    case "me": return { ...s, me: e.me, at: s.at ?? e.at, taps: only(s.taps, ([, tap]) => tap.driver === e.me.id) };
    case "offers": return offered({ ...s, at: s.at ?? e.at }, e);
    case "jobs": return worked({ ...s, at: s.at ?? e.at }, e);
    case "read": return { ...s, trouble: null, at: e.at };
    case "failed": return { ...s, trouble: e.error, link: s.link === "connecting" && e.unreachable ? "cut" : s.link };
    case "tap": return tapped(s, e);
    case "undecided": return moved(s, e, (tap) => (tap.state === "done" ? tap : { ...tap, state: e.state }));
    case "answered": return moved(s, e, (tap) => (tap.state === "done" ? tap : settled(e.dispatch ? { ...tap, dispatch: e.dispatch } : tap, e.answer, e.now)));
    case "measured": return moved(s, e, (tap) => ({ ...tap, answer: e.answer }));
    case "forget": return { ...s, taps: without(s.taps, e.id), ended: s.ended.filter(({ dispatch }) => dispatch.id !== e.id) };
    case "shown": return show(s, e);
    case "noted": return { ...s, offers: s.offers?.map((o) => (o.id === e.id && o.round === e.round && o.offer_status === e.status ? { ...o, offer_status: "SEEN" } : o)) ?? null };
    case "deed": return { ...s, deeds: { ...s.deeds, [e.about]: e.deed } };
    case "duty": return { ...s, me: e.me, ...(e.me.on_duty ? {} : { offers: [], ended: [] }) };
    case "changed": return {
      ...s, taps: without(s.taps, e.id), jobs: e.what === "withdraw" && s.jobs ? s.jobs.filter((j) => j.id !== e.id) : s.jobs, // the driver gave it back
    };
    default: return { ...s, notices: s.notices.filter((n) => n !== e.notice) };
  }
}

/** @template K, V @param {Map<K, V>} map @param {(entry: [K, V]) => boolean} keep */
const only = (map, keep) => ([...map].every(keep) ? map : new Map([...map].filter(keep)));

/** @template V @param {Map<string, V>} map @param {string} id */
const without = (map, id) => only(map, ([key]) => key !== id);

/** How that round of a dispatch has ended. @param {State} s @param {Dispatch} dispatch */
function endOf(s, { id, round }) {
  const end = s.heard.get(id);
  return end?.round === round ? end.why : undefined;
}

/**
 * Adds offers that ended to those that the driver has seen. It keeps none off duty, and none with a tap, which shows the end.
 * @param {State} s @param {Dispatch[]} over @returns {Ended[]}
 */
function andEnded(s, over) {
  if (!s.me?.on_duty) return [];
  const seen = over.filter((o) => s.shown.has(o.id) && !s.taps.has(o.id));
  return [...s.ended.map((e) => e.dispatch), ...seen].slice(-endedShown).map((dispatch) => ({ dispatch, why: endOf(s, dispatch) ?? "gone" }));
}

/** @param {State} s @param {Event & {type: "heard"}} e */
function hear(s, { event, id, round }) {
  const why = ends[event];
  if (!why || s.jobs?.some((j) => j.id === id && active.includes(j.status))) return s;
  const heard = new Map([...without(s.heard, id), /** @type {const} */ ([id, { round, why }])].slice(-endsKept));
  const next = { ...s, heard };
  const over = (s.offers ?? []).filter((o) => endOf(next, o));
  return { ...next, offers: s.offers?.filter((o) => !over.includes(o)) ?? null, ended: andEnded(next, over) };
}

/** @param {State} s @param {Event & {type: "offers"}} e */
function offered(s, { items, more = false, asked }) {
  if (!items) return { ...s, taps: undone(s.taps, s.offers ?? [], asked) };
  const offers = items.filter((o) => !endOf(s, o)); // an earlier list may arrive later
  const last = new Map((s.offers ?? []).map((o) => [o.id, o]));
  const gone = (s.offers ?? []).filter((o) => !offers.some((n) => n.id === o.id));
  /** @type {State["before"]} */
  const before = new Map();
  for (const offer of offers) {
    const was = last.get(offer.id), earlier = was && was.round < offer.round ? was : s.before.get(offer.id);
    if (earlier) before.set(offer.id, earlier);
  }
  const next = { ...s, offers, before, more, taps: undone(s.taps, offers, asked) };
  return { ...next, ended: andEnded(next, gone).filter((e) => !offers.some((o) => o.id === e.dispatch.id)) };
}

/**
 * Compares the answers with offers. A list that was asked for after an answer is newer: the dispatch is open again.
 * @param {State["taps"]} taps @param {Dispatch[]} offers @param {number} asked
 */
function undone(taps, offers, asked) {
  const next = new Map(taps);
  let same = true;
  for (const dispatch of offers) {
    const tap = taps.get(dispatch.id);
    if (!tap) continue;
    if (tap.state !== "done") {
      if (tap.round !== dispatch.round) continue;
      next.set(dispatch.id, { ...tap, dispatch }); // it may have been extended
    } else {
      if (since(tap) >= asked || (tap.round < dispatch.round ? tap.answer?.kind === "stale" : mayTapAgain(tap))) continue;
      next.delete(dispatch.id);
    }
    same = false;
  }
  return same ? taps : next;
}

/** @param {Tap} tap */
const since = (tap) => tap.at ?? 0;

/**
 * The jobs that a list lacks, and that were no win after it was asked for: what became of them has to be read.
 * @param {State} s @param {Dispatch[]} items @param {number} asked
 */
export const missing = (s, items, asked) =>
  (s.jobs ?? []).filter((j) => active.includes(j.status) && !items.some((i) => i.id === j.id) && !wonSince(s, j.id, asked));

/** @param {State} s @param {string} id @param {number} asked */
function wonSince(s, id, asked) {
  const tap = s.taps.get(id);
  return tap?.answer?.kind === "won" && since(tap) >= asked;
}

/** @param {State} s @param {Event & {type: "jobs"}} e */
function worked(s, { items, held, lost, more, asked, now }) {
  // A job whose status changes meanwhile may be in two of the lists or in none.
  const found = new Map([...items, ...held].sort((a, b) => a.version - b.version).map((j) => [j.id, j]));
  for (const job of s.jobs ?? []) {
    if (!found.has(job.id) && active.includes(job.status) && wonSince(s, job.id, asked)) found.set(job.id, job);
  }
  let { taps } = s;
  for (const [id, tap] of s.taps) {
    const job = found.get(id);
    if (tap.state !== "done" && job?.round === tap.round) taps = new Map(taps).set(id, settled(tap, { kind: "won" }, now));
    else if (tap.answer?.kind === "won" && since(tap) < asked && !job) taps = without(taps, id);
  }
  return {
    ...s, taps, jobs: [...found.values()], moreJobs: more, ended: s.ended.filter((e) => !found.has(e.dispatch.id)),
    notices: [...s.notices, ...lost].slice(-noticesKept),
  };
}

/** Reports whether the driver may tap again after an answer. @param {Tap} tap */
export const mayTapAgain = ({ state, answer }) => state === "done" && ["early", "stale", "busy", "unfit", "refused"].includes(answer?.kind ?? "");

/** @param {State} s @param {Event & {type: "tap"}} e */
function tapped(s, { dispatch, key }) {
  const last = s.taps.get(dispatch.id);
  if (!s.me || last && !mayTapAgain(last) && !(last.state === "done" && last.round < dispatch.round)) return s;
  /** @type {Tap} */
  const tap = { key, driver: s.me.id, round: dispatch.round, dispatch, state: "asking" };
  return { ...s, taps: bounded(new Map(s.taps).set(dispatch.id, tap)) };
}

/** @param {State["taps"]} taps */
function bounded(taps) {
  for (const [id, tap] of taps) {
    if (taps.size <= tapsKept) break;
    if (tap.state === "done") taps.delete(id);
  }
  return taps;
}

/** @param {Tap} tap @param {Answer} answer @param {number} at @returns {Tap} */
const settled = (tap, answer, at) => ({ ...tap, state: "done", answer, at });

/**
 * Moves one tap, unless another one has taken its place. A win is a job from now on, even if the list can't be read: the driver can start
 * it, and sees a notice if it is lost.
 * @param {State} s @param {{id: string, key: string}} which @param {(tap: Tap) => Tap} move @returns {State}
 */
function moved(s, { id, key }, move) {
  const before = s.taps.get(id);
  const tap = before?.key === key ? move(before) : before;
  if (!tap || tap === before) return s;
  const next = { ...s, taps: bounded(new Map(s.taps).set(id, tap)) };
  if (tap.answer?.kind !== "won" || s.jobs?.some((j) => j.id === id && j.round === tap.round)) return next;
  /** @type {Dispatch} */
  const job = { ...tap.dispatch, status: active.includes(tap.dispatch.status) ? tap.dispatch.status : "ACCEPTED" };
  return { ...next, jobs: [...(s.jobs ?? []).filter((j) => j.id !== id), job] };
}

/** @param {State} s @param {Event & {type: "shown"}} e */
function show(s, { id, round, status }) {
  const key = `${id} ${round}`, tells = unreported(s, { id, round, status });
  if (s.shown.has(id) && !tells) return s;
  return { ...s, shown: new Set(s.shown).add(id), reported: tells ? new Set(s.reported).add(key) : s.reported };
}

/**
 * Reports whether the service has to be told that an offer is on the screen.
 * @param {State} s @param {{id: string, round: number, status?: Schemas["OfferStatus"]}} offer
 */
export const unreported = (s, { id, round, status }) => !s.reported.has(`${id} ${round}`) && (status === "PENDING" || status === "SENT");

/**
 * Lists the offers, the taps and the ended offers, each dispatch once: the latest opening first, declined offers last.
 * @param {State} s
 * @returns {{dispatch: Dispatch, offered?: boolean, tap?: Tap, why?: Why}[]}
 */
export function cardsOf({ me, offers, ended, taps }) {
  if (!me) return []; // a tap needs its driver
  /** @typedef {ReturnType<typeof cardsOf>[number]} Card */
  /** @type {Map<string, Card>} */
  const cards = new Map();
  if (me.on_duty) for (const e of ended) cards.set(e.dispatch.id, e);
  for (const [id, tap] of taps) if (tap.driver === me.id) cards.set(id, { dispatch: tap.dispatch, tap });
  for (const offer of offers ?? []) cards.set(offer.id, { dispatch: offer, offered: true, tap: taps.get(offer.id) });
  const declined = (/** @type {Card} */ c) => (c.dispatch.offer_status === "DECLINED" ? 1 : 0);
  const at = (/** @type {Card} */ c) => Date.parse(c.dispatch.opens_at);
  return [...cards.values()].sort((a, b) => declined(a) - declined(b) || at(b) - at(a) || (a.dispatch.id < b.dispatch.id ? 1 : -1));
}

/** @type {Record<string, Answer["kind"]>} */
const plain = { OFFER_STALE: "stale", DISPATCH_EXPIRED: "expired", DISPATCH_CANCELED: "canceled", DRIVER_BUSY: "busy", DISPATCH_NOT_FOUND: "gone" };

/**
 * Returns the answer in a refusal, or null if the refusal decides nothing.
 * @param {import("../assets/api.js").Problem} refusal @returns {Answer|null}
 */
export function answerOf({ code, body }) {
  if (code in plain) return { kind: plain[code] };
  switch (code) {
    case "ALREADY_TAKEN": return body.final ? { kind: "taken", waiting: true } : null;
    case "NOT_OPEN_YET": return { kind: "early", opensAt: body.opens_at };
    case "NOT_ELIGIBLE": return { kind: "unfit", reasons: body.reasons };
    default: return { kind: "refused", detail: code };
  }
}

/**
 * Returns the answer in a receipt, or null if the receipt decides nothing.
 * @param {Schemas["Receipt"]} receipt @param {number} round @returns {Answer|null}
 */
export function receiptSays({ outcome, rank, behind_ms: behind, ...receipt }, round) {
  if (receipt.round !== round) return receipt.round > round ? { kind: "stale" } : null;
  switch (outcome) {
    case "WON": return { kind: "won" };
    case "LOST": return rank === null || behind === null ? { kind: "taken", waiting: true } : { kind: "taken", rank, behind };
    case "EXPIRED": return { kind: "expired" };
    case "CANCELED": return { kind: "canceled" };
    case "NO_ATTEMPT": case "DECLINED": return { kind: "missed" };
    case "WITHDRAWN": case "UNASSIGNED": return { kind: "gone" };
    default: return null;
  }
}
