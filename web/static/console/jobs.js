// The scheduled jobs and their runs.
import { Fragment, html, useEffect, useState } from "../assets/preact.js";
import { get, list, send } from "../assets/api.js";
import { useLanguage } from "../assets/language.js";
import { left, useNow } from "../assets/ui.js";
import { Ask, Logged } from "./dialogs.js";
import { Freshness, usePolled } from "./reading.js";

/** The scheduled jobs: the next run, the lock's holder, the last run, and the reason of a block. @param {PageProps} props */
export function Jobs({ may }) {
  const { t, whenExactly } = useLanguage();
  const words = t.jobs;
  const polled = usePolled((signal) => get("/v1/admin/jobs?limit=200", { signal }), 3000, []);
  const [open, setOpen] = useState(/** @type {string[]} */ ([]));
  const [asked, setAsked] = useState("");
  const [watched, setWatched] = useState(/** @type {Schemas["Run"][]} */ ([]));
  const time = useNow();
  /** @type {Schemas["Job"][]} */
  const jobs = polled.data?.items ?? [];
  const blocked = jobs.filter((j) => j.blocked);
  const toggle = (/** @type {string} */ name) => setOpen((o) => (o.includes(name) ? o.filter((n) => n !== name) : [...o, name]));
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

/** @param {{job: Schemas["Job"], time: number, read: number, expanded: boolean, onToggle: () => void, onRun: false|(() => void)}} props */
function Job({ job, time, read, expanded, onToggle, onRun }) {
  const { t, roughly, when, whenExactly } = useLanguage();
  const words = t.jobs;
  const { lock, running, queued, last_run: last } = job;
  const age = job.last_success_at ? time - Date.parse(job.last_success_at) : null;
  return html`<tr>
    <th scope="row">${job.name}<small title=${job.schedule}>${inWords(job.schedule, t)}</small>
      <small>${job.on_leader ? words.leader(job.time_zone) : job.time_zone}</small>
      <small>${holdIn(job, t, roughly)}</small></th>
    <td>${!job.enabled ? html`<span class="badge warn">${words.off}</span><small>${words.byHand}</small>`
      : job.next_run_at ? html`${left(Date.parse(job.next_run_at) - time)}<small class="short">${when(job.next_run_at)}</small>` : "–"}</td>
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

/** @param {{lock: NonNullable<Schemas["Job"]["lock"]>, passed: number}} props */
function Holder({ lock, passed }) {
  const { t: { jobs } } = useLanguage();
  return html`<span>${jobs.held}</span>
    ${lock.lease_left_ms === null ? html`<small>${jobs.session}</small>`
      : html` <span>${left(lock.lease_left_ms - passed)}</span>`}
    <small><bdi title=${lock.holder}>${lock.holder.split("/")[0]}</bdi></small>`;
}

const pageSize = 10;
const most = 200;
const colors = { QUEUED: "warn", RUNNING: "warn", INTERRUPTED: "bad", SUCCEEDED: "good", FAILED: "bad" };
/** @param {Schemas["Run"]} run */
const ended = (run) => run.status === "SUCCEEDED" || run.status === "FAILED";

/** @param {string} name @param {number} n @param {AbortSignal} signal @returns {Promise<{items: Schemas["Run"][], more: boolean}>} */
const runsOf = (name, n, signal) => list(`/v1/admin/jobs/${encodeURIComponent(name)}/runs`, n, { signal });

/** @param {{run: Schemas["Run"]}} props */
function RunState({ run }) {
  const { t } = useLanguage();
  return html`<span class=${"badge " + colors[run.status]}>${t.runStates[run.status]}</span>`;
}

/** The last runs of a job, and more of them on demand. @param {{name: string}} props */
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

/** Follows a requested run until its end. @param {{run: Schemas["Run"], onEnd: () => void}} props */
function Watched({ run: first, onEnd }) {
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

/** @param {Schemas["Run"]} run @param {Reader} reader */
function said(run, { t, roughly }) {
  if (run.status === "QUEUED") return t.jobs.waits;
  if (!ended(run)) return t.jobs.on(run.instance);
  return html`${run.error ? html`<${Logged} text=${run.error} />` : resultIn(t, run.result)}${t.jobs.ended(roughly(run.duration_ms ?? 0), run.instance)}`;
}

/** @param {{run: Schemas["Run"], onRun: (run: Schemas["Run"]) => void}} props */
function Asking({ run, onRun }) {
  const { t: { jobs } } = useLanguage();
  const { data, error } = usePolled((signal) => runsOf(run.job, looked, signal), 1000, [run.job]);
  const found = data?.items.find((r) => r.scheduled_at === run.scheduled_at);
  useEffect(() => { if (found && found.status !== run.status) onRun(found); });
  if (error) return html`<span class="bad">${jobs.notAsked}</span>`;
  return data && !found && html`<span class="soft">${jobs.notAmong(looked)}</span>`;
}

// What the jobs write of their runs, and the names of the texts for it.
/** @type {[RegExp, keyof Texts["jobResults"]][]} */
const results = [
  [/^(\d+) offers ended$/, "ended"],
  [/^(\d+) drivers reminded$/, "reminded"],
  [/^(\d+) rows deleted$/, "deleted"],
  [/^(\d+) dispatches closed, (\d+) topics to unsubscribe$/, "closed"],
  [/^(\d+) regions$/, "regions"],
  [/^skipped: the run began (\S+) late$/, "late"],
];

/** Returns the result of a run in words. @param {Texts} t @param {string|null} text */
function resultIn(t, text) {
  if (text === null) return "–";
  for (const [pattern, word] of results) {
    const found = pattern.exec(text);
    if (found) return t.jobResults[word](found[1], found[2]);
  }
  return html`<${Logged} text=${text} />`;
}

/** Says for how long a job's lock is held. @param {Schemas["Job"]} job @param {Texts} t @param {Reader["roughly"]} roughly */
export function holdIn(job, { jobs }, roughly) {
  const most = job.lock_at_least_ms ? jobs.between(roughly(job.lock_at_least_ms), roughly(job.lock_at_most_ms)) : jobs.atMost(roughly(job.lock_at_most_ms));
  return job.lock_lease_ms === null ? most : jobs.leased(most, roughly(job.lock_lease_ms));
}

/** @type {Record<string, "h"|"min"|"s"|"ms">} */
const units = { h: "h", m: "min", s: "s", ms: "ms" }; // Go's, and the dictionary's

/** Formats Go's 1h30m0s as "1 h 30 min". @param {string} text @param {Texts} t */
const duration = (text, t) => [...text.matchAll(/([\d.]+)(h|ms|m|s)/g)].filter(([, n]) => Number(n) !== 0)
  .map(([, n, unit]) => t.units[units[unit]](n)).join(" ") || text;

/** @param {string} field */
const number = (field) => (/^\d+$/.test(field) ? Number(field) : null);
/** @param {string} field */
const every = (field) => (field === "*" ? 1 : number(field.replace(/^(\*|0)\//, "")));

/**
 * Describes a job's schedule in words, or returns the text if these words can't express it.
 * @param {string} text a cron expression with seconds, "@every 1m0s", or "after 1m0s"
 * @param {Texts} t
 */
export function inWords(text, t) {
  const { schedule } = t;
  if (text.startsWith("@every ")) return schedule.interval(duration(text.slice(7), t));
  if (text.startsWith("after ")) return schedule.after(duration(text.slice(6), t));
  const fields = text.split(/\s+/);
  if (fields.length !== 6) return text;
  const [second, minute, hour, date, month, weekday] = fields;
  if (date !== "*" || month !== "*") return text;
  const repeats = (/** @type {string} */ field) => every(field) && !/^\d+$/.test(field);
  if (weekday === "*" && hour === "*") {
    if (minute === "*" && repeats(second)) return schedule.every.second(every(second));
    if (second !== "0") return text;
    if (repeats(minute)) return schedule.every.minute(every(minute));
    if (number(minute) !== null) return minute === "0" ? schedule.hourly : schedule.hourlyAt(minute);
    return text;
  }
  if (second !== "0" || number(minute) === null || number(hour) === null) return text;
  const at = `${hour.padStart(2, "0")}:${minute.padStart(2, "0")}`;
  if (weekday === "*") return schedule.daily(at);
  const day = number(weekday);
  return day !== null && day <= 7 ? schedule.weekly(day, at) : text;
}
