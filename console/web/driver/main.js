import { html, render, useEffect, useLayoutEffect, useReducer, useState } from "../assets/preact.js";
import { Speaks, useLanguage } from "../assets/language.js";
import { learnZone } from "../assets/zone.js";
import { Session, takeFromAddress } from "./session.js";
import { Shell } from "./shell.js";
import { FromLink, SignIn } from "./signin.js";
import { Work } from "./work.js";
import { words } from "./words.js";

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
  const [why, setWhy] = useState("");

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
  const leave = (reason, elsewhere) => {
    if (reason === "" && !elsewhere) {
      const tabs = new BroadcastChannel("firsttap.driver");
      tabs.postMessage(session.kept.id);
      tabs.close();
    }
    session.end(reason === "");
    setLink("");
    setWhy(reason);
    setSession(null);
  };
  const answer = (wanted) => {
    setLink("");
    if (wanted) setWhy("");
    if (wanted) setSession(Session.begin({ token: link }));
    else if (!session) setSession(Session.resume());
  };
  const asking = link && html`<${FromLink} token=${link} before=${Session.now()} onAnswer=${answer} />`;
  if (!session && link) return asking;
  if (!session) return html`<${SignIn} key=${why} why=${why} onSignedIn=${(c) => { setWhy(""); setSession(Session.begin(c)); }} />`;
  return html`<${Working} key=${session.kept.id} session=${session} leave=${leave} />${asking}`;
}

/** Shows the page of one session, until the session ends. */
function Working({ session, leave }) {
  const [work] = useState(() => new Work(session));
  const [, changed] = useReducer((n) => n + 1, 0);
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
  return html`<${Shell} work=${work} signOut=${() => leave("")} />`;
}

addEventListener("unhandledrejection", (e) => console.error(e.reason));
Promise.all([words.first, learnZone()]).then(([first]) =>
  render(html`<${Speaks} words=${words} first=${first}><${Driver} /><//>`, document.getElementById("app")));
// Browsers have service workers only on safe addresses: https, or this device.
navigator.serviceWorker?.register("sw.js").catch((err) => console.warn("the page will not open offline:", err.message));
