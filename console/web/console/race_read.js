/**
 * Reads the taps of a round, the oldest first.
 * @param {any[]} attempts the API's list
 * @param {string|undefined} holder the driver who has the dispatch in this round, if any
 * @param {any} t the texts
 * @returns {{taps: {kind: "won"|"again"|"lost"|"other", word: string, behind: number|null}[], winner: any}} each tap with its
 * kind. behind is in µs from the winner's first tap, below 0 for an earlier tap that lost nevertheless; null for a tap outside
 * the race, and without a winner by a tap.
 */
export function readRace(attempts, holder, t) {
  const winner = attempts.find((a) => a.result === "SUCCESS") ??
    attempts.find((a) => a.driver_id === holder && a.result === "CLAIM_UNAVAILABLE");
  const start = winner && attempts.find((a) => a.driver_id === winner.driver_id && inRace(a));
  const taps = attempts.map((a) => {
    const kind = a === start ? "won" : winner?.driver_id === a.driver_id && inRace(a) ? "again" : a.result === "ALREADY_TAKEN" ? "lost" : "other";
    const word = kind === "won" ? t.race.wonWord : kind === "again" ? t.race.again : t.tapResults[a.result] ?? t.tapResults.OTHER;
    return { ...a, kind, word, behind: kind === "lost" && start ? a.after_us - start.after_us : null };
  });
  return { taps, winner: taps.find((tap) => tap.kind === "won") };
}

const inRace = (a) => a.result !== "NOT_OPEN_YET" && a.result !== "OFFER_STALE";

/** Formats "+1.2 ms", or how much earlier than the winner a lost tap came. */
export function behindWords(behind, { t, duration }) {
  if (behind === null) return "–";
  return behind < 0 ? t.race.before(duration(-behind)) : `+${duration(behind)}`;
}

/** Describes a tap in a sentence. */
export function tapWords(tap, name, { t: { race }, duration }) {
  const parts = [race.tap(name, tap.word)];
  if (tap.behind !== null) {
    parts.push(tap.behind < 0 ? race.tappedBefore(duration(-tap.behind)) : race.tappedBehind(duration(tap.behind)));
  }
  parts.push(tap.after_us === 0 ? race.firstTap : race.tappedAfter(duration(tap.after_us)));
  if (tap.reaction_ms !== null) parts.push(race.reacted(duration(tap.reaction_ms * 1000)));
  if (tap.instance) parts.push(race.decidedBy(tap.instance));
  if (tap.app_version) parts.push(race.appVersion(tap.app_version));
  return parts.join(" · ");
}
