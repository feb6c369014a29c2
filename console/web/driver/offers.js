import { html, useEffect, useRef, useState } from "../assets/preact.js";
import { now } from "../assets/api.js";
import { left, useNow } from "../assets/ui.js";
import { AskWhy, Deed, Terms } from "./card.js";
import { useLanguage } from "../assets/language.js";
import { useStill } from "./still.js";
import { mayTapAgain } from "./taps.js";

/** Lists the offers, the taps and the ended offers, each dispatch once: the latest opening first, declined offers last. */
function cardsOf({ me, offers, ended }, taps) {
  if (!me) return []; // a tap needs its driver
  const cards = new Map();
  if (me.on_duty) for (const e of ended) cards.set(e.dispatch.id, e);
  for (const [id, tap] of taps) if (tap.driver === me.id) cards.set(id, { dispatch: tap.dispatch, tap });
  for (const offer of offers ?? []) cards.set(offer.id, { dispatch: offer, offered: true, tap: taps.get(offer.id) });
  const declined = (c) => (c.dispatch.offer_status === "DECLINED" ? 1 : 0);
  const at = (c) => Date.parse(c.dispatch.opens_at);
  return [...cards.values()].sort((a, b) => declined(a) - declined(b) || at(b) - at(a) || (a.dispatch.id < b.dispatch.id ? 1 : -1));
}

export function Offers({ work }) {
  const { t } = useLanguage();
  const { state } = work;
  const cards = cardsOf(state, work.taps.all);
  const nothing = () => {
    if (!state.offers || !state.me) return t.loading;
    return state.me.on_duty ? t.noOffers : t.offDutyOffers;
  };
  return html`<h1 class="hidden">${t.offers}</h1>
    ${cards.length === 0 && html`<p class="nothing soft">${nothing()}</p>`}
    ${cards.map((c) => html`<${Offer} key=${c.dispatch.id} work=${work} card=${c} />`)}
    ${state.more && html`<p class="soft">${t.moreOffers(state.offers.length)}</p>`}`;
}

/** Calls onSeen when at least half of an element is on the screen and the page is visible. */
function useSeen(element, onSeen, key) {
  const latest = useRef(onSeen);
  latest.current = onSeen;
  useEffect(() => {
    let there = false;
    const look = () => { if (there && document.visibilityState === "visible") latest.current(); };
    const observer = new IntersectionObserver((entries) => {
      there = entries.at(-1).isIntersecting;
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

function Offer({ work, card: { dispatch, offered, tap, why } }) {
  const { t } = useLanguage();
  const [declining, setDeclining] = useState(false);
  const element = useRef(null);
  useSeen(element, () => offered && work.seen(dispatch), `${dispatch.id} ${dispatch.round} ${offered}`);
  const before = work.state.before.get(dispatch.id) ?? (tap?.answer?.kind === "stale" && tap.round < dispatch.round ? tap.dispatch : undefined);
  const deed = work.state.deeds[dispatch.id];
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
      onReason=${(code) => { setDeclining(false); work.change("decline", dispatch, code); }} />`}
  </article>`;
}

const terms = ["site_address", "vehicle_class", "min_working_height_m", "region", "note", "work_starts_at", "work_ends_at"];

const sameTerms = (a, b) => terms.every((k) => a[k] === b[k]) && a.fee.amount === b.fee.amount && a.fee.currency === b.fee.currency;

/** The button that accepts, and the time left. */
function Accept({ dispatch, tap, onTap }) {
  const { t } = useLanguage();
  const opens = Date.parse(dispatch.opens_at), ends = Date.parse(dispatch.expires_at);
  const at = useNow(opens > now() ? 100 : 1000);
  const asking = tap && tap.state !== "done";
  const early = at < opens, over = at >= ends;
  const off = asking || early || over;
  const button = useRef(null);
  const still = useStill(button);
  const word = () => {
    if (asking) return t[tap.state];
    if (early) return `${t.opensIn} ${left(opens - at)}`;
    return tap?.answer?.kind === "stale" ? t.acceptAgain : t.accept;
  };
  return html`
    ${!asking && !early && html`<p class=${`left ${ends - at < 60_000 ? "bad" : "soft"}`}>${over ? t.over : html`${t.endsIn} <span class="clock" role="timer">${left(ends - at)}</span>`}</p>`}
    <button ref=${button} class="primary big accept" aria-disabled=${String(off || !still)} aria-busy=${String(Boolean(asking))}
      onClick=${(e) => off || (e.detail > 0 && !still) || onTap()}>${word()}</button>`;
}

/** Shows the answer to a tap, or the reason for an offer's end. A screen reader reads it, and it takes the button's focus. */
function Answer({ tap, why }) {
  const language = useLanguage();
  const box = useRef(null);
  const done = tap?.state === "done";
  const focused = useRef(false);
  if (tap && !done) focused.current = true;
  useEffect(() => {
    if (done && focused.current && document.activeElement === document.body) box.current.focus({ preventScroll: true });
    if (done) focused.current = false;
  }, [done]);
  const { word, more } = answerIn(language, tap, why);
  const tone = done || why ? tap?.answer.kind ?? why : tap?.state;
  return html`<div ref=${box} class=${`answer ${tone ?? ""}`} role="status" tabindex="-1">${word && html`<strong>${word}</strong>`}${more && html`<p>${more}</p>`}</div>`;
}

function answerIn({ t, second, number }, tap, why) {
  if (!tap) return why ? { word: t[why], more: why === "taken" ? t.takenEnded : t[`${why}More`] } : {};
  if (tap.state !== "done") return { more: t[`${tap.state}More`] };
  const { kind, rank, behind, waiting, opensAt, reasons, detail } = tap.answer;
  const more = {
    taken: rank ? t.takenBy({ behind: number(behind), rank }) : waiting ? t.takenWaiting : t.takenPlain,
    early: opensAt && t.earlyMore(second(opensAt)),
    unfit: reasons?.map((r) => t.reasons[r] ?? r).join(" "),
    refused: detail && (t.codes[detail] ?? t.codes.INTERNAL),
  };
  return { word: t[kind], more: more[kind] ?? t[`${kind}More`] };
}
