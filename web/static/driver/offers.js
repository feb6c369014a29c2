// The driver's lists: the offers and the jobs.
import { html, useEffect, useLayoutEffect, useRef, useState } from "../assets/preact.js";
import { now } from "../assets/api.js";
import { useLanguage } from "../assets/language.js";
import { Dialog, left, useNow } from "../assets/ui.js";
import { named } from "../assets/words.js";
import { cardsOf, mayTapAgain } from "./work_state.js";

/** @import { Deed, Dispatch, Tap } from "./work_state.js" */

/**
 * @typedef {import("./work.js").Work} Work
 * @typedef {import("./work_state.js").State} State
 * @typedef {ReturnType<typeof cardsOf>[number]} Card
 */

/** The offers, the taps and the ended offers. @param {{state: State, work: Work}} props */
export function Offers({ state, work }) {
  const { t } = useLanguage();
  const cards = cardsOf(state);
  const nothing = () => {
    if (!state.offers || !state.me) return t.loading;
    return state.me.on_duty ? t.noOffers : t.offDutyOffers;
  };
  return html`<h1 class="hidden">${t.offers}</h1>
    ${cards.length === 0 && html`<p class="nothing soft">${nothing()}</p>`}
    ${cards.map((c) => html`<${Offer} key=${c.dispatch.id} state=${state} work=${work} card=${c} />`)}
    ${state.more && html`<p class="soft">${t.moreOffers(state.offers?.length ?? 0)}</p>`}`;
}

/**
 * Calls onSeen when at least half of an element is on the screen and the page is visible, and again when key changes.
 * @param {Ref<HTMLElement>} element @param {() => void} onSeen @param {string} key
 */
function useSeen(element, onSeen, key) {
  const latest = useRef(onSeen);
  latest.current = onSeen;
  useEffect(() => {
    let there = false;
    const look = () => { if (there && document.visibilityState === "visible") latest.current(); };
    const observer = new IntersectionObserver((entries) => {
      there = entries[entries.length - 1].isIntersecting;
      look();
    }, { threshold: 0.5 });
    observer.observe(element.current);
    document.addEventListener("visibilitychange", look);
    return () => {
      observer.disconnect();
      document.removeEventListener("visibilitychange", look);
    };
  }, [key]);
}

/** @param {{state: State, work: Work, card: Card}} props */
function Offer({ state, work, card: { dispatch, offered, tap, why } }) {
  const { t } = useLanguage();
  const [declining, setDeclining] = useState(false);
  /** @type {Ref<HTMLElement>} */
  const element = useRef(null);
  useSeen(element, () => offered && work.seen(dispatch), `${dispatch.id} ${dispatch.round} ${offered}`);
  const before = state.before.get(dispatch.id) ?? (tap?.answer?.kind === "stale" && tap.round < dispatch.round ? tap.dispatch : undefined);
  const deed = state.deeds[dispatch.id];
  const declined = dispatch.offer_status === "DECLINED";
  const open = offered && (!tap || mayTapAgain(tap));
  const asking = tap && tap.state !== "done";
  return html`<article ref=${element} class=${`card offer ${tap?.answer?.kind ?? why ?? ""}`} aria-labelledby=${`at-${dispatch.id}`}>
    ${(before || declined) && html`<p class="row">
      ${before && html`<span class="badge warn">${sameTerms(before, dispatch) ? t.openAgain : t.newTerms}</span>`}
      ${declined && html`<span class="badge">${t.declinedBadge}</span>`}</p>`}
    <${Terms} dispatch=${dispatch} before=${before && !sameTerms(before, dispatch) ? before : undefined} />
    <${Answer} tap=${tap} why=${why} />
    ${(open || asking) && html`<${Accept} dispatch=${dispatch} tap=${tap} onTap=${() => work.accept(dispatch)} />`}
    ${tap?.answer?.kind === "won" && html`<a class="button primary big" href="#jobs">${t.toJobs}</a>`}
    ${open && !declined && html`<button class="quiet" onClick=${() => setDeclining(true)}>${t.decline}</button>`}
    ${!open && !asking && html`<button class="quiet" onClick=${() => work.forget(dispatch.id)}>${t.dismiss}</button>`}
    <${Deed} deed=${deed} />
    ${declining && html`<${AskWhy} title=${t.declineTitle} word=${t.decline} reasons=${t.declineReasons} onClose=${() => setDeclining(false)}
      onReason=${(/** @type {string} */ code) => { setDeclining(false); work.change("decline", dispatch, code); }} />`}
  </article>`;
}

