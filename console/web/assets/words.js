// Which language a page is in, and its texts. A page loads the texts of the shown language only.

/** The languages of the pages, by the names that their readers call them. */
export const languages = { en: "English", ko: "한국어" };

const place = "firsttap.language"; // both pages of a browser are in the same language

function kept() {
  try {
    return localStorage.getItem(place);
  } catch {
    return null;
  }
}

/** Keeps the reader's choice for the next time. */
export function keepLanguage(lang) {
  try {
    localStorage.setItem(place, lang);
  } catch {
    // The browser stores nothing, so the choice ends with the page.
  }
}

/** Returns the reader's choice, or else the first of the browser's languages that the pages have, or else Korean. */
export function firstLanguage() {
  const choice = kept();
  if (Object.hasOwn(languages, choice ?? "")) return choice;
  return navigator.languages.map((l) => l.slice(0, 2).toLowerCase()).find((l) => Object.hasOwn(languages, l)) ?? "ko";
}

/**
 * Begins to load a page's texts in the reader's language.
 * @param {Record<string, () => Promise<{words: any}>>} files the modules with the texts, by language
 * @returns {{first: Promise<{lang: string, t: any}>, load: (lang: string) => Promise<{lang: string, t: any}>}}
 */
export function wordsOf(files) {
  const load = async (lang) => ({ lang, t: (await files[lang]()).words });
  return { first: load(firstLanguage()), load };
}
