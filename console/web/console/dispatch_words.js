import { html } from "../assets/preact.js";
import { Problem, Unreachable } from "../assets/api.js";
import { useLanguage } from "../assets/language.js";
import { PageError } from "../assets/problems.js";
import { Trouble } from "../assets/ui.js";

/** Names an event in a word or two. t has the texts, here and below. */
export function eventWord(event, t) {
  if (event.type === "dispatch.accepted" && event.driver_id && event.driver_id !== event.actor) return t.assigned;
  return t.events[event.type] ?? event.type;
}

/** Describes a reason. The office may give codes of its own, which are shown as they are. */
export const reasonWord = (code, t) => t.reasons[code] ?? code ?? "";

/** Names the author of an event. */
export function actorWord(actor, session, name, t) {
  if (actor === session.key_id) return t.actor.you;
  if (actor === "system") return t.actor.service;
  return actor.startsWith("drv_") ? name(actor) : t.actor.key(actor);
}

/** Describes an event in a sentence: "canceled by key_2 (NO_LONGER_NEEDED)". */
export function eventSentence(event, session, name, t) {
  const word = eventWord(event, t);
  const what = t.change.by(word === t.assigned ? t.change.to(word, name(event.driver_id)) : word, actorWord(event.actor, session, name, t));
  return event.reason_code ? t.change.why(what, reasonWord(event.reason_code, t)) : what;
}

/** Returns an error with the page's own text for a refused change, or the given error. */
export function refusal(err) {
  if (!(err instanceof Problem)) return err;
  const [state] = (err.code === "INVALID_STATE" && /[A-Z_]+$/.exec(err.message)) || [];
  if (state) return new PageError(({ t }) => (t.states[state] ? t.change.state(t.states[state]) : t.codes.INVALID_STATE));
  if (err.code !== "NOT_ELIGIBLE") return err;
  return new PageError(({ t }) => t.assign.unfit(t.list(err.body.reasons.map((r) => t.unfit[r] ?? t.unfit.OTHER))));
}

/** Shows a failed reading's error. A lost connection is shown once, at the top, if the page has data. */
export function Unread({ error, shown }) {
  return html`<${Trouble} error=${shown && error instanceof Unreachable ? null : error} reading />`;
}

const tones = { SCHEDULED: "", PENDING: "warn", ACCEPTED: "good", IN_PROGRESS: "good", COMPLETED: "good", CANCELED: "bad", EXPIRED: "bad" };

/** A dispatch's state as a badge. */
export function State({ of }) {
  const { t } = useLanguage();
  return html`<strong class=${`badge ${tones[of]}`}>${t.states[of]}</strong>`;
}