/** @type {(keyof Dispatch)[]} */
const terms = ["site_address", "vehicle_class", "min_working_height_m", "region", "note", "work_starts_at", "work_ends_at"];

/** @param {Dispatch} a @param {Dispatch} b */
const sameTerms = (a, b) => terms.every((k) => a[k] === b[k]) && a.fee.amount === b.fee.amount && a.fee.currency === b.fee.currency;

/** The button that accepts, and the time left. @param {{dispatch: Dispatch, tap?: Tap, onTap: () => void}} props */
function Accept({ dispatch, tap, onTap }) {
  const { t } = useLanguage();
  const opens = Date.parse(dispatch.opens_at), ends = Date.parse(dispatch.expires_at);
  const at = useNow(opens > now() ? 100 : 1000);
  const asking = tap && tap.state !== "done";
  const early = at < opens, over = at >= ends;
  const off = asking || early || over;
  /** @type {Ref<HTMLElement>} */
  const button = useRef(null);
  const still = useStill(button);
  const word = () => {
    if (tap && tap.state !== "done") return t[tap.state];
    if (early) return `${t.opensIn} ${left(opens - at)}`;
    return tap?.answer?.kind === "stale" ? t.acceptAgain : t.accept;
  };
  return html`
    ${!asking && !early && html`<p class=${`left ${ends - at < 60_000 ? "bad" : "soft"}`}>${over ? t.over : html`${t.endsIn} <span class="clock" role="timer">${left(ends - at)}</span>`}</p>`}
    <button ref=${button} class="primary big accept" aria-disabled=${String(off || !still)} aria-busy=${String(Boolean(asking))}
      onClick=${(/** @type {MouseEvent} */ e) => off || (e.detail > 0 && !still) || onTap()}>${word()}</button>`;
}

/**
 * Shows the answer to a tap, or the reason for an offer's end. A screen reader reads it, and it takes the button's focus.
 * @param {{tap?: Tap, why?: Card["why"]}} props
 */
function Answer({ tap, why }) {
  const language = useLanguage();
  /** @type {Ref<HTMLElement>} */
  const box = useRef(null);
  const done = tap?.state === "done";
  const focused = useRef(false);
  if (tap && !done) focused.current = true;
  useEffect(() => {
    if (done && focused.current && document.activeElement === document.body) box.current.focus({ preventScroll: true });
    if (done) focused.current = false;
  }, [done]);
  const { word, more } = answerIn(language, tap, why);
  const tone = done || why ? tap?.answer?.kind ?? why : tap?.state;
  return html`<div ref=${box} class=${`answer ${tone ?? ""}`} role="status" tabindex="-1">${word && html`<strong>${word}</strong>`}${more && html`<p>${more}</p>`}</div>`;
}

/** @param {Reader} reader @param {Tap} [tap] @param {Card["why"]} [why] @returns {{word?: string, more?: string}} */
function answerIn({ t, second, number }, tap, why) {
  if (!tap) return why ? { word: t[why], more: why === "taken" ? t.takenEnded : t[`${why}More`] } : {};
  if (tap.state !== "done") return { more: t[`${tap.state}More`] };
  if (!tap.answer) return {};
  const { kind, rank, behind, waiting, opensAt, reasons, detail } = tap.answer;
  const more = {
    won: t.wonMore, stale: t.staleMore, expired: t.expiredMore, canceled: t.canceledMore, busy: t.busyMore, missed: t.missedMore, gone: t.goneMore,
    taken: rank ? t.takenBy({ behind: number(behind ?? 0), rank }) : waiting ? t.takenWaiting : t.takenPlain,
    early: opensAt && t.earlyMore(second(opensAt)),
    unfit: reasons?.map((r) => named(t.reasons, r) ?? r).join(" "),
    refused: detail && (named(t.codes, detail) ?? t.codes.INTERNAL),
  };
  return { word: t[kind], more: more[kind] };
}

