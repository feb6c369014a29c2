import { html, useEffect, useReducer, useState } from "../assets/preact.js";
import { pause, request } from "../assets/api.js";
import { explain } from "../assets/ui.js";

const settled = 300; // ms without another key
const again = 15_000; // ms: drivers go on and off duty meanwhile

const words = [
  ["OFF_DUTY", "off duty"], ["SUSPENDED", "suspended"], ["REGION", "in other regions"],
  ["VEHICLE_CLASS", "with another vehicle"], ["WORKING_HEIGHT", "not high enough"],
];

/** "12 not: 5 off duty, 4 in other regions"; "" if every driver is eligible. */
function whyNot({ not_eligible: not, reasons }) {
  if (not === 0) return "";
  return `${not} not: ` + words.filter(([code]) => reasons[code] > 0).map(([code, text]) => `${reasons[code]} ${text}`).join(", ");
}

const more = ({ busy, reachable, eligible }) => [
  busy > 0 && `${busy} could, but ${busy === 1 ? "has" : "have"} other work then.`,
  eligible > 0 && `${reachable === eligible ? "All" : reachable || "None"} of the eligible can be reached by a push.`,
].filter(Boolean).join(" ");

const counted = ({ reasons, not_eligible: not }) => Object.values(reasons).reduce((sum, n) => sum + n, 0) > not;

/** Shows the number of eligible drivers, and the reasons of the others. asked is null until the form is complete enough. */
export function Preview({ asked }) {
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
    <h2 id="preview">Who could take it</h2>
    <div role="status">${about === null
      ? html`<p class="soft">Fill in the region, the vehicle class and the work times, and the drivers are counted.</p>`
      : html`<${Counts} ...${last} stale=${last.about !== about} />`}</div>
  </section>`;
}

function Counts({ counts, error, stale }) {
  if (stale) return html`<p class="soft">Counting …</p>`;
  if (error) return html`<p class="warn">Can't tell who could take it. ${explain(error, true)}</p>`;
  return html`<p><strong class=${"eligible " + (counts.eligible > 0 ? "good" : "warn")}>${counts.eligible} eligible</strong>
      ${counts.not_eligible > 0 && `, ${whyNot(counts)}`}</p>
    ${more(counts) && html`<p class="soft">${more(counts)}</p>`}
    ${counted(counts) && html`<p class="soft">A driver with two reasons counts under both.</p>`}`;
}
