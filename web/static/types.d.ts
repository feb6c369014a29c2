// The types that the pages' modules name everywhere. api.d.ts is made of internal/openapi/openapi.json by browser/types.sh.
import type { components } from "./api.js";

declare global {
  /** What the API takes and answers, by the names that its description has. */
  type Schemas = components["schemas"];

  /** The texts of a page, by name. A function takes what is to be written into its text: numbers, names, parts of the page. */
  interface Dictionary { [name: string]: string | Dictionary | ((...parts: any[]) => unknown) }

  /** What a component needs to speak to its reader. */
  type Reader = import("./assets/language.js").Reader;

  /** What was thrown: a Problem has status and code. */
  type Failure = Error & { status?: number; code?: string; retryAfter?: number };

  /** What useRef returns for an element, which is there once its component is rendered. */
  interface Ref<E> { current: E }
}