// The Complete button replaces Start at the same place and is final: the second half of a double tap must not press it.
const doubleTap = 1500; // ms
/** @type {Partial<Record<Dispatch["status"], "start"|"complete">>} */
const next = { ACCEPTED: "start", IN_PROGRESS: "complete" };

/** The driver's accepted jobs: in progress, still to be started, and completed. @param {{state: State, work: Work}} props */
export function Jobs({ state, work }) {
  const { t } = useLanguage();
  const { jobs } = state;
  if (!jobs || jobs.length === 0) return html`<h1 class="hidden">${t.jobs}</h1><p class="nothing soft">${jobs ? t.noJobs : t.loading}</p>`;
  const begins = (/** @type {Dispatch} */ j) => Date.parse(j.work_starts_at);
  const todo = jobs.filter((j) => j.status !== "COMPLETED").sort((a, b) => begins(a) - begins(b));
  const done = jobs.filter((j) => j.status === "COMPLETED").sort((a, b) => begins(b) - begins(a));
  return html`<h1 class="hidden">${t.jobs}</h1>
    ${[...todo, ...done].map((j) => html`<${Job} key=${j.id} state=${state} work=${work} job=${j} />`)}
    ${state.moreJobs && html`<p class="soft">${t.moreJobs(jobs.length)}</p>`}`;
}

/** @param {{state: State, work: Work, job: Dispatch}} props */
function Job({ state, work, job }) {
  const { t } = useLanguage();
  const [withdrawing, setWithdrawing] = useState(false);
  const deed = state.deeds[job.id];
  const busy = Boolean(deed && !deed.error);
  const step = next[job.status];
  return html`<article class=${`card job ${job.status}`} aria-labelledby=${`at-${job.id}`}>
    <p><span class=${`badge ${job.status === "COMPLETED" ? "" : "good"}`}>${named(t, job.status)}</span></p>
    <${Terms} dispatch=${job} />
    ${step && html`<${Step} moment=${step === "complete" ? doubleTap : undefined} word=${t[step]} off=${busy} onTap=${() => work.change(step, job)} />`}
    ${job.status === "ACCEPTED" && html`<button class="quiet" aria-disabled=${String(busy)} onClick=${() => busy || setWithdrawing(true)}>${t.withdraw}</button>`}
    <${Deed} deed=${deed} />
    ${withdrawing && html`<${AskWhy} title=${t.withdrawTitle} word=${t.withdraw} reasons=${t.withdrawReasons} onClose=${() => setWithdrawing(false)}
      onReason=${(/** @type {string} */ code) => { setWithdrawing(false); work.change("withdraw", job, code); }}><p>${t.withdrawMore}</p><//>`}
  </article>`;
}

/** @param {{word: string, off: boolean, onTap: () => void, moment?: number}} props */
function Step({ word, off, onTap, moment }) {
  /** @type {Ref<HTMLElement>} */
  const button = useRef(null);
  const still = useStill(button, moment);
  return html`<button ref=${button} class="primary big" aria-disabled=${String(off || !still)}
    onClick=${(/** @type {MouseEvent} */ e) => off || (e.detail > 0 && !still) || onTap()}>${word}</button>`;
}

// The parts that offers and jobs share: the terms, the state of a change, and the question for a reason.

/**
 * The terms of a dispatch, in the reader's language.
 * @param {Dispatch} dispatch @param {Reader} reader @returns {{name: "when"|"vehicle"|"height"|"region"|"note", text: string}[]}
 */
function termsOf(dispatch, { t, span, number }) {
  const height = dispatch.min_working_height_m;
  return [
    { name: "when", text: span(dispatch.work_starts_at, dispatch.work_ends_at) },
    { name: "vehicle", text: dispatch.vehicle_class },
    { name: "height", text: height === null ? "" : t.atLeast(number(height)) },
    { name: "region", text: dispatch.region },
    { name: "note", text: dispatch.note ?? "" },
  ];
}

/**
 * Shows the terms. With before, the terms of an earlier round, it shows the changes since then.
 * @param {{dispatch: Dispatch, before?: Dispatch}} props
 */
export function Terms({ dispatch, before }) {
  const language = useLanguage();
  const { t, money } = language;
  const old = before ? termsOf(before, language) : null;
  const was = (/** @type {string} */ now, /** @type {string|undefined} */ then) => (before && now !== then ? html` <span class="was">${t.was(then || "–")}</span>` : "");
  return html`
    <h2 id=${`at-${dispatch.id}`}>${dispatch.site_address}</h2>${was(dispatch.site_address, before?.site_address)}
    <p class="fee"><span class="hidden">${t.fee} </span>${money(dispatch.fee)}${was(money(dispatch.fee), before && money(before.fee))}</p>
    <dl class="terms">${termsOf(dispatch, language).map(({ name, text }, i) => (text || old?.[i].text) && html`
      <div key=${name}><dt>${t[name]}</dt><dd>${text || "–"}${was(text, old?.[i].text)}</dd></div>`)}</dl>`;
}

/** Shows that a change is under way, has an unknown outcome, or failed. @param {{deed?: Deed}} props */
function Deed({ deed }) {
  const { t } = useLanguage();
  let text = "";
  if (deed?.error) text = t.notDone(named(t.codes, deed.error.code) ?? t.codes.INTERNAL);
  else if (deed) text = deed.unknown ? t.unknown : named(t.underWay, deed.what) ?? "";
  return html`<p class=${deed?.error ? "bad" : "soft"} role="status">${text}</p>`;
}

/**
 * Asks for a reason before an action.
 * @param {{title: string, word: string, reasons: Record<string, string>, onReason: (code: string) => void, onClose: () => void, children?: unknown}} props
 */
function AskWhy({ title, word, reasons, children, onReason, onClose }) {
  const { t } = useLanguage();
  const [code, setCode] = useState(Object.keys(reasons)[0]);
  const submit = (/** @type {SubmitEvent} */ e) => {
    e.preventDefault();
    onReason(code);
  };
  return html`<${Dialog} title=${title} onClose=${onClose}>
    <form class="stack" onSubmit=${submit}>
      ${children}
      <fieldset class="stack"><legend>${t.why}</legend>${Object.entries(reasons).map(([value, text]) => html`
        <label key=${value} class="choice"><input type="radio" name="reason" value=${value} checked=${value === code}
          onChange=${() => setCode(value)} /> ${text}</label>`)}</fieldset>
      <button class="danger big">${word}</button>
      <button type="button" class="big" onClick=${onClose}>${t.back}</button>
    </form>
  <//>`;
}

