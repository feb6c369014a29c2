import { html, useEffect, useState } from "../assets/preact.js";
import { list } from "../assets/api.js";
import { useLanguage } from "../assets/language.js";
import { Logged, resultIn } from "./job_words.js";
import { Freshness, usePolled } from "./poll.js";

const pageSize = 10;
const most = 200;
const colors = { QUEUED: "warn", RUNNING: "warn", INTERRUPTED: "bad", SUCCEEDED: "good", FAILED: "bad" };
const ended = (run) => run.status === "SUCCEEDED" || run.status === "FAILED";

const runsOf = (name, n, signal) => list(`/v1/admin/jobs/${encodeURIComponent(name)}/runs`, n, { signal });

export function RunState({ run }) {
  const { t } = useLanguage();
  return html`<span class=${"badge " + colors[run.status]}>${t.runStates[run.status]}</span>`;
}

/** The last runs of a job, and more of them on demand. */
export function Runs({ name }) {
  const { t, roughly, whenExactly } = useLanguage();
  const { jobs } = t;
  const [shown, setShown] = useState(pageSize);
  const polled = usePolled((signal) => runsOf(name, shown, signal), shown > 50 ? 10_000 : 3000, [name, shown]);
  if (!polled.data) return html`<${Freshness} of=${polled} />`;
  const { items, more } = polled.data;
  return html`<div class="stack">
    ${polled.error && html`<${Freshness} of=${polled} />`}
    ${items.length === 0 ? html`<p class="soft">${jobs.notYet}</p>` : html`
    <div class="scroll" tabindex="0" role="region" aria-label=${jobs.lastRuns(name)}>
      <table class="dense" aria-label=${jobs.lastRuns(name)}>
        <thead><tr><th scope="col">${jobs.for}</th><th scope="col">${jobs.status}</th><th scope="col" class="number">${jobs.tookTitle}</th>
          <th scope="col">${jobs.result}</th><th scope="col">${jobs.by}</th><th scope="col">${jobs.instance}</th><th scope="col" class="number">${jobs.attempt}</th></tr></thead>
        <tbody>${items.map((run) => html`<tr key=${run.scheduled_at}>
          <td class="short">${whenExactly(run.scheduled_at)}</td>
          <td><${RunState} run=${run} /></td>
          <td class="number">${run.duration_ms === null ? "–" : roughly(run.duration_ms)}</td>
          <td>${run.error ? html`<span class="bad"><${Logged} text=${run.error} /></span>` : resultIn(t, run.result)}</td>
          <td>${run.requested_by ?? html`<span class="soft">${jobs.schedule}</span>`}</td>
          <td>${run.instance ?? "–"}</td>
          <td class="number">${run.attempt}</td>
        </tr>`)}</tbody>
      </table>
    </div>`}
    ${more && (shown < most ? html`<div><button onClick=${() => setShown(shown + 2 * pageSize)}>${jobs.older(name)}</button></div>`
      : html`<p class="soft">${jobs.most(most)}</p>`)}
  </div>`;
}

const looked = 50; // the requested run is searched among so many runs

/** Follows a requested run until its end. */
export function Watched({ run: first, onEnd }) {
  const language = useLanguage();
  const [run, setRun] = useState(first);
  const over = ended(run);
  useEffect(() => { if (over) onEnd(); }, [over]);
  return html`<div class="card row" role="status">
    <strong>${run.job}</strong> <${RunState} run=${run} />
    <span>${said(run, language)}</span>
    ${!over && html`<${Asking} run=${run} onRun=${setRun} />`}
  </div>`;
}

function said(run, { t, roughly }) {
  if (run.status === "QUEUED") return t.jobs.waits;
  if (!ended(run)) return t.jobs.on(run.instance);
  return html`${run.error ? html`<${Logged} text=${run.error} />` : resultIn(t, run.result)}${t.jobs.ended(roughly(run.duration_ms), run.instance)}`;
}

function Asking({ run, onRun }) {
  const { t: { jobs } } = useLanguage();
  const { data, error } = usePolled((signal) => runsOf(run.job, looked, signal), 1000, [run.job]);
  const found = data?.items.find((r) => r.scheduled_at === run.scheduled_at);
  useEffect(() => { if (found && found.status !== run.status) onRun(found); });
  if (error) return html`<span class="bad">${jobs.notAsked}</span>`;
  return data && !found && html`<span class="soft">${jobs.notAmong(looked)}</span>`;
}
