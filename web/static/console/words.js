import { wordsOf } from "../assets/words.js";

// The page loads this module by itself, so that the texts arrive together with the modules that show them.
export const words = wordsOf({ en: () => import("./words_en.js"), ko: () => import("./words_ko.js") });
