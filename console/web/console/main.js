import { html, render, useEffect, useErrorBoundary, useLayoutEffect, useRef, useState } from "../assets/preact.js";
import { Problem, get, request, whenSignedOut } from "../assets/api.js";
import { Languages, Speaks, useLanguage } from "../assets/language.js";
import { PageError } from "../assets/problems.js";
import { Ask, Trouble } from "../assets/ui.js";
import { abroad, learnZone, zoneAt } from "../assets/zone.js";
import { Alerts } from "./alerts.js";
import { forgetAll } from "./kept.js";
import { Live } from "./live.js";
import { SignIn } from "./signin.js";
import { pages, pageOf } from "./pages.js";
import { words } from "./words.js";

const ranks = ["viewer", "dispatcher", "admin"];

const replaced = "replaced"; // a tab's message to the others after another key has signed in

/** Reports whether a session's role includes another role. */
const may = (session) => (role) => ranks.indexOf(session.role) >= ranks.indexOf(role);

/** Removes a key, #key=..., from the address, where it must not stay, and returns it. */
function takeKey() {
  const key = new URLSearchParams(location.hash.slice(1)).get("key");
  if (key) history.replaceState(null, "", location.pathname + "#/board");
  return key;
}

/** Returns the address' hash. A link that is opened in this tab changes only the hash: onKey gets the link's key. */
function useHash(onKey) {
  const [hash, set] = useState(location.hash);
  useLayoutEffect(() => { // it listens before anything else can happen
    const changed = () => {
      const key = takeKey();
      if (key) onKey(key);
      set(location.hash);
    };
    addEventListener("hashchange", changed);
    return () => removeEventListener("hashchange", changed);
  }, []);
  return hash;
}

function Console() {
  const { t } = useLanguage();
  const [session, setSession] = useState(undefined); // undefined: not known yet; null: no session
  const [trouble, setTrouble] = useState(null);
  const [link, setLink] = useState(null); // a link's key, until the user has confirmed it
  const [first] = useState(takeKey);
  const earlier = useRef(Promise.resolve()); // links are handled one after the other: the answer to an earlier one must not end a later one's question
  const come = (key) => {
    earlier.current = earlier.current.then(() => begin(key)).then((now) => {
      setLink(now.link ?? null);
      setSession(now.session);
    }, (err) => {
      setTrouble(err);
      setSession((before) => before ?? null);
    });
  };
  const hash = useHash(come);
  useLayoutEffect(() => { come(first); }, []); // before a link that is opened now

  const leave = (why) => {
    setTrouble(why ?? null);
    setLink(null);
    setSession(null);
  };
  const tabs = useRef(null);
  const replace = (now) => {
    forgetAll();
    if (session) tabs.current.postMessage(replaced);
    setTrouble(null);
    setLink(null);
    setSession(now);
  };
  const over = () => leave(new PageError(({ t }) => t.sessionOver));
  useEffect(() => {
    whenSignedOut(over);
    // Tabs share the session, so another tab's sign-out ends this tab's too.
    const others = new BroadcastChannel("firsttap");
    others.onmessage = ({ data }) => {
      forgetAll();
      leave(new PageError(({ t }) => (data === replaced ? t.otherKeyElsewhere : t.signedOutElsewhere)));
    };
    tabs.current = others;
    return () => {
      whenSignedOut(() => {});
      others.close();
    };
  }, []);

  if (session === undefined) return html`<p class="soft" role="status">${t.signingIn}</p>`;
  const asking = link && html`<${FromLink} session=${session} link=${link} onSession=${replace} onClose=${() => setLink(null)} />`;
  if (session === null) {
    return html`<${SignIn} trouble=${trouble} onSession=${(s) => { setTrouble(null); setSession(s); }} />${asking}`;
  }
  return html`<${Live} key=${session.key_id} session=${session} onRefused=${over}>
    <${Shell} session=${session} hash=${hash} leave=${leave} />
    ${asking}
  <//>`;
}

