// A driver's phone: who is signed in, and the frame around the lists.
import { html, render, useEffect, useLayoutEffect, useState } from "../assets/preact.js";
import { Unreachable, now } from "../assets/api.js";
import { Languages, Speaks, useLanguage } from "../assets/language.js";
import { named } from "../assets/words.js";
import { learnZone } from "../assets/zone.js";
import { Jobs, Offers } from "./offers.js";
import { Session, takeFromAddress } from "./session.js";
import { FromLink, SignIn } from "./signin.js";
import { words } from "./words.js";
import { Work } from "./work.js";

/** Returns the shown list, which the address names. */
function usePage() {
  /** @returns {"offers"|"jobs"} */
  const read = () => (location.hash === "#jobs" ? "jobs" : "offers");
  const [page, set] = useState(read);
  useLayoutEffect(() => {
    const changed = () => set(read());
    addEventListener("hashchange", changed);
    return () => removeEventListener("hashchange", changed);
  }, []);
  return page;
}

/** @typedef {import("./work_state.js").State} State */

/** @type {["offers", "jobs"]} */
const lists = ["offers", "jobs"];

/** The page of a driver who is signed in. @param {{state: State, work: Work, signOut: () => void}} props */
function Shell({ state, work, signOut }) {
  const { t } = useLanguage();
  const page = usePage();
  const { me, offers, jobs, notices } = state;
  const counts = {
    offers: offers?.filter((o) => o.offer_status !== "DECLINED").length,
    jobs: jobs?.filter((j) => j.status !== "COMPLETED").length,
  };
  return html`
    <header class="top">
      <strong>${me?.name ?? "FirstTap"}</strong>
      <span class="row"><${Languages} /><button class="quiet" onClick=${signOut}>${t.signOut}</button></span>
    </header>
    <${Link} state=${state} />
    <${Duty} state=${state} work=${work} />
    <div role="alert">${notices.map((n) => html`<p class="notice bad" key=${`${n.dispatch.id} ${n.dispatch.round}`}>
      <span>${t.lostJob[n.kind](n.dispatch.site_address)}</span>
      <button class="quiet" onClick=${() => work.dismiss(n)}>${t.dismiss}</button></p>`)}</div>
    <main id="list">${page === "jobs" ? html`<${Jobs} state=${state} work=${work} />` : html`<${Offers} state=${state} work=${work} />`}</main>
    <nav class="tabs" aria-label=${t.pages}>${lists.map((p) => html`
      <a key=${p} href=${"#" + p} aria-current=${p === page ? "page" : undefined}>${t[p]}${counts[p] ? html` <span class="count">${counts[p]}</span>` : ""}</a>`)}</nav>`;
}

/** Shows whether the lists are live, and otherwise since when they are not. @param {{state: State}} props */
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

/** The duty switch. It shows the stored state, and a change until the service has stored it. @param {{state: State, work: Work}} props */
function Duty({ state, work }) {
  const { t, minute } = useLanguage();
  const { me, deeds: { duty } } = state;
  const saving = duty && !duty.error;
  const on = saving ? duty.wanted : me?.on_duty;
  const say = () => {
    if (duty?.error) return t.notDone(named(t.codes, duty.error.code) ?? t.codes.INTERNAL);
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

/** @param {State["me"]} me */
const suspended = (me) => (me?.suspended_until && Date.parse(me.suspended_until) > now() ? me.suspended_until : "");

/**
 * Finds the tab's session when it opens. The driver must confirm a link's token, unless it is the session's own, because another
 * person may have sent it to make the driver tap in another's name.
 */
function begin() {
  const token = takeFromAddress();
  return token && !Session.has(token) ? { session: null, link: token } : { session: Session.resume() };
}

function Driver() {
  const { t } = useLanguage();
  useLayoutEffect(() => { document.title = t.title; }, [t]);
  const [first] = useState(begin);
  const [session, setSession] = useState(first.session);
  const [link, setLink] = useState(first.link ?? "");
  const [why, setWhy] = useState(/** @type {""|"sessionOver"} */ (""));

  // A link that is opened in this tab changes only the part of the address after the #, so the page does not load again. A layout
  // effect listens before anything else can happen.
  useLayoutEffect(() => {
    const changed = () => {
      const token = takeFromAddress();
      if (token && !Session.has(token)) setLink(token);
      else if (token) setSession((now) => now ?? Session.resume());
    };
    addEventListener("hashchange", changed);
    return () => removeEventListener("hashchange", changed);
  }, []);

  useEffect(() => {
    if (!session) return undefined;
    const tabs = new BroadcastChannel("firsttap.driver");
    tabs.onmessage = ({ data }) => data === session.kept.id && leave("", true);
    return () => tabs.close();
  }, [session]);

  // A sign-out ends the session in every tab.
  const leave = (/** @type {""|"sessionOver"} */ reason, elsewhere = false) => {
    if (reason === "" && !elsewhere) {
      const tabs = new BroadcastChannel("firsttap.driver");
      tabs.postMessage(session?.kept.id);
      tabs.close();
    }
    session?.end(reason === "");
    setLink("");
    setWhy(reason);
    setSession(null);
  };
  const answer = (/** @type {boolean} */ wanted) => {
    setLink("");
    if (wanted) setWhy("");
    if (wanted) setSession(Session.begin({ token: link }));
    else if (!session) setSession(Session.resume());
  };
  const asking = link && html`<${FromLink} token=${link} before=${Session.now()} onAnswer=${answer} />`;
  if (!session && link) return asking;
  if (!session) return html`<${SignIn} key=${why} why=${why} onSignedIn=${(/** @type {import("./session.js").Credentials} */ c) => { setWhy(""); setSession(Session.begin(c)); }} />`;
  return html`<${Working} key=${session.kept.id} session=${session} leave=${leave} />${asking}`;
}

/** Shows the page of one session, until the session ends. @param {{session: Session, leave: (reason: ""|"sessionOver") => void}} props */
function Working({ session, leave }) {
  const [work] = useState(() => new Work(session));
  const [state, changed] = useState(work.state);
  useEffect(() => {
    const unsubscribe = work.subscribe(changed);
    session.onOver = () => leave("sessionOver");
    work.start();
    return () => {
      session.onOver = () => {};
      unsubscribe();
      work.stop();
    };
  }, []);
  return html`<${Shell} state=${state} work=${work} signOut=${() => leave("")} />`;
}

addEventListener("unhandledrejection", (e) => console.error(e.reason));
Promise.all([words.first, learnZone()]).then(([first]) =>
  render(html`<${Speaks} words=${words} first=${first}><${Driver} /><//>`, /** @type {HTMLElement} */ (document.getElementById("app"))));
// Browsers have service workers only on safe addresses: https, or this device.
navigator.serviceWorker?.register("sw.js").catch((err) => console.warn("the page will not open offline:", err.message));