// A tap must press the button that the driver meant: a list that moves, because a card above it appeared or left, puts another
// button under a finger that is on its way.

const settling = 400; // ms; no driver reads an offer faster

/** @type {Set<() => void>} */
const watched = new Set();
const observer = new ResizeObserver(() => watched.forEach((look) => look()));

/** @param {() => void} look */
function watch(look) {
  if (watched.size === 0) observer.observe(document.body);
  watched.add(look);
  return () => {
    watched.delete(look);
    if (watched.size === 0) observer.disconnect();
  };
}

/**
 * Reports whether a button has been at its place for moment ms. A reader's scroll moves it in the window, but not on the page.
 * The browser's own scrolling moves it on the page, but not in the window. The button has moved if both changed.
 * @param {Ref<HTMLElement>} element
 */
function useStill(element, moment = settling) {
  const [still, setStill] = useState(false);
  const last = useRef(/** @type {{left: number, top: number, down: number}|null} */ (null));
  const timer = useRef(0);
  const wait = useRef(moment);
  wait.current = moment;
  const look = () => {
    const { left, top } = element.current.getBoundingClientRect();
    const place = { left, top, down: top + scrollY };
    const before = last.current;
    last.current = place;
    if (before && place.left === before.left && (Math.abs(place.top - before.top) < 8 || Math.abs(place.down - before.down) < 8)) return;
    clearTimeout(timer.current);
    timer.current = setTimeout(setStill, wait.current, true);
    setStill(false);
  };
  useLayoutEffect(() => { last.current = null; }, [moment]); // the reader sees another button
  useLayoutEffect(look);
  useLayoutEffect(() => {
    const unwatch = watch(look);
    return () => {
      unwatch();
      clearTimeout(timer.current);
    };
  }, []);
  return still;
}
