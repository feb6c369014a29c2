import { Fragment, html, useState } from "../assets/preact.js";
import { get, send } from "../assets/api.js";
import { useLanguage } from "../assets/language.js";
import { Ask, left, useNow } from "../assets/ui.js";
import { Logged, resultIn } from "./job_words.js";
import { Freshness, usePolled } from "./poll.js";
import { Runs, RunState, Watched } from "./runs.js";
import { inWords } from "./schedule.js";

/** The scheduled jobs: the next run, the lock's holder, the last run, and the reason of a block. */
export function Jobs({ may }) {
  const { t, whenExactly } = useLanguage();
  const words = t.jobs;
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
    <div class="row"><h1>${t.page.jobs}</h1><${Freshness} of=${polled} /></div>
    <div class="trouble" role="alert">${blocked.length > 0 && words.blocked(t.list(blocked.map((j) => j.name)))}</div>
    ${watched.map((run) => html`<${Watched} key=${run.job + run.scheduled_at} run=${run} onEnd=${polled.reload} />`)}
    ${asked && html`<${Ask} title=${words.runTitle(asked)} word=${words.run} act=${runNow} onClose=${() => setAsked("")}>
      <p>${words.runMore}</p>
    <//>`}
    ${polled.data && html`<div class="scroll card flush" tabindex="0" role="region" aria-label=${t.page.jobs}>
      <table class="dense jobs">
        <thead><tr>${[words.job, words.next, words.lock, words.now, words.last, words.success].map((title) => html`
          <th key=${title} scope="col">${title}</th>`)}<th scope="col"><span class="hidden">${words.can}</span></th></tr></thead>
        <tbody>${jobs.map((job) => html`<${Fragment} key=${job.name}>
          <${Job} job=${job} time=${time} read=${Date.parse(polled.data.server_time)} expanded=${open.includes(job.name)}
            onToggle=${() => toggle(job.name)} onRun=${may("admin") && (() => setAsked(job.name))} />
          ${job.blocked && html`<tr class="said"><td colspan="7">
            <strong>${words.blockedWord}</strong>${words.blockedSince(whenExactly(job.blocked.since), job.blocked.instance)}<${Logged} text=${job.blocked.reason} /></td></tr>`}
          ${open.includes(job.name) && html`<tr class="runs" id=${`runs-${job.name}`}><td colspan="7"><${Runs} name=${job.name} /></td></tr>`}
        <//>`)}</tbody>
      </table>
    </div>`}
  </div>`;
}

function Job({ job, time, read, expanded, onToggle, onRun }) {
  const { t, roughly, when, whenExactly } = useLanguage();
  const words = t.jobs;
  const { lock, running, queued, last_run: last } = job;
  const age = job.last_success_at && time - Date.parse(job.last_success_at);
  return html`<tr>
    <th scope="row">${job.name}<small title=${job.schedule}>${inWords(job.schedule, t)}</small>
      <small>${job.on_leader ? words.leader(job.time_zone) : job.time_zone}</small></th>
    <td>${job.next_run_at ? html`${left(Date.parse(job.next_run_at) - time)}<small class="short">${when(job.next_run_at)}</small>` : "–"}</td>
    <td>${job.lock_problem ? html`<span class="bad">${words.unknownHolder}<${Logged} text=${job.lock_problem} /></span>`
      : lock ? html`<${Holder} lock=${lock} passed=${time - read} />` : html`<span class="soft">${words.free}</span>`}</td>
    <td>${running && html`<${RunState} run=${running} /><small>${words.since(whenExactly(running.began_at))}</small>`}
      ${queued && html`<${RunState} run=${queued} /><small>${words.asked(roughly(time - Date.parse(queued.scheduled_at)))}</small>`}
      ${!running && !queued && html`<span class="soft">–</span>`}</td>
    <td>${last ? html`<${RunState} run=${last} /><small title=${whenExactly(last.scheduled_at)}>${last.duration_ms !== null && words.took(roughly(last.duration_ms))}
      ${last.error ? html`<span class="bad"><${Logged} text=${last.error} /></span>` : resultIn(t, last.result)}</small>` : html`<span class="soft">${words.never}</span>`}</td>
    <td title=${whenExactly(job.last_success_at)}>${age === null ? html`<span class="soft">${words.never}</span>` : t.ago(roughly(age))}</td>
    <td class="act"><button aria-expanded=${String(expanded)} aria-controls=${`runs-${job.name}`} aria-label=${words.runsOf(job.name)} onClick=${onToggle}>${words.runs}</button>
      ${onRun && html` <button aria-label=${words.runOf(job.name)} onClick=${onRun}>${words.run}</button>`}</td>
  </tr>`;
}

function Holder({ lock, passed }) {
  const { t: { jobs } } = useLanguage();
  return html`<span>${jobs.held}</span>
    ${lock.lease_left_ms === null ? html`<small>${jobs.session}</small>`
      : html` <span>${left(lock.lease_left_ms - passed)}</span>`}
    <small><bdi title=${lock.holder}>${lock.holder.split("/")[0]}</bdi></small>`;
}
