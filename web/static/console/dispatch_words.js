// How a dispatch, its events and its pushes are said.
import { html } from "../assets/preact.js";
import { Problem, Unreachable } from "../assets/api.js";
import { useLanguage } from "../assets/language.js";
import { named } from "../assets/words.js";
import { abroad, typedTime, zoneAt } from "../assets/zone.js";
import { PageError, Trouble } from "./dialogs.js";

/** Names an event in a word or two. t has the texts, here and below. @param {Schemas["Event"]} event @param {Texts} t @returns {string} */
export function eventWord(event, t) {
  if (event.type === "dispatch.accepted" && event.driver_id && event.driver_id !== event.actor) return t.assigned;
  return t.events[event.type] ?? event.type;
}

/**
 * Describes a reason. The office may give codes of its own, which are shown as they are.
 * @param {string|null|undefined} code @param {Texts} t @returns {string}
 */
export const reasonWord = (code, t) => named(t.reasons, code) ?? code ?? "";

/**
 * Names the author of an event.
 * @param {string} actor @param {Schemas["Session"]} session @param {(id: string) => string} name @param {Texts} t @returns {string}
 */
export function actorWord(actor, session, name, t) {
  if (actor === session.key_id) return t.actor.you;
  if (actor === "system") return t.actor.service;
  return actor.startsWith("drv_") ? name(actor) : t.actor.key(actor);
}

/**
 * Describes an event in a sentence: "canceled by key_2 (NO_LONGER_NEEDED)".
 * @param {Schemas["Event"]} event @param {Schemas["Session"]} session @param {(id: string) => string} name @param {Texts} t @returns {string}
 */
export function eventSentence(event, session, name, t) {
  const word = eventWord(event, t);
  const what = t.change.by(word === t.assigned ? t.change.to(word, name(event.driver_id ?? "")) : word, actorWord(event.actor, session, name, t));
  return event.reason_code ? t.change.why(what, reasonWord(event.reason_code, t)) : what;
}

/** Returns an error with the page's own text for a refused change, or the given error. @param {Failure} err @returns {Failure} */
export function refusal(err) {
  if (!(err instanceof Problem)) return err;
  const [state] = (err.code === "INVALID_STATE" && /[A-Z_]+$/.exec(err.message)) || [];
  if (state) return new PageError(({ t }) => (named(t.states, state) ? t.change.state(named(t.states, state)) : t.codes.INVALID_STATE));
  if (err.code !== "NOT_ELIGIBLE") return err;
  return new PageError(({ t }) => t.assign.unfit(t.list((err.body.reasons ?? []).map((r) => named(t.unfit, r) ?? t.unfit.OTHER))));
}

/**
 * Shows a failed reading's error. A lost connection is shown once, at the top, if the page has data.
 * @param {{error: Failure|null, shown?: unknown}} props
 */
export function Unread({ error, shown }) {
  return html`<${Trouble} error=${shown && error instanceof Unreachable ? null : error} reading />`;
}

const tones = { SCHEDULED: "", PENDING: "warn", ACCEPTED: "good", IN_PROGRESS: "good", COMPLETED: "good", CANCELED: "bad", EXPIRED: "bad" };

/** A dispatch's state as a badge. @param {{of: Schemas["DispatchStatus"]}} props */
export function State({ of }) {
  const { t } = useLanguage();
  return html`<strong class=${`badge ${tones[of]}`}>${t.states[of]}</strong>`;
}

/** Shows the time of day, and the full time to the pointer: a dispatch's moments are close together. @param {{at: string|null}} props */
export function At({ at }) {
  const { clock, whenExactly } = useLanguage();
  return html`<span title=${whenExactly(at)}>${clock(at)}</span>`;
}

/** Returns the moment in an <input type="datetime-local">, which must not be empty. @param {string} value */
export function momentOf(value) {
  const at = typedTime(value);
  if (!at) throw new PageError(({ t }) => t.edit.noTime);
  return at;
}

/**
 * Returns the label of such a field: with the zone's name for a reader whose clock shows another time.
 * @param {Texts} t @param {string} label @param {string} value @returns {string}
 */
export const timeLabel = (t, label, value) => (abroad() ? `${label} (${zoneAt(value)})` : t.yourTime(label));

/**
 * What came of a push, in words. The reason is in the push service's own words, which are English.
 * @param {Schemas["Notification"]} push @param {Texts} t
 */
export const came = ({ result, reason }, t) => html`${result ? named(t.pushResults, result) ?? html`<span lang="en">${result}</span>` : "–"}${
  reason && html` <span class="soft" lang="en">${reason}</span>`}`;