/** Asks whether to sign in with a link's key: another person may have sent it to make the user work under it. */
function FromLink({ session, link, onSession, onClose }) {
  const { t } = useLanguage();
  const who = (s) => html`<bdi>${s.name}</bdi> (${t.roles[s.role]})`;
  const act = async () => onSession(await signIn(link.key));
  const to = link.to && who(link.to);
  return html`<${Ask} title=${session ? t.replaceTitle : t.linkTitle} word=${t.replaceWord} danger=${Boolean(session)} act=${act} onClose=${onClose}>
    <p>${session ? t.replaceMore(who(session), to) : t.linkMore(to)}</p>
  <//>`;
}

const signIn = async (key) => (await request("POST", "/v1/session", { body: { key } })).data;

/** Answers null if there is no session. */
async function whoever(reading) {
  try {
    return await reading;
  } catch (err) {
    if (err instanceof Problem && err.status === 401) return null;
    throw err;
  }
}

/**
 * Finds the session. A link's key signs in again if the session is the key's own. Otherwise begin returns the key as the link, with
 * its own identity.
 * @returns {Promise<{session: any, link?: {key: string, to: any}}>}
 */
async function begin(key) {
  const session = await whoever(get("/v1/session"));
  if (!key) return { session };
  const to = await whoever(get("/v1/session", { token: key }));
  if (!session || to?.key_id !== session.key_id) return { session, link: { key, to } };
  return { session: await signIn(key) };
}

const noSuchPage = new PageError(({ t }) => t.noSuchPage);

function Shell({ session, hash, leave }) {
  const { t } = useLanguage();
  const [trouble, setTrouble] = useState(null);
  const allowed = pages.filter((p) => may(session)(p.role));
  const { page, rest, refused } = pageOf(hash, allowed);
  const main = useRef(null);
  const shown = useRef(page.path + rest);
  // It comes before the effects of the page, which may have a title of its own.
  useLayoutEffect(() => { document.title = t.titleOf(t.page[page.path]); }, [page, rest, t]);
  useEffect(() => {
    if (shown.current !== page.path + rest) main.current.focus(); // or it stays on the removed content
    shown.current = page.path + rest;
  }, [page, rest]);
  const signOut = async () => {
    try {
      await request("DELETE", "/v1/session");
    } catch {
      setTrouble(new PageError(({ t }) => t.maybeSignedIn));
      return;
    }
    forgetAll();
    const others = new BroadcastChannel("firsttap");
    others.postMessage("signed out");
    others.close();
    leave();
  };
  return html`
    <a class="skip" href="#main" onClick=${(e) => { e.preventDefault(); main.current.focus(); }}>${t.toContent}</a>
    <header class="bar">
      <strong>FirstTap</strong>
      <nav aria-label=${t.pages}>${allowed.filter((p) => !p.unlisted).map((p) => html`
        <a key=${p.path} href=${"#/" + p.path} aria-current=${p === page ? "page" : undefined}>${t.page[p.path]}</a>`)}</nav>
      <span class="row"><span class="soft"><bdi>${session.name}</bdi> (${t.roles[session.role]})</span>
        ${abroad() && html`<span class="soft">${t.siteTime(zoneAt())}</span>`}
        <${Alerts} />
        <${Languages} />
        <button onClick=${signOut}>${t.signOut}</button></span>
    </header>
    <main id="main" tabindex="-1" ref=${main}>
      ${(trouble || refused) && html`<${Trouble} error=${trouble ?? noSuchPage} />`}
      <${Page} key=${page.path + rest} of=${page} id=${rest} session=${session} />
    </main>`;
}

/** A page. If its rendering fails it shows the error, and the navigation stays. */
function Page({ of, id, session }) {
  const [error] = useErrorBoundary((err) => console.error(err));
  if (error) return html`<${Trouble} error=${error} />`;
  return html`<${of.component} id=${id} session=${session} may=${may(session)} />`;
}

addEventListener("unhandledrejection", (e) => console.error(e.reason));
Promise.all([words.first, learnZone()]).then(([first]) =>
  render(html`<${Speaks} words=${words} first=${first}><${Console} /><//>`, document.getElementById("app")));
