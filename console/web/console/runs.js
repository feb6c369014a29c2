import { html, useEffect, useState } from "../assets/preact.js";
import { list } from "../assets/api.js";
import { roughly, whenExactly } from "../assets/ui.js";
import { Freshness, usePolled } from "./poll.js";

const pageSize = 10;
const most = 200;
const colors = { QUEUED: "warn", RUNNING: "warn", INTERRUPTED: "bad", SUCCEEDED: "good", FAILED: "bad" };
const ended = (run) => run.status === "SUCCEEDED" || run.status === "FAILED";

const runsOf = (name, n, signal) => list(`/v1/admin/jobs/${encodeURIComponent(name)}/runs`, n, { signal });

export const RunState = ({ run }) => html`<span class=${"badge " + colors[run.status]}>${run.status}</span>`;

/** The last runs of a job, and more of them on demand. */
export function Runs({ name }) {
  const [shown, setShown] = useState(pageSize);
  const polled = usePolled((signal) => runsOf(name, shown, signal), shown > 50 ? 10_000 : 3000, [name, shown]);
  if (!polled.data) return html`<${Freshness} of=${polled} />`;
  const { items, more } = polled.data;
  return html`<div class="stack">
    ${polled.error && html`<${Freshness} of=${polled} />`}
    ${items.length === 0 ? html`<p class="soft">It has not run yet.</p>` : html`
    <div class="scroll" tabindex="0" role="region" aria-label=${`Last runs of ${name}`}>
      <table class="dense" aria-label=${`Last runs of ${name}`}>
        <thead><tr><th scope="col">For</th><th scope="col">Status</th><th scope="col" class="number">Took</th><th scope="col">Result</th>
          <th scope="col">Asked for by</th><th scope="col">Instance</th><th scope="col" class="number">Attempt</th><th scope="col" class="number">Left to another</th></tr></thead>
        <tbody>${items.map((run) => html`<tr key=${run.scheduled_at}>
          <td class="short">${whenExactly(run.scheduled_at)}</td>
          <td><${RunState} run=${run} /></td>
          <td class="number">${run.duration_ms === null ? "–" : roughly(run.duration_ms)}</td>
          <td>${run.error ? html`<span class="bad">${run.error}</span>` : run.result ?? "–"}</td>
          <td>${run.requested_by ?? html`<span class="soft">schedule</span>`}</td>
          <td>${run.instance ?? "–"}</td>
          <td class="number">${run.attempt}</td>
          <td class="number">${run.skipped}</td>
        </tr>`)}</tbody>
      </table>
    </div>`}
    ${more && (shown < most ? html`<div><button onClick=${() => setShown(shown + 2 * pageSize)}>Show older runs of ${name}</button></div>`
      : html`<p class="soft">The last ${most} runs are shown. There are more.</p>`)}
  </div>`;
}

const looked = 50; // the requested run is searched among so many runs

/** Follows a requested run until its end. */
export function Watched({ run: first, onEnd }) {
  const [run, setRun] = useState(first);
  const over = ended(run);
  useEffect(() => { if (over) onEnd(); }, [over]);
  return html`<div class="card row" role="status">
    <strong>${run.job}</strong> <${RunState} run=${run} />
    <span>${said(run)}</span>
    ${!over && html`<${Asking} run=${run} onRun=${setRun} />`}
  </div>`;
}

function said(run) {
  if (run.status === "QUEUED") return "waits for its lock, or for an instance";
  if (!ended(run)) return `on ${run.instance}`;
  return `${run.error ?? run.result}, in ${roughly(run.duration_ms)} on ${run.instance}`;
}

function Asking({ run, onRun }) {
  const { data, error } = usePolled((signal) => runsOf(run.job, looked, signal), 1000, [run.job]);
  const found = data?.items.find((r) => r.scheduled_at === run.scheduled_at);
  useEffect(() => { if (found && found.status !== run.status) onRun(found); });
  if (error) return html`<span class="bad">The service can't be asked how it goes.</span>`;
  return data && !found && html`<span class="soft">It is not among the last ${looked} runs any more.</span>`;
}
