import { Fragment, html, useState } from "../assets/preact.js";
import { get, send } from "../assets/api.js";
import { Ask, left, roughly, useNow, when, whenExactly } from "../assets/ui.js";
import { Freshness, usePolled } from "./poll.js";
import { Runs, RunState, Watched } from "./runs.js";
import { inWords } from "./schedule.js";

/** The scheduled jobs: the next run, the lock's holder, the last run, and the reason of a block. */
export function Jobs({ may }) {
  const polled = usePolled((signal) => get("/v1/admin/jobs?limit=200", { signal }), 3000, []);
  const [open, setOpen] = useState([]);
  const [asked, setAsked] = useState("");
  const [watched, setWatched] = useState([]);
  const time = useNow();
  const jobs = polled.data?.items ?? [];
  const blocked = jobs.filter((j) => j.blocked);
  const toggle = (name) => setOpen((o) => (o.includes(name) ? o.filter((n) => n !== name) : [...o, name]));
  const runNow = async () => {
    const { data: run } = await send("POST", `/v1/admin/jobs/${encodeURIComponent(asked)}/run`);
    setWatched((w) => [...w.filter((r) => r.job !== run.job), run]);
    setOpen((o) => (o.includes(asked) ? o : [...o, asked]));
    polled.reload();
  };
  return html`<div class="stack operations">
    <div class="row"><h1>Jobs</h1><${Freshness} of=${polled} /></div>
    <div class="trouble" role="alert">${blocked.length > 0 && `Blocked: ${blocked.map((j) => j.name).join(", ")}.`}</div>
    ${watched.map((run) => html`<${Watched} key=${run.job + run.scheduled_at} run=${run} onEnd=${polled.reload} />`)}
    ${asked && html`<${Ask} title=${`Run ${asked} now?`} word="Run now" act=${runNow} onClose=${() => setAsked("")}>
      <p>It runs once besides its schedule, on whichever instance comes first, as soon as its lock is free.</p>
    <//>`}
    ${polled.data && html`<div class="scroll card flush" tabindex="0" role="region" aria-label="Jobs">
      <table class="dense jobs">
        <thead><tr><th scope="col">Job</th><th scope="col">Next run</th><th scope="col">Lock</th><th scope="col">Now</th>
          <th scope="col">Last run</th><th scope="col">Last success</th><th scope="col"><span class="hidden">What can be done</span></th></tr></thead>
        <tbody>${jobs.map((job) => html`<${Fragment} key=${job.name}>
          <${Job} job=${job} time=${time} read=${Date.parse(polled.data.server_time)} expanded=${open.includes(job.name)}
            onToggle=${() => toggle(job.name)} onRun=${may("admin") && (() => setAsked(job.name))} />
          ${job.blocked && html`<tr class="said"><td colspan="7">
            <strong>Blocked</strong> since ${whenExactly(job.blocked.since)} on ${job.blocked.instance}: ${job.blocked.reason}</td></tr>`}
          ${open.includes(job.name) && html`<tr class="runs" id=${`runs-${job.name}`}><td colspan="7"><${Runs} name=${job.name} /></td></tr>`}
        <//>`)}</tbody>
      </table>
    </div>`}
  </div>`;
}

function Job({ job, time, read, expanded, onToggle, onRun }) {
  const { lock, running, queued, last_run: last } = job;
  const age = job.last_success_at && time - Date.parse(job.last_success_at);
  return html`<tr>
    <th scope="row">${job.name}<small title=${job.schedule}>${inWords(job.schedule)}</small>
      <small>${job.time_zone}${job.on_leader && ", on the leader"}</small></th>
    <td>${job.next_run_at ? html`${left(Date.parse(job.next_run_at) - time)}<small class="short">${when(job.next_run_at)}</small>` : "–"}</td>
    <td>${job.lock_problem ? html`<span class="bad">The lock's holder is unknown: ${job.lock_problem}</span>`
      : lock ? html`<${Holder} lock=${lock} passed=${time - read} />` : html`<span class="soft">free</span>`}</td>
    <td>${running && html`<${RunState} run=${running} /><small>since ${whenExactly(running.began_at)}</small>`}
      ${queued && html`<${RunState} run=${queued} /><small>asked for ${roughly(time - Date.parse(queued.scheduled_at))} ago</small>`}
      ${!running && !queued && html`<span class="soft">–</span>`}</td>
    <td>${last ? html`<${RunState} run=${last} /><small title=${whenExactly(last.scheduled_at)}>${last.duration_ms !== null && `${roughly(last.duration_ms)}: `}
      ${last.error ? html`<span class="bad">${last.error}</span>` : last.result}</small>` : html`<span class="soft">never</span>`}</td>
    <td title=${whenExactly(job.last_success_at)}>${age === null ? html`<span class="soft">never</span>` : `${roughly(age)} ago`}</td>
    <td class="act"><button aria-expanded=${String(expanded)} aria-controls=${`runs-${job.name}`} aria-label=${`Runs of ${job.name}`} onClick=${onToggle}>Runs</button>
      ${onRun && html` <button aria-label=${`Run now: ${job.name}`} onClick=${onRun}>Run now</button>`}</td>
  </tr>`;
}

const Holder = ({ lock, passed }) => html`<span title=${lock.holder}>held</span>
  ${lock.lease_left_ms === null ? html`<small>until its session ends</small>`
    : html` <span>${left(lock.lease_left_ms - passed)}</span>`}
  <small>${lock.holder.split("/")[0]}</small>`;
