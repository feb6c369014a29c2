import { html, render, useEffect, useErrorBoundary, useRef, useState } from "../assets/preact.js";
import { Problem, get, request, whenSignedOut } from "../assets/api.js";
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

  const leave = (why) => {
    setTrouble(why ?? null);
    setSession(null);
  };
  const over = () => leave(new Error("Your session is over. Sign in again."));
  useEffect(() => {
    whenSignedOut(over);
    // Tabs share the session: another one's sign-out is this one's.
    const others = new BroadcastChannel("firsttap");
    others.onmessage = () => leave(new Error("You signed out in another tab."));
    return () => {
      whenSignedOut(() => {});
      others.close();
    };
  }, []);

  if (session === undefined) return html`<p class="soft" role="status">Signing in …</p>`;
  if (session === null) {
    return html`<${SignIn} trouble=${trouble} onSession=${(s) => { setTrouble(null); setSession(s); }} />`;
  }
  return html`<${Live} onRefused=${over}>
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
  const [trouble, setTrouble] = useState(null);
  const allowed = pages.filter((p) => may(session)(p.role));
  const { page, rest, refused } = pageOf(hash, allowed);
  const main = useRef(null);
  const shown = useRef(page.path + rest);
  useEffect(() => {
    document.title = `${page.title} · FirstTap console`;
    if (shown.current !== page.path + rest) main.current.focus(); // or it stays on what is gone
    shown.current = page.path + rest;
  }, [page, rest]);
  const signOut = async () => {
    try {
      await request("DELETE", "/v1/session");
    } catch {
      setTrouble(new Error("You may still be signed in in this browser: the service did not answer. Try again."));
      return;
    }
    sessionStorage.clear(); // what was typed here is not the next one's to read
    const others = new BroadcastChannel("firsttap");
    others.postMessage("signed out");
    others.close();
    leave();
  };
  return html`
    <a class="skip" href="#main" onClick=${(e) => { e.preventDefault(); main.current.focus(); }}>To the content</a>
    <header class="bar">
      <strong>FirstTap</strong>
      <nav aria-label="Pages">${allowed.filter((p) => !p.unlisted).map((p) => html`
        <a key=${p.path} href=${"#/" + p.path} aria-current=${p === page ? "page" : undefined}>${p.title}</a>`)}</nav>
      <span class="row"><span class="soft"><bdi>${session.name}</bdi> (${session.role})</span>
        <button onClick=${signOut}>Sign out</button></span>
    </header>
    <main id="main" tabindex="-1" ref=${main}>
      ${(trouble || refused) && html`<${Trouble} error=${trouble ?? new Error("There is no such page, or your key may not see it.")} />`}
      <${Page} key=${page.path + rest} of=${page} id=${rest} session=${session} />
    </main>`;
}

/** A page. Where it fails as no page should it says so, and the navigation stays. */
function Page({ of, id, session }) {
  const [error] = useErrorBoundary((err) => console.error(err));
  if (error) return html`<${Trouble} error=${error} />`;
  return html`<${of.component} id=${id} session=${session} may=${may(session)} />`;
}

addEventListener("unhandledrejection", (e) => console.error(e.reason));
render(html`<${Console} />`, document.getElementById("app"));
