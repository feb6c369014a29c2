import { html, useEffect, useReducer, useState } from "../assets/preact.js";
import { pause, request } from "../assets/api.js";
import { useLanguage } from "../assets/language.js";
import { explain } from "../assets/problems.js";

const settled = 300; // ms without another key
const again = 15_000; // ms: drivers go on and off duty meanwhile

/** ", 12 not: 5 off duty, 4 in other regions"; "" if every driver is eligible. */
function whyNot({ not_eligible: not, reasons }, t) {
  if (not === 0) return "";
  const { preview } = t;
  return preview.not(not, t.list(Object.keys(preview.reasons).filter((code) => reasons[code] > 0).map((code) => preview.reasons[code](reasons[code]))));
}

const more = ({ busy, reachable, eligible }, { preview }) => [
  busy > 0 && preview.busy(busy),
  eligible > 0 && preview.reachable(reachable, eligible),
].filter(Boolean).join(" ");

const counted = ({ reasons, not_eligible: not }) => Object.values(reasons).reduce((sum, n) => sum + n, 0) > not;

/** Shows the number of eligible drivers, and the reasons of the others. asked is null until the form is complete enough. */
export function Preview({ asked }) {
  const { t } = useLanguage();
  const about = asked && JSON.stringify(asked);
  const [last, set] = useState({ about: null });
  const [turn, refresh] = useReducer((n) => n + 1, 0);
  useEffect(() => {
    const timer = setInterval(refresh, again);
    return () => clearInterval(timer);
  }, []);
  useEffect(() => {
    if (about === null) return undefined;
    const abort = new AbortController();
    const { signal } = abort;
    pause(settled, signal).then(() => request("POST", "/v1/admin/dispatches/preview", { body: JSON.parse(about), signal })).then(
      ({ data }) => signal.aborted || set({ about, counts: data }),
      (error) => signal.aborted || set({ about, error }),
    );
    return () => abort.abort();
  }, [about, turn]);

  return html`<section class="card preview" aria-labelledby="preview">
    <h2 id="preview">${t.preview.title}</h2>
    <div role="status">${about === null
      ? html`<p class="soft">${t.preview.fill}</p>`
      : html`<${Counts} ...${last} stale=${last.about !== about} />`}</div>
  </section>`;
}

function Counts({ counts, error, stale }) {
  const language = useLanguage();
  const { t } = language;
  if (stale) return html`<p class="soft">${t.preview.counting}</p>`;
  if (error) return html`<p class="warn">${t.preview.failed(explain(error, language, true))}</p>`;
  return html`<p><strong class=${"eligible " + (counts.eligible > 0 ? "good" : "warn")}>${t.preview.eligible(counts.eligible)}</strong>
      ${whyNot(counts, t)}</p>
    ${more(counts, t) && html`<p class="soft">${more(counts, t)}</p>`}
    ${counted(counts) && html`<p class="soft">${t.preview.twice}</p>`}`;
}
