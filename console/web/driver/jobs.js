import { html, useRef, useState } from "../assets/preact.js";
import { AskWhy, Deed, Terms } from "./card.js";
import { useLanguage } from "../assets/language.js";
import { useStill } from "./still.js";

// The Complete button replaces Start at the same place and is final: the second half of a double tap must not press it.
const doubleTap = 1500; // ms
const next = { ACCEPTED: "start", IN_PROGRESS: "complete" };

/** The driver's accepted jobs: in progress, still to be started, and completed. */
export function Jobs({ work }) {
  const { t } = useLanguage();
  const { jobs } = work.state;
  if (!jobs || jobs.length === 0) return html`<h1 class="hidden">${t.jobs}</h1><p class="nothing soft">${jobs ? t.noJobs : t.loading}</p>`;
  const begins = (j) => Date.parse(j.work_starts_at);
  const todo = jobs.filter((j) => j.status !== "COMPLETED").sort((a, b) => begins(a) - begins(b));
  const done = jobs.filter((j) => j.status === "COMPLETED").sort((a, b) => begins(b) - begins(a));
  return html`<h1 class="hidden">${t.jobs}</h1>
    ${[...todo, ...done].map((j) => html`<${Job} key=${j.id} work=${work} job=${j} />`)}
    ${work.state.moreJobs && html`<p class="soft">${t.moreJobs(jobs.length)}</p>`}`;
}

function Job({ work, job }) {
  const { t } = useLanguage();
  const [withdrawing, setWithdrawing] = useState(false);
  const deed = work.state.deeds[job.id];
  const busy = Boolean(deed && !deed.error);
  const step = next[job.status];
  return html`<article class=${`card job ${job.status}`} aria-labelledby=${`at-${job.id}`}>
    <p><span class=${`badge ${job.status === "COMPLETED" ? "" : "good"}`}>${t[job.status]}</span></p>
    <${Terms} dispatch=${job} />
    ${step && html`<${Step} moment=${step === "complete" ? doubleTap : undefined} word=${t[step]} off=${busy} onTap=${() => work.change(step, job)} />`}
    ${job.status === "ACCEPTED" && html`<button class="quiet" aria-disabled=${String(busy)} onClick=${() => busy || setWithdrawing(true)}>${t.withdraw}</button>`}
    <${Deed} deed=${deed} />
    ${withdrawing && html`<${AskWhy} title=${t.withdrawTitle} word=${t.withdraw} reasons=${t.withdrawReasons} onClose=${() => setWithdrawing(false)}
      onReason=${(code) => { setWithdrawing(false); work.change("withdraw", job, code); }}><p>${t.withdrawMore}</p><//>`}
  </article>`;
}

function Step({ word, off, onTap, moment }) {
  const button = useRef(null);
  const still = useStill(button, moment);
  return html`<button ref=${button} class="primary big" aria-disabled=${String(off || !still)}
    onClick=${(e) => off || (e.detail > 0 && !still) || onTap()}>${word}</button>`;
}
