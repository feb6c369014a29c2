// Which language a page is in, and its texts. A page loads the texts of the shown language only.

/** @typedef {{lang: string, t: Texts}} Loaded a language's texts */

/** The languages of the pages, by the names that their readers call them. @type {Record<string, string>} */
export const languages = { en: "English", ko: "한국어" };

const place = "firsttap.language"; // both pages of a browser are in the same language

function kept() {
  try {
    return localStorage.getItem(place);
  } catch {
    return null;
  }
}

/** Keeps the reader's choice for the next time. @param {string} lang */
export function keepLanguage(lang) {
  try {
    localStorage.setItem(place, lang);
  } catch {
    // The browser stores nothing, so the choice ends with the page.
  }
}

/** Returns the reader's choice, or else the first of the browser's languages that the pages have, or else Korean. */
function firstLanguage() {
  const choice = kept();
  if (choice && Object.hasOwn(languages, choice)) return choice;
  return navigator.languages.map((l) => l.slice(0, 2).toLowerCase()).find((l) => Object.hasOwn(languages, l)) ?? "ko";
}

/**
 * Returns what texts have for a name of the API, undefined for a name that is newer than the page.
 * @template T
 * @param {Record<string, T>} texts
 * @param {string|null|undefined} name
 * @returns {T|undefined}
 */
export const named = (texts, name) => texts[name ?? ""];

/**
 * Begins to load a page's texts in the reader's language.
 * @param {Record<string, () => Promise<{words: Texts}>>} files the modules with the texts, by language
 * @returns {{first: Promise<Loaded>, load: (lang: string) => Promise<Loaded>}}
 */
export function wordsOf(files) {
  const load = async (/** @type {string} */ lang) => ({ lang, t: (await files[lang]()).words });
  return { first: load(firstLanguage()), load };
}
