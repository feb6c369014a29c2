import { span } from "./race_scale.js";

const words = {
  ALREADY_TAKEN: "lost",
  NOT_OPEN_YET: "too early",
  OFFER_STALE: "on an old offer",
  DRIVER_BUSY: "has other work then",
  NOT_ELIGIBLE: "not eligible",
  DISPATCH_EXPIRED: "too late",
  DISPATCH_CANCELED: "canceled before",
  CLAIM_UNAVAILABLE: "not answered in time",
};

/**
 * Reads the taps of a round, the oldest first.
 * @param {any[]} attempts the API's list
 * @param {string|undefined} holder the driver who has the dispatch in this round, if any
 * @returns {{taps: {kind: "won"|"again"|"lost"|"other", word: string, behind: number|null}[], winner: any}} each tap with its
 * kind. behind is in µs from the winner's first tap, below 0 for an earlier tap that lost nevertheless; null for a tap outside
 * the race, and without a winner by a tap.
 */
export function readRace(attempts, holder) {
  const winner = attempts.find((a) => a.result === "SUCCESS") ??
    attempts.find((a) => a.driver_id === holder && a.result === "CLAIM_UNAVAILABLE");
  const start = winner && attempts.find((a) => a.driver_id === winner.driver_id && inRace(a));
  const taps = attempts.map((a) => {
    const kind = a === start ? "won" : winner?.driver_id === a.driver_id && inRace(a) ? "again" : a.result === "ALREADY_TAKEN" ? "lost" : "other";
    const word = kind === "won" ? "won" : kind === "again" ? "won (the same driver again)" : words[a.result] ?? a.result;
    return { ...a, kind, word, behind: kind === "lost" && start ? a.after_us - start.after_us : null };
  });
  return { taps, winner: taps.find((t) => t.kind === "won") };
}

const inRace = (a) => a.result !== "NOT_OPEN_YET" && a.result !== "OFFER_STALE";

/** Formats "+1.2 ms", or how much earlier than the winner a lost tap came. */
export function behindWords(behind) {
  if (behind === null) return "–";
  return behind < 0 ? `${span(-behind)} before` : `+${span(behind)}`;
}

/** Describes a tap in a sentence. */
export function tapWords(tap, name) {
  const parts = [`${name}: ${tap.word}`];
  if (tap.behind !== null) {
    parts.push(tap.behind < 0 ? `had tapped ${span(-tap.behind)} before the winner` : `${span(tap.behind)} behind the winner`);
  }
  parts.push(tap.after_us === 0 ? "the first tap" : `${span(tap.after_us)} after the first tap`);
  if (tap.reaction_ms !== null) parts.push(`reacted in ${span(tap.reaction_ms * 1000)}`);
  if (tap.instance) parts.push(`decided by ${tap.instance}`);
  if (tap.app_version) parts.push(`app ${tap.app_version}`);
  return parts.join(" · ");
}
