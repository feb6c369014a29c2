/** The texts of this page in a language. */
type Texts = typeof import("./words_en.js").words;
