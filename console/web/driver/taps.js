// The taps on Accept, each until its answer is known. The service recognizes a repeated tap by the driver and the round, so the
// page may send the same request until it has an answer. An unknown result is never shown as won or lost.
import { Problem, now } from "../assets/api.js";
import { notKnown, pace, nap, rest } from "./again.js";

const slow = 3; // the pace of a pending decision slows down for so many failures at most
const readings = 6; // of the receipt, for the rank of a lost tap
const most = 30; // stored answers

/**
 * @typedef {object} Tap
 * @property {string} driver
 * @property {number} round
 * @property {any} dispatch the dispatch at the time of the tap
 * @property {"asking"|"deciding"|"unknown"|"done"} state deciding: the service is writing another's tap; unknown: no answer yet
 * @property {number} [at] the time of the answer, by performance.now(); 0 if it came to an earlier page
 * @property {{kind: "won"|"taken"|"early"|"stale"|"expired"|"canceled"|"busy"|"unfit"|"missed"|"gone"|"refused", rank?: number,
 * behind?: number, waiting?: boolean, opensAt?: string, reasons?: string[], detail?: string}} [answer] detail: the code of a refusal; missed: the tap did not
 * arrive; gone: the driver won the dispatch, and another has it now; waiting: behind is not known yet
 */

const plain = { OFFER_STALE: "stale", DISPATCH_EXPIRED: "expired", DISPATCH_CANCELED: "canceled", DRIVER_BUSY: "busy", DISPATCH_NOT_FOUND: "gone" };

/** Returns the answer in a refusal, or null if the refusal decides nothing. */
function answerOf({ code, body }) {
  if (code in plain) return { kind: plain[code] };
  switch (code) {
    case "ALREADY_TAKEN": return body.final ? { kind: "taken", waiting: true } : null;
    case "NOT_OPEN_YET": return { kind: "early", opensAt: body.opens_at };
    case "NOT_ELIGIBLE": return { kind: "unfit", reasons: body.reasons };
    default: return { kind: "refused", detail: code };
  }
}

/** Returns the answer in a receipt, or null if the receipt decides nothing. */
function receiptSays(receipt, round) {
  if (receipt.round !== round) return receipt.round > round ? { kind: "stale" } : null;
  switch (receipt.outcome) {
    case "WON": return { kind: "won" };
    case "LOST": return { kind: "taken", ...placed(receipt) };
    case "EXPIRED": return { kind: "expired" };
    case "CANCELED": return { kind: "canceled" };
    case "NO_ATTEMPT": case "DECLINED": return { kind: "missed" };
    case "WITHDRAWN": case "UNASSIGNED": return { kind: "gone" };
    default: return null;
  }
}

const placed = ({ rank, behind_ms: behind }) => (rank === null || behind === null ? { waiting: true } : { rank, behind });

/** Reports whether the driver may tap again after an answer. */
export const mayTapAgain = (tap) => tap.state === "done" && ["early", "stale", "busy", "unfit", "refused"].includes(tap.answer.kind);

export class Taps {
  #session;
  #changed;
  #stopped = new AbortController();
  /** @type {Map<string, Tap>} by dispatch id */
  all;

  /** changed is called with each tap that changes. */
  constructor(session, changed) {
    this.#session = session;
    this.#changed = changed;
    this.all = new Map(Object.entries(session.kept.taps ?? {}).map(([id, tap]) => [id, { ...tap, at: 0 }])); // this page's lists are newer
  }

  /** Resumes the taps without an answer from before the reload, and deletes another driver's taps. */
  resume(driver) {
    for (const [id, tap] of this.all) {
      if (tap.driver !== driver) this.all.delete(id);
      else if (tap.state !== "done") this.#decide(tap);
      else if (tap.answer.waiting) this.#measure(tap);
    }
    this.#keep();
  }

  stop() {
    this.#stopped.abort();
  }

  /** Taps Accept, unless that tap is under way. */
  tap(driver, dispatch) {
    const { id, round } = dispatch;
    const last = this.all.get(id);
    if (last && !(mayTapAgain(last) || (last.state === "done" && last.round < round))) return;
    const tap = { driver, round, dispatch, state: "asking" };
    this.all.set(id, tap);
    this.#move(tap);
    this.#decide(tap);
  }

