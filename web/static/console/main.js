// The backoffice: who is signed in, the pages, and the frame around them.
import { html, render, useEffect, useErrorBoundary, useLayoutEffect, useRef, useState } from "../assets/preact.js";
import { Problem, Unreachable, get, request, whenSignedOut } from "../assets/api.js";
import { Languages, Speaks, useLanguage } from "../assets/language.js";
import { useLoaded } from "../assets/ui.js";
import { abroad, learnZone, zoneAt } from "../assets/zone.js";
import { Alerts } from "./alerts.js";
import { Board } from "./board.js";
import { Ask, PageError, Trouble } from "./dialogs.js";
import { forgetAll } from "./kept.js";
import { Live } from "./reading.js";
import { words } from "./words.js";

/**
 * Asks for an API key. The service keeps it in a cookie that no script can read.
 * @param {{trouble: Failure|null, onSession: (session: Schemas["Session"]) => void}} props
 */
function SignIn({ trouble, onSession }) {
  const { t } = useLanguage();
  useEffect(() => { document.title = t.title; }, [t]);
  const [error, setError] = useState(trouble);
  const [busy, setBusy] = useState(false);
  /** @type {Ref<HTMLInputElement>} */
  const field = useRef(null);
  const submit = async (/** @type {SubmitEvent} */ e) => {
    e.preventDefault();
    setBusy(true);
    try {
      onSession((await request("POST", "/v1/session", { body: { key: field.current.value.trim() } })).data);
    } catch (err) {
      setError(err.status === 401 ? new PageError(({ t }) => t.noSuchKey) : err);
      setBusy(false);
      field.current.select();
    }
  };
  return html`<main class="signin"><form class="card stack" onSubmit=${submit}>
    <h1>${t.title}</h1>
    <label class="stack">${t.apiKey} <input ref=${field} type="password" name="key" autocomplete="current-password" required autofocus /></label>
    <button class="primary" disabled=${busy}>${t.signIn}</button>
    <${Trouble} error=${error} reading />
  </form>
    <p class="row"><${Languages} /></p></main>`;
}

/**
 * A page whose modules are loaded when it is shown: the board is shown first, and must not wait for them.
 * @param {() => Promise<(props: PageProps) => unknown>} load returns its component
 */
const later = (load) => {
  /** @type {{component: (props: PageProps) => unknown}|undefined} */
  let known; // which is shown at once the next time
  return function Later(/** @type {PageProps} */ props) {
    const { t } = useLanguage();
    const { data = known, error } = useLoaded(async () => {
      known ??= { component: await load().catch((err) => { throw new Unreachable(err); }) };
      return known;
    }, []);
    if (!data) return html`<p class="soft" role="status">${!error && t.reading}</p><${Trouble} error=${error} reading />`;
    return html`<${data.component} ...${props} />`;
  };
};

/** @typedef {{path: keyof Texts["page"], role: Schemas["Role"], component: (props: PageProps) => unknown, unlisted?: boolean}} PageOf */

/**
 * The pages, in the order of the navigation, which names them by the texts' page. #/path/id shows a page; its component gets id ("" without), session and
 * may(role). role is the lowest role that may see it.
 * @type {PageOf[]}
 */
const pages = [
  { path: "board", role: "viewer", component: Board },
  { path: "new", role: "dispatcher", component: later(() => import("./create.js").then((m) => m.Create)) },
  { path: "dispatches", role: "viewer", component: later(() => import("./dispatch.js").then((m) => m.Dispatch)), unlisted: true },
  { path: "drivers", role: "viewer", component: later(() => import("./drivers.js").then((m) => m.Drivers)) },
  { path: "notifications", role: "viewer", component: later(() => import("./notifications.js").then((m) => m.Notifications)) },
  { path: "jobs", role: "viewer", component: later(() => import("./jobs.js").then((m) => m.Jobs)) },
  { path: "locks", role: "viewer", component: later(() => import("./locks.js").then((m) => m.Locks)) },
  { path: "supply", role: "viewer", component: later(() => import("./supply.js").then((m) => m.Supply)) },
  { path: "keys", role: "admin", component: later(() => import("./keys.js").then((m) => m.Keys)) },
  { path: "webhooks", role: "admin", component: later(() => import("./webhooks.js").then((m) => m.Webhooks)) },
  { path: "audit", role: "admin", component: later(() => import("./audit.js").then((m) => m.Audit)) },
];

/**
 * Returns the page of an address; refused: the address names a page that does not exist or is not allowed.
 * @param {string} hash @param {PageOf[]} allowed
 */
function pageOf(hash, allowed) {
  const [, path = "", rest = ""] = /^#\/([^/?]*)\/?([^?]*)/.exec(hash) ?? [];
  const page = allowed.find((p) => p.path === path);
  return page ? { page, rest: plain(rest), refused: false } : { page: allowed[0], rest: "", refused: path !== "" };
}

