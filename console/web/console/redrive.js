import { html, useEffect, useRef, useState } from "../assets/preact.js";
import { Problem, send } from "../assets/api.js";
import { useLanguage } from "../assets/language.js";
import { explain } from "../assets/problems.js";
import { Ask } from "../assets/ui.js";

const atOnce = 4;

/** Reports whether a refusal is about one push, and not about all of them. */
const ofOne = (err) => err instanceof Problem && err.status !== 401 && err.status !== 403;

/**
 * Asks for confirmation, and sends dead pushes again, a few at a time. Closing it stops the pushes that have not begun.
 * @param {{items: any[], onClose: (outcome: {sent: number, of: number, failed: {item: any, error: Error}[]}|null) => void}} props
 * null if no push was tried
 */
export function Redrive({ items: shown, onClose }) {
  const { t: { pushes } } = useLanguage();
  const [items] = useState(shown); // the list behind changes, and the confirmed one does not
  const [sent] = useState(() => new Set());
  const [failed, setFailed] = useState([]);
  const [count, setCount] = useState(null);
  const stop = useRef(new AbortController());
  const latest = useRef(null); // the outcome so far; null before the first try
  useEffect(() => () => stop.current.abort(), []);

  const act = async () => {
    stop.current = new AbortController();
    const { signal } = stop.current;
    const queue = items.filter((n) => !sent.has(n.id));
    latest.current = [];
    const tell = () => { setFailed(latest.current); setCount(sent.size); };
    tell();
    const work = async () => {
      for (let n; !signal.aborted && (n = queue.shift());) {
        try {
          await send("POST", `/v1/admin/notifications/${n.id}/redrive`, { signal });
          sent.add(n.id);
        } catch (error) {
          if (signal.aborted) return;
          if (!ofOne(error)) {
            stop.current.abort();
            throw error;
          }
          latest.current = [...latest.current, { item: n, error }];
        }
        tell();
      }
    };
    await Promise.all(Array.from({ length: atOnce }, work));
  };
  const close = () => {
    stop.current.abort();
    onClose(latest.current === null ? null : { sent: sent.size, of: items.length, failed: latest.current });
  };
  return html`<${Ask} title=${pushes.title(items.length)} word=${pushes.again} act=${act} onClose=${close}>
    <p>${pushes.more(items.length)}</p>
    <p role="status">${count !== null && pushes.progress(count, items.length, failed.length)}</p>
  <//>`;
}

/** Shows the outcome. */
export function Outcome({ outcome }) {
  const language = useLanguage();
  const { t: { pushes } } = language;
  const place = useRef(null);
  useEffect(() => { if (outcome) place.current.focus(); }, [outcome]); // the button that began it has disappeared
  return html`<div ref=${place} tabindex="-1" role="status" class="outcome">
    ${outcome && html`<p class=${outcome.sent === outcome.of ? "good" : "bad"}>
      ${pushes.outcome(outcome.sent, outcome.of)}</p>
      ${outcome.failed.length > 0 && html`<ul>${outcome.failed.map(({ item, error }) => html`<li key=${item.id}>
        <code>${item.id}</code>: ${error.code === "INVALID_STATE" ? pushes.notDead : explain(error, language)}</li>`)}</ul>`}`}
  </div>`;
}
