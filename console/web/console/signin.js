import { html, useEffect, useRef, useState } from "../assets/preact.js";
import { request } from "../assets/api.js";
import { Languages, useLanguage } from "../assets/language.js";
import { PageError } from "../assets/problems.js";
import { Trouble } from "../assets/ui.js";

/** Asks for an API key. The service keeps it in a cookie that no script can read. */
export function SignIn({ trouble, onSession }) {
  const { t } = useLanguage();
  useEffect(() => { document.title = t.title; }, [t]);
  const [error, setError] = useState(trouble);
  const [busy, setBusy] = useState(false);
  const field = useRef(null);
  const submit = async (e) => {
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
