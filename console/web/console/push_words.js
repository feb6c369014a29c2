import { html } from "../assets/preact.js";

/** What came of a push, in words. The reason is in the push service's own words, which are English. */
export const came = ({ result, reason }, t) => html`${result ? t.pushResults[result] ?? html`<span lang="en">${result}</span>` : "–"}${
  reason && html` <span class="soft" lang="en">${reason}</span>`}`;
