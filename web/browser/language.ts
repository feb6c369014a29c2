import type { Page } from "@playwright/test";
import { readFile } from "node:fs/promises";
import type { Json } from "./service.ts";

export type Language = "en" | "ko";

/** The pages' languages. What is tested in both is tested in English by `make test-all` only. */
export const languages: { lang: Language; locale: string; tag: string[] }[] = [
  { lang: "ko", locale: "ko-KR", tag: [] },
  { lang: "en", locale: "en-GB", tag: ["@slow"] },
];

/** Reads a page's texts, in a language. Node would take the files, which are modules for a browser, for CommonJS. */
export async function textsOf(folder: "console" | "driver", lang: Language): Promise<Json> {
  const read = (name: string) => readFile(new URL(`../static/${folder}/${name}`, import.meta.url), "utf8");
  const rest = `words_${lang}_admin.js`;
  let source = await read(`words_${lang}.js`);
  if (folder === "console") source = source.replace(`import { admin } from "./${rest}";`, (await read(rest)).replace("export ", ""));
  return (await import(`data:text/javascript,${encodeURIComponent(source)}`)).words;
}

/** The Latin words that Korean pages may have: names of products and programs, units, and what an operator types as it is. */
const known = /\b(FirstTap|CSV|HTTPS|https|FIRSTTAP_ADMIN_KEY|Firebase|JavaScript|API|UID|ID|ms|m|KRW|USD|UTC|GMT|Asia\/Seoul|Ctrl|ko-KR|ko|English|android|ios|web)\b/g;
const ids = /\b(dsp|drv|evt|key|clm|aud|ntf|dev|att|whk|whd)_\w+|\b[0-9a-f]{12}\b/g; // and the beginnings of hashes

/** Returns the texts of a page that a reader or a screen reader gets, without what the page marks as a name, a code or English. */
function texts(page: Page): Promise<string[]> {
  return page.evaluate(() => {
    const skipped = "script, noscript, style, code, bdi, [lang]:not(html)";
    const found = [document.title];
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT | NodeFilter.SHOW_ELEMENT);
    for (let node = walker.nextNode(); node; node = walker.nextNode()) {
      if (node instanceof Element) {
        if (node.closest(skipped)) continue;
        for (const name of ["aria-label", "title", "placeholder", "alt"]) found.push(node.getAttribute(name) ?? "");
      } else if (!node.parentElement!.closest(skipped)) found.push(node.textContent!);
    }
    return found.filter((text) => text.trim() !== "");
  });
}

/**
 * Returns the texts of a page that are not in its language.
 * @param data what people have typed, as names and regions, which is in any language
 */
export async function foreign(page: Page, lang: Language, data: string[]): Promise<string[]> {
  const longest = [...new Set(data)].filter((typed) => typed.length > 2).sort((a, b) => b.length - a.length); // shorter ones are parts of words
  const other = lang === "ko" ? /[A-Za-z]{2,}/ : /[가-힣]/;
  return [...new Set((await texts(page)).filter((text) => {
    if (!other.test(text)) return false;
    const rest = longest.reduce((left, typed) => left.replaceAll(typed, " "), text);
    return other.test(lang === "ko" ? rest.replaceAll(ids, " ").replaceAll(known, " ") : rest);
  }))];
}
