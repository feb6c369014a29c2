// Dispatches are found by words, as the API's q finds them: every term of a search is the beginning of a word, or of the id. A word begins
// wherever letters and digits begin, and ends at a space; its punctuation is one hyphen: "12-3" is found by "12", "12/3" and "3".

const longest = 40; // characters of a word that count
const idLength = 8; // of an id without its prefix

const chunks = (text) => text.normalize("NFKC").toLowerCase().split(/\s+/u).map((c) => c.split(/[^\p{L}\p{N}\p{M}]+/u).filter(Boolean));
const joined = (runs, by = "-") => [...runs.join(by)].slice(0, longest).join("");

/** Returns the terms of a search: none if it has no letter and no digit. @param {string} q @returns {string[]} */
export const termsOf = (q) => chunks(q).filter((runs) => runs.length > 0).map((runs) => joined(runs));

const known = new WeakMap();

function wordsOf(card) {
  let words = known.get(card);
  if (!words) {
    const texts = [card.external_id, card.site_address, card.note].map((text) => chunks(text ?? ""));
    words = [...texts.flat().flatMap((runs) => runs.map((_, i) => joined(runs.slice(i)))), joined(texts[0].flat(), "")];
    known.set(card, words);
  }
  return words;
}

/** Reports whether a dispatch has all the terms. @param {object} card @param {string[]} terms */
export function found(card, terms) {
  const id = card.id.replace("_", "-");
  const begins = (term) => id.startsWith(term) && term.includes("-") || term.length >= idLength && id.slice(4).startsWith(term);
  return terms.every((term) => begins(term) || wordsOf(card).some((word) => word.startsWith(term)));
}
