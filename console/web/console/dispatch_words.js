import { html } from "../assets/preact.js";
import { Problem, Unreachable } from "../assets/api.js";
import { Trouble } from "../assets/ui.js";

const what = {
  "dispatch.created": "created",
  "dispatch.opened": "opened",
  "dispatch.accepted": "accepted",
  "dispatch.taken": "taken",
  "dispatch.declined": "declined",
  "dispatch.withdrawn": "withdrawn",
  "dispatch.reopened": "reopened",
  "dispatch.unassigned": "unassigned",
  "dispatch.updated": "changed",
  "dispatch.expired": "expired",
  "dispatch.canceled": "canceled",
  "dispatch.started": "started",
  "dispatch.completed": "completed",
  "dispatch.reminder": "reminder due",
};

const because = { WINDOW_CHANGED: "another window, the same round", EXTENDED: "it stands longer", CLAIM_FAILED: "a claim came to nothing", OVERDUE: "nobody had closed it" };

/** Names an event in a word or two. */
export function eventWord(event) {
  if (event.type === "dispatch.accepted" && event.driver_id && event.driver_id !== event.actor) return "assigned";
  return what[event.type] ?? event.type;
}

/** Describes a reason, if the code is the service's own. */
export const reasonWord = (code) => because[code] ?? code ?? "";

/** Names the author of an event. */
export function actorWord(actor, session, name) {
  if (actor === session.key_id) return "you";
  if (actor === "system") return "the service";
  return actor.startsWith("drv_") ? name(actor) : `key ${actor}`;
}

/** Describes an event in a sentence: "canceled by key_2 (NO_LONGER_NEEDED)". */
export function eventSentence(event, session, name) {
  const to = eventWord(event) === "assigned" ? ` to ${name(event.driver_id)}` : "";
  const why = event.reason_code ? ` (${reasonWord(event.reason_code)})` : "";
  return `${eventWord(event)}${to} by ${actorWord(event.actor, session, name)}${why}`;
}

const unfit = {
  OFF_DUTY: "off duty",
  SUSPENDED: "suspended",
  REGION: "does not work in this region",
  VEHICLE_CLASS: "has another class of vehicle",
  WORKING_HEIGHT: "the vehicle does not reach high enough",
};

/** Returns an error with the page's own text for a refused change, or the given error. */
export function refusal(err) {
  if (!(err instanceof Problem)) return err;
  switch (err.code) {
    case "INVALID_STATE": return new Error(`That can't be done in its present state: ${err.message}.`);
    case "NOT_ELIGIBLE": return new Error(`This driver can't take it: ${err.body.reasons.map((r) => unfit[r] ?? r).join(", ")}.`);
    case "DRIVER_BUSY": return new Error("This driver has other work that overlaps with it in time.");
    case "ALREADY_TAKEN": return new Error("A driver has it already.");
    case "DISPATCH_EXPIRED": return new Error("It has expired. Reopen it first.");
    case "DISPATCH_CANCELED": return new Error("It was canceled.");
    case "FORBIDDEN": return new Error("Your role does not allow that.");
    case "DRIVER_NOT_FOUND": return new Error("There is no such driver any more.");
  }
  return err;
}

/** Shows a failed reading's error. A lost connection is shown once, at the top, if the page has data. */
export function Unread({ error, shown }) {
  return html`<${Trouble} error=${shown && error instanceof Unreachable ? null : error} reading />`;
}

const tones = { SCHEDULED: "", PENDING: "warn", ACCEPTED: "good", IN_PROGRESS: "good", COMPLETED: "good", CANCELED: "bad", EXPIRED: "bad" };

/** A dispatch's state as a badge. */
export const State = ({ of }) => html`<strong class=${`badge ${tones[of]}`}>${of}</strong>`;
