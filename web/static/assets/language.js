// The page's language: its texts, and how it writes money and times.
import { createContext, html, useContext, useLayoutEffect, useMemo, useRef, useState } from "./preact.js";
import { keepLanguage, languages } from "./words.js";
import { writing } from "./writing.js";

/**
 * What a component needs to speak to its reader: the texts t and the formats. failed: another language could not be loaded.
 * @typedef {{lang: string, t: Texts, failed?: boolean, speak: (lang: string) => void} & ReturnType<typeof writing>} Reader
 */

export const Language = createContext(/** @type {Reader} */ (/** @type {unknown} */ (null))); // every component is within Speaks

/**
 * @typedef {import("./words.js").Loaded & {failed?: boolean}} Loaded
 */

/**
 * Gives its children the language. Another language replaces the texts and nothing else: what is typed and what is open stays.
 * @param {{words: ReturnType<typeof import("./words.js").wordsOf>, first: Loaded, children?: unknown}} props
 */
export function Speaks({ words, first, children }) {
  const [{ lang, t, failed }, set] = useState(first);
  const wanted = useRef(first.lang);
  useLayoutEffect(() => { document.documentElement.lang = lang; }, [lang]);
  const value = useMemo(() => ({
    lang, t, failed, ...writing(lang, t, navigator.languages),
    speak: async (/** @type {string} */ next) => {
      wanted.current = next;
      try {
        const loaded = await words.load(next);
        if (wanted.current !== next) return;
        set(loaded);
        keepLanguage(next);
      } catch {
        set((now) => ({ ...now, failed: true }));
      }
    },
  }), [lang, t, failed]);
  return html`<${Language.Provider} value=${value}>${children}<//>`;
}

/** @returns {Reader} */
export const useLanguage = () => useContext(Language);

/** Offers the other languages. */
export function Languages() {
  const { lang, t, failed, speak } = useLanguage();
  return html`${Object.keys(languages).filter((l) => l !== lang).map((l) => html`
    <button key=${l} type="button" class="quiet" lang=${l} onClick=${() => speak(l)}>${languages[l]}</button>`)}
    <span aria-live="assertive" class=${failed ? "bad" : "hidden"}>${failed && t.languageFailed}</span>`;
}
