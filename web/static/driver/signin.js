import { html, useEffect, useRef, useState } from "../assets/preact.js";
import { Problem, Unreachable, get, request } from "../assets/api.js";
import { Languages, useLanguage } from "../assets/language.js";
import { Dialog, useLoaded } from "../assets/ui.js";
import { named } from "../assets/words.js";
import { Refused, signInWithPassword } from "./session.js";

/** @import { Credentials } from "./session.js" */

const wrong = ["INVALID_LOGIN_CREDENTIALS", "EMAIL_NOT_FOUND", "INVALID_PASSWORD", "INVALID_EMAIL"];

/** The message for a driver whose sign-in failed. @param {Texts} t @param {Failure} err @param {boolean} byEmail */
function explain(t, err, byEmail) {
  if (err instanceof Unreachable) return t.unreachable;
  if (err instanceof Refused) {
    if (wrong.includes(err.code)) return t.badLogin;
    return err.code === "USER_DISABLED" ? t.disabled : t.loginRefused;
  }
  if (err instanceof Problem && (err.status === 401 || err.status === 403)) return byEmail ? t.notADriver : t.badToken;
  return t.failed(named(t.codes, err.code) ?? t.codes.INTERNAL);
}

/**
 * Returns the service's Firebase project. It is null if the drivers sign in with tokens only, or if the answer is unknown.
 * @param {AbortSignal} signal @returns {Promise<Schemas["SignInWays"]["firebase"]>}
 */
async function howToSignIn(signal) {
  try {
    return (await get("/v1/sign-in", { signal })).firebase;
  } catch (err) {
    if (err instanceof Problem || err instanceof Unreachable || signal.aborted) return null;
    throw err;
  }
}

/**
 * Asks for a token, or for an e-mail address and a password.
 * @param {{why: ""|"sessionOver", onSignedIn: (credentials: Credentials) => void}} props
 */
export function SignIn({ why, onSignedIn }) {
  const { t } = useLanguage();
  const [firebase, setFirebase] = useState(/** @type {Schemas["SignInWays"]["firebase"]} */ (null));
  const [byToken, setByToken] = useState(false);
  const [error, setError] = useState(/** @type {Failure|null} */ (null));
  const [busy, setBusy] = useState(false);
  /** @type {Ref<HTMLFormElement>} */
  const form = useRef(null);
  const byEmail = firebase !== null && !byToken;
  const said = () => {
    if (error) return explain(t, error, byEmail);
    return why && !busy ? t[why] : "";
  };

  useEffect(() => {
    const abort = new AbortController();
    howToSignIn(abort.signal).then((f) => abort.signal.aborted || setFirebase(f ?? null));
    return () => abort.abort();
  }, []);

  const submit = async (/** @type {SubmitEvent} */ e) => {
    e.preventDefault();
    if (busy) return;
    setBusy(true);
    setError(null);
    const typed = new FormData(form.current), text = (/** @type {string} */ name) => String(typed.get(name) ?? "");
    try {
      /** @type {Credentials} */
      const credentials = byEmail ? await withPassword(firebase, text("email").trim(), text("password")) : { token: text("token").replace(/\s/g, "") };
      await check(credentials.token);
      onSignedIn(credentials);
    } catch (err) {
      setError(err);
      setBusy(false);
    }
  };

  return html`<main class="signin">
    <form class="card stack" ref=${form} onSubmit=${submit}>
      <h1>${t.title}</h1>
      ${byEmail ? html`
        <label class="stack">${t.email} <input name="email" type="email" autocomplete="username" required autofocus /></label>
        <label class="stack">${t.password} <input name="password" type="password" autocomplete="current-password" required /></label>` : html`
        <label class="stack">${t.token} <input name="token" type="password" autocomplete="off" autocapitalize="off" spellcheck=${false}
          aria-describedby="token-help" required autofocus /></label>
        <p class="soft" id="token-help">${t.tokenHelp}</p>`}
      <button class="primary big" aria-disabled=${busy}>${busy ? t.signingIn : t.signIn}</button>
      <div class="trouble" role="alert">${said()}</div>
      ${firebase && html`<button type="button" class="quiet" onClick=${() => setByToken(!byToken)}>${byToken ? t.useEmail : t.useToken}</button>`}
    </form>
    <p class="row"><${Languages} /></p>
  </main>`;
}

/**
 * Asks whether to sign in with a link's token, and says whose it is.
 * @param {{token: string, before: {name: string}|null, onAnswer: (wanted: boolean) => void}} props before: the driver who is signed in
 */
export function FromLink({ token, before, onAnswer }) {
  const { t } = useLanguage();
  const { data: me, error } = useLoaded(async (signal) => {
    checkText(token);
    return get("/v1/me", { token, signal });
  }, [token]);
  const stay = html`<button class="big" onClick=${() => onAnswer(false)}>${before ? t.stay : t.dontSignIn}</button>`;
  return html`<${Dialog} title=${before ? t.replaceTitle : t.linkTitle} onClose=${() => onAnswer(false)}>
    <div class="stack">
      <p>${before ? t.replaceMore(before.name) : t.linkMore}</p>
      <p role="status">${me && t.linkOf(html`<bdi>${me.name}</bdi>`)}${error && explain(t, error, false)}</p>
      ${before && stay}
      <button class=${before ? "danger big" : "primary big"} onClick=${() => onAnswer(true)}>${t.replace}</button>
      ${!before && stay}
    </div>
  <//>`;
}

/** @param {NonNullable<Schemas["SignInWays"]["firebase"]>} firebase @param {string} email @param {string} password @returns {Promise<Credentials>} */
async function withPassword(firebase, email, password) {
  const { token, refresh, ends } = await signInWithPassword(firebase, email, password);
  return { token, firebase: { api_key: firebase.api_key, emulator: firebase.emulator, refresh, ends } };
}

/** Refuses a text that can't be a token. The browser would refuse it too, but that looks like a lost connection. @param {string} token */
function checkText(token) {
  if (!/^[!-~]+$/.test(token)) throw new Problem(401, { code: "UNAUTHENTICATED" }, 0);
}

/** @param {string} token */
async function check(token) {
  checkText(token);
  await request("GET", "/v1/me", { token });
}