/** @param {string} encoded */
function plain(encoded) {
  try {
    return decodeURIComponent(encoded);
  } catch {
    return encoded; // the address is malformed: no such id exists, and the page shows that
  }
}

/** @type {Schemas["Role"][]} */
const ranks = ["viewer", "dispatcher", "admin"];

const replaced = "replaced"; // a tab's message to the others after another key has signed in

/** Reports whether a session's role includes another role. @param {Schemas["Session"]} session @returns {May} */
const may = (session) => (role) => ranks.indexOf(session.role) >= ranks.indexOf(role);

/** Removes a key, #key=..., from the address, where it must not stay, and returns it. */
function takeKey() {
  const key = new URLSearchParams(location.hash.slice(1)).get("key");
  if (key) history.replaceState(null, "", location.pathname + "#/board");
  return key;
}

/**
 * Returns the address' hash. A link that is opened in this tab changes only the hash: onKey gets the link's key.
 * @param {(key: string) => void} onKey
 */
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
  const [session, setSession] = useState(/** @type {Schemas["Session"]|null|undefined} */ (undefined)); // undefined: not known yet; null: no session
  const [trouble, setTrouble] = useState(/** @type {Failure|null} */ (null));
  const [link, setLink] = useState(/** @type {{key: string, to: Schemas["Session"]|null}|null} */ (null)); // a link's key, until the user has confirmed it
  const [first] = useState(takeKey);
  const earlier = useRef(Promise.resolve()); // links are handled one after the other: the answer to an earlier one must not end a later one's question
  const come = (/** @type {string|null} */ key) => {
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

  /** @param {Failure} [why] */
  const leave = (why) => {
    setTrouble(why ?? null);
    setLink(null);
    setSession(null);
  };
  const tabs = useRef(/** @type {BroadcastChannel|null} */ (null));
  const replace = (/** @type {Schemas["Session"]} */ now) => {
    forgetAll();
    if (session) tabs.current?.postMessage(replaced);
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

/**
 * Asks whether to sign in with a link's key: another person may have sent it to make the user work under it.
 * @param {{session: Schemas["Session"]|null, link: {key: string, to: Schemas["Session"]|null}, onSession: (session: Schemas["Session"]) => void, onClose: () => void}} props
 */
function FromLink({ session, link, onSession, onClose }) {
  const { t } = useLanguage();
  const who = (/** @type {Schemas["Session"]} */ s) => html`<bdi>${s.name}</bdi> (${t.roles[s.role]})`;
  const act = async () => onSession(await signIn(link.key));
  const to = link.to && who(link.to);
  return html`<${Ask} title=${session ? t.replaceTitle : t.linkTitle} word=${t.replaceWord} danger=${Boolean(session)} act=${act} onClose=${onClose}>
    <p>${session ? t.replaceMore(who(session), to) : t.linkMore(to)}</p>
  <//>`;
}

/** @param {string} key @returns {Promise<Schemas["Session"]>} */
const signIn = async (key) => (await request("POST", "/v1/session", { body: { key } })).data;

/** Answers null if there is no session. @param {Promise<Schemas["Session"]>} reading */
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
 * @returns {Promise<{session: Schemas["Session"]|null, link?: {key: string, to: Schemas["Session"]|null}}>}
 * @param {string|null} key
 */
async function begin(key) {
  const session = await whoever(get("/v1/session"));
  if (!key) return { session };
  const to = await whoever(get("/v1/session", { token: key }));
  if (!session || to?.key_id !== session.key_id) return { session, link: { key, to } };
  return { session: await signIn(key) };
}

const noSuchPage = new PageError(({ t }) => t.noSuchPage);

/** @param {{session: Schemas["Session"], hash: string, leave: (why?: Failure) => void}} props */
function Shell({ session, hash, leave }) {
  const { t } = useLanguage();
  const [trouble, setTrouble] = useState(/** @type {Failure|null} */ (null));
  const allowed = pages.filter((p) => may(session)(p.role));
  const { page, rest, refused } = pageOf(hash, allowed);
  /** @type {Ref<HTMLElement>} */
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

/**
 * A page. If its rendering fails it shows the error, and the navigation stays.
 * @param {{of: PageOf, id: string, session: Schemas["Session"]}} props
 */
function Page({ of, id, session }) {
  const [error] = useErrorBoundary((err) => console.error(err));
  if (error) return html`<${Trouble} error=${error} />`;
  return html`<${of.component} id=${id} session=${session} may=${may(session)} />`;
}

addEventListener("unhandledrejection", (e) => console.error(e.reason));
Promise.all([words.first, learnZone()]).then(([first]) =>
  render(html`<${Speaks} words=${words} first=${first}><${Console} /><//>`, /** @type {HTMLElement} */ (document.getElementById("app"))));
