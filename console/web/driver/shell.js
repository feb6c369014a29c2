import { html, useLayoutEffect, useState } from "../assets/preact.js";
import { Unreachable, now } from "../assets/api.js";
import { Jobs } from "./jobs.js";
import { Languages, useLanguage } from "../assets/language.js";
import { Offers } from "./offers.js";

/** Returns the shown list, which the address names. */
function usePage() {
  const read = () => (location.hash === "#jobs" ? "jobs" : "offers");
  const [page, set] = useState(read);
  useLayoutEffect(() => {
    const changed = () => set(read());
    addEventListener("hashchange", changed);
    return () => removeEventListener("hashchange", changed);
  }, []);
  return page;
}

/** The page of a driver who is signed in. @param {{work: import("./work.js").Work, signOut: () => void}} props */
export function Shell({ work, signOut }) {
  const { t } = useLanguage();
  const page = usePage();
  const { me, offers, jobs, notices } = work.state;
  const counts = {
    offers: offers?.filter((o) => o.offer_status !== "DECLINED").length,
    jobs: jobs?.filter((j) => j.status !== "COMPLETED").length,
  };
  return html`
    <header class="top">
      <strong>${me?.name ?? "FirstTap"}</strong>
      <span class="row"><${Languages} /><button class="quiet" onClick=${signOut}>${t.signOut}</button></span>
    </header>
    <${Link} state=${work.state} />
    <${Duty} work=${work} />
    <div role="alert">${notices.map((n) => html`<p class="notice bad" key=${`${n.dispatch.id} ${n.dispatch.round}`}>
      <span>${t.lostJob[n.kind](n.dispatch.site_address)}</span>
      <button class="quiet" onClick=${() => work.dismiss(n)}>${t.dismiss}</button></p>`)}</div>
    <main id="list">${page === "jobs" ? html`<${Jobs} work=${work} />` : html`<${Offers} work=${work} />`}</main>
    <nav class="tabs" aria-label=${t.pages}>${["offers", "jobs"].map((p) => html`
      <a key=${p} href=${"#" + p} aria-current=${p === page ? "page" : undefined}>${t[p]}${counts[p] ? html` <span class="count">${counts[p]}</span>` : ""}</a>`)}</nav>`;
}

/** Shows whether the lists are live, and otherwise since when they are not. */
function Link({ state: { link, trouble, at } }) {
  const { t, second } = useLanguage();
  const time = at === null ? "" : second(at);
  let text = "";
  if (link === "cut") text = navigator.onLine ? t.cut(time) : t.offline(time);
  else if (trouble) text = trouble instanceof Unreachable ? t.cut(time) : t.busyService(time);
  return html`<div class="link" role="status">${text
    ? html`<p class="notice warn">${text}</p>`
    : html`<span class=${link === "live" ? "good" : "soft"}>${link === "live" ? `● ${t.live}` : t.connecting}</span>`}</div>`;
}

/** The duty switch. It shows the stored state, and a change until the service has stored it. */
function Duty({ work }) {
  const { t, minute } = useLanguage();
  const { me, deeds: { duty } } = work.state;
  const saving = duty && !duty.error;
  const on = saving ? duty.wanted : me?.on_duty;
  const say = () => {
    if (duty?.error) return t.notDone(t.codes[duty.error.code] ?? t.codes.INTERNAL);
    if (saving) return duty.unknown ? t.savingUnknown : t.saving;
    if (!me) return t.dutyUnread;
    return me.on_duty ? t.dutyOn : t.dutyOff;
  };
  return html`<section class="card duty" aria-label=${t.duty}>
    <button type="button" role="switch" class="switch" aria-checked=${String(Boolean(on))} aria-describedby="duty-said"
      aria-disabled=${String(!me || Boolean(saving))} onClick=${() => me && !saving && work.setDuty(!me.on_duty)}>
      <span>${t.duty}</span><span class="track" aria-hidden="true"></span></button>
    <p id="duty-said" role="status" class=${duty?.error || duty?.unknown ? "warn" : "soft"}>${say()}</p>
    ${suspended(me) && html`<p class="bad">${suspended(me).startsWith("9999") ? t.suspended : t.suspendedUntil(minute(suspended(me)))}</p>`}
  </section>`;
}

const suspended = (me) => (me?.suspended_until && Date.parse(me.suspended_until) > now() ? me.suspended_until : "");
