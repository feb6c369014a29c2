/** The texts of this page in a language. */
type Texts = typeof import("./words_en.js").words;

/** Whether the session's role includes another one. */
type May = (role: Schemas["Role"]) => boolean;

/** What a page gets: id is the end of its address. */
type PageProps = { id: string, session: Schemas["Session"], may: May };