  forget(id) {
    if (this.all.delete(id)) this.#keep();
  }

  /**
   * Compares the answers with lists that were requested at a time. A list requested after an answer is newer than the answer.
   * @param {{offers?: any[], jobs?: any[]}} lists
   * @param {number} asked when they were requested, by performance.now(): any other clock may be set meanwhile
   */
  reconcile({ offers, jobs }, asked) {
    for (const dispatch of offers ?? []) {
      const tap = this.all.get(dispatch.id);
      if (!tap) continue;
      if (tap.state !== "done") {
        if (tap.round === dispatch.round) tap.dispatch = dispatch; // it may have been extended
      } else if (tap.at < asked && (tap.round < dispatch.round ? tap.answer.kind !== "stale" : !mayTapAgain(tap))) {
        this.forget(dispatch.id); // the dispatch is open again
      }
    }
    if (!jobs) return;
    for (const [id, tap] of this.all) {
      const job = jobs.find((j) => j.id === id);
      if (tap.state !== "done" && job?.round === tap.round) this.#settle(tap, { kind: "won" });
      if (tap.answer?.kind === "won" && tap.at < asked && !job) this.forget(id);
    }
  }

  #call(method, path, options) {
    return this.#session.call(method, path, { ...options, signal: this.#stopped.signal });
  }

  async #decide(tap) {
    const { signal } = this.#stopped;
    for (let failures = 0, undecided = 0; ;) {
      try {
        const answer = await this.#ask(tap);
        if (tap.state === "done") return; // the list of jobs showed the result
        if (answer) return this.#settle(tap, answer);
        this.#move(tap, "deciding");
        await nap(pace(Math.min(slow, undecided++)), signal);
      } catch (err) {
        if (signal.aborted || err.status === 401) return; // the tap is stored until the driver is back
        if (!notKnown(err)) throw err;
        if (tap.state === "done") return;
        this.#move(tap, "unknown");
        try {
          await rest(err, failures++, signal);
        } catch {
          return;
        }
      }
    }
  }

  // ask sends the tap while it can win, and requests the receipt later: a driver must not win long after looking away.
  async #ask(tap) {
    const { dispatch, round } = tap;
    const path = `/v1/dispatches/${dispatch.id}/accept`;
    try {
      if (now() > Date.parse(dispatch.expires_at)) return receiptSays(await this.#receipt(tap), round);
      const { data } = await this.#call("POST", path, { body: { round } });
      tap.dispatch = data.dispatch;
      return { kind: "won" };
    } catch (err) {
      if (!(err instanceof Problem) || notKnown(err) || err.status === 401) throw err;
      return answerOf(err);
    }
  }

  async #receipt(tap) {
    return (await this.#call("GET", `/v1/me/dispatches/${tap.dispatch.id}/claim`)).data;
  }

  // measure reads by how much a tap lost. The service may write that a moment later, and the receipt is authoritative.
  async #measure(tap) {
    const { signal } = this.#stopped;
    let answer = { kind: "taken" };
    for (let n = 0, failures = 0; n < readings;) {
      try {
        const said = receiptSays(await this.#receipt(tap), tap.round);
        if (said && said.kind !== "missed" && !said.waiting) {
          answer = said;
          break;
        }
        await nap(pace(n++), signal);
      } catch (err) {
        if (signal.aborted || err.status === 401) return;
        if (!notKnown(err)) break;
        try {
          await rest(err, failures++, signal);
        } catch {
          return;
        }
      }
    }
    tap.answer = answer;
    this.#move(tap);
  }

  #settle(tap, answer) {
    Object.assign(tap, { state: "done", answer, at: performance.now() });
    this.#move(tap);
    if (answer.waiting) this.#measure(tap);
  }

  #move(tap, state = tap.state) {
    tap.state = state;
    if (this.all.get(tap.dispatch.id) !== tap) return;
    this.#keep();
    this.#changed(tap);
  }

  #keep() {
    for (const [id, tap] of this.all) {
      if (this.all.size <= most) break;
      if (tap.state === "done") this.all.delete(id);
    }
    this.#session.keep({ taps: Object.fromEntries(this.all) });
  }
}
