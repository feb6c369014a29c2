import { html, render, useEffect, useState } from "../assets/preact.js";
import { Problem, Unreachable, get, request } from "../assets/api.js";
import { Trouble } from "../assets/ui.js";
import { Live } from "./live.js";
import { SignIn } from "./signin.js";
import { pages, pageOf } from "./pages.js";

const ranks = ["viewer", "dispatcher", "admin"];

/** Whether a session's role includes another. */
const may = (session) => (role) => ranks.indexOf(session.role) >= ranks.indexOf(role);

function useHash() {
  const [hash, set] = useState(location.hash);
  useEffect(() => {
    const changed = () => set(location.hash);
    addEventListener("hashchange", changed);
    return () => removeEventListener("hashchange", changed);
  }, []);
  return hash;
}

function Console() {
  const [session, setSession] = useState(undefined); // undefined: not known yet; null: nobody
  const [trouble, setTrouble] = useState(null);
  const hash = useHash();

  useEffect(() => {
    begin().then(setSession, (err) => {
      setTrouble(err);
      setSession(null);
    });
  }, []);

  if (session === undefined) return html`<p class="soft" role="status">Signing in …</p>`;
  if (session === null) {
    return html`<${SignIn} trouble=${trouble} onSession=${(s) => { setTrouble(null); setSession(s); }} />`;
  }
  const leave = (why) => { setTrouble(why ?? null); setSession(null); };
  return html`<${Live} onRefused=${() => leave(new Error("Your session is over. Sign in again."))}>
    <${Shell} session=${session} hash=${hash} leave=${leave} />
  <//>`;
}

// begin finds the session that there is. A key in the address, #key=..., is taken for one, and does not stay there.
async function begin() {
  const key = new URLSearchParams(location.hash.slice(1)).get("key");
  if (key) {
    history.replaceState(null, "", location.pathname + "#/board");
    return (await request("POST", "/v1/session", { body: { key } })).data;
  }
  try {
    return await get("/v1/session");
  } catch (err) {
    if (err instanceof Problem && err.status === 401) return null;
    throw err;
  }
}

function Shell({ session, hash, leave }) {
  const allowed = pages.filter((p) => may(session)(p.role));
  const { page, rest } = pageOf(hash, allowed);
  useEffect(() => {
    document.title = `${page.title} · FirstTap console`;
  }, [page]);
  const signOut = async () => {
    try {
      await request("DELETE", "/v1/session");
      leave();
    } catch (err) {
      leave(err instanceof Unreachable ? new Error("The service can't be reached. You may still be signed in.") : err);
    }
  };
  return html`
    <a class="skip" href="#main" onClick=${(e) => { e.preventDefault(); document.getElementById("main").focus(); }}>To the content</a>
    <header class="bar">
      <strong>FirstTap</strong>
      <nav aria-label="Pages">${allowed.filter((p) => !p.unlisted).map((p) => html`
        <a key=${p.path} href=${"#/" + p.path} aria-current=${p === page ? "page" : undefined}>${p.title}</a>`)}</nav>
      <span class="row"><span class="soft">${session.name} (${session.role})</span>
        <button onClick=${signOut}>Sign out</button></span>
    </header>
    <main id="main" tabindex="-1"><${page.component} key=${page.path + rest} id=${rest} session=${session} may=${may(session)} /></main>`;
}

function Broken({ error }) {
  return html`<main><${Trouble} error=${error} /></main>`;
}

addEventListener("unhandledrejection", (e) => console.error(e.reason));
try {
  render(html`<${Console} />`, document.getElementById("app"));
} catch (err) {
  render(html`<${Broken} error=${err} />`, document.getElementById("app"));
  throw err;
}
