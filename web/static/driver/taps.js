// Asks for the answer to a tap on Accept until it is known. The service recognizes a repeated tap by the driver and the round, so the page
// may send the same request until it has an answer. An unknown result is never shown as won or lost.
import { Problem, now } from "../assets/api.js";
import { nap, notKnown, pace, rest } from "./again.js";
import { answerOf, receiptSays } from "./work_state.js";

/** @import { Answer, Event, Tap } from "./work_state.js" */

/**
 * What a tap is asked with. tap: as it is now, undefined if another or none has taken its place; call: requests as its driver; tell: takes what
 * came of it.
 * @typedef {{tap: () => Tap|undefined, call: import("./session.js").Session["call"], tell: (event: Event) => void, signal: AbortSignal}} Asked
 */

const slow = 3; // the pace of a pending decision slows down for so many failures at most
const readings = 6; // of the receipt, for the rank of a lost tap

/** Reports whether a tap without an answer has to wait for its driver, or for another page. @param {AbortSignal} signal @param {Failure} err */
const ended = (signal, err) => signal.aborted || err.status === 401; // the tap is stored until the driver is back

/** Asks until the tap has an answer. @param {Asked} asked */
export async function decide({ tap: present, call, tell, signal }) {
  for (let failures = 0, undecided = 0; ;) {
    const tap = present();
    if (!tap || tap.state === "done") return; // the list of jobs has shown the result
    const { id } = tap.dispatch, { key } = tap;
    try {
      const { answer, dispatch } = await ask(tap, call);
      if (answer) return tell({ type: "answered", id, key, answer, dispatch, now: performance.now() });
      tell({ type: "undecided", id, key, state: "deciding" });
      await nap(pace(Math.min(slow, undecided++)), signal);
    } catch (err) {
      if (ended(signal, err)) return;
      if (!notKnown(err)) throw err;
      tell({ type: "undecided", id, key, state: "unknown" });
      try {
        await rest(err, failures++, signal);
      } catch {
        return;
      }
    }
  }
}

/**
 * Sends the tap while it can win, and requests the receipt later: a driver must not win long after looking away.
 * @param {Tap} tap @param {Asked["call"]} call @returns {Promise<{answer: Answer|null, dispatch?: Tap["dispatch"]}>}
 */
async function ask({ dispatch, round }, call) {
  try {
    if (now() > Date.parse(dispatch.expires_at)) return { answer: receiptSays(await receipt(dispatch.id, call), round) };
    const { data } = await call("POST", `/v1/dispatches/${dispatch.id}/accept`, { body: { round } });
    return { answer: { kind: "won" }, dispatch: data.dispatch };
  } catch (err) {
    if (!(err instanceof Problem) || notKnown(err) || err.status === 401) throw err;
    return { answer: answerOf(err) };
  }
}

/** @param {string} id @param {Asked["call"]} call @returns {Promise<Schemas["Receipt"]>} */
const receipt = async (id, call) => (await call("GET", `/v1/me/dispatches/${id}/claim`)).data;

/** Reads by how much a tap lost. The service may write that a moment later, and the receipt is authoritative. @param {Asked} asked */
export async function measure({ tap: present, call, tell, signal }) {
  const tap = present();
  if (!tap) return;
  const { id } = tap.dispatch, { key, round } = tap;
  /** @type {Answer} */
  let answer = { kind: "taken" };
  for (let n = 0, failures = 0; n < readings;) {
    try {
      const said = receiptSays(await receipt(id, call), round);
      if (said && said.kind !== "missed" && !said.waiting) {
        answer = said;
        break;
      }
      await nap(pace(n++), signal);
    } catch (err) {
      if (ended(signal, err)) return;
      if (!notKnown(err)) break;
      try {
        await rest(err, failures++, signal);
      } catch {
        return;
      }
    }
  }
  tell({ type: "measured", id, key, answer });
}
