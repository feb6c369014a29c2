import { html } from "../assets/preact.js";

// What the jobs write of their runs, and the names of the texts for it.
const results = [
  [/^(\d+) offers ended$/, "ended"],
  [/^(\d+) drivers reminded$/, "reminded"],
  [/^(\d+) rows deleted$/, "deleted"],
  [/^(\d+) dispatches closed, (\d+) topics to unsubscribe$/, "closed"],
  [/^(\d+) regions$/, "regions"],
  [/^skipped: the run began (\S+) late$/, "late"],
];

/** Shows a text that the service wrote for its operator. It is English in every language, as the log that has the rest of it. */
export const Logged = ({ text }) => html`<span lang="en">${text}</span>`;

/** Returns the result of a run in words. */
export function resultIn(t, text) {
  if (text === null) return "–";
  for (const [pattern, word] of results) {
    const found = pattern.exec(text);
    if (found) return t.jobResults[word](...found.slice(1));
  }
  return html`<${Logged} text=${text} />`;
}
