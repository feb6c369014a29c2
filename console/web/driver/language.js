// The page's language, and the form of money and times in it.
import { createContext, html, useContext, useLayoutEffect, useMemo, useState } from "../assets/preact.js";
import { money } from "../assets/ui.js";
import { words } from "./words.js";

const place = "firsttap.language";
const Language = createContext(null);

function chosen() {
  try {
    return localStorage.getItem(place);
  } catch {
    return null;
  }
}

/** Returns the first of the reader's languages that the page has, and otherwise Korean. */
function preferred() {
  const known = navigator.languages.map((l) => l.slice(0, 2).toLowerCase()).find((l) => l in words);
  return known ?? "ko";
}

function writing(lang) {
  const locale = navigator.languages.find((l) => l.toLowerCase().startsWith(lang)) ?? (lang === "ko" ? "ko-KR" : "en");
  const span = new Intl.DateTimeFormat(locale, { weekday: "short", month: "short", day: "numeric", hour: "2-digit", minute: "2-digit" });
  const second = new Intl.DateTimeFormat(locale, { timeStyle: "medium" });
  const minute = new Intl.DateTimeFormat(locale, { dateStyle: "medium", timeStyle: "short" });
  const number = new Intl.NumberFormat(locale, { maximumFractionDigits: 1 });
  return {
    money: (m) => money(m, locale),
    span: (from, to) => span.formatRange(new Date(from), new Date(to)),
    second: (at) => second.format(new Date(at)),
    minute: (at) => minute.format(new Date(at)),
    number: (n) => number.format(n),
  };
}

/** Gives its children the language. */
export function Speaks({ children }) {
  const [lang, setLang] = useState(() => (chosen() in words ? chosen() : preferred()));
  useLayoutEffect(() => {
    document.documentElement.lang = lang;
    document.title = words[lang].title;
  }, [lang]);
  const value = useMemo(() => ({
    lang, t: words[lang], ...writing(lang),
    speak: (next) => {
      setLang(next);
      try {
        localStorage.setItem(place, next);
      } catch {
        // The browser stores nothing, so the choice ends with the page.
      }
    },
  }), [lang]);
  return html`<${Language.Provider} value=${value}>${children}<//>`;
}

/** @returns {{lang: string, t: any, money, span, second, minute, number, speak}} t has the texts */
export const useLanguage = () => useContext(Language);

/** Offers the other languages. */
export function Languages() {
  const { lang, speak } = useLanguage();
  return Object.keys(words).filter((l) => l !== lang).map((l) => html`
    <button key=${l} class="quiet" lang=${l} onClick=${() => speak(l)}>${words[l].language}</button>`);
}
