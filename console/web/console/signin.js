import { html, useRef, useState } from "../assets/preact.js";
import { request } from "../assets/api.js";
import { Trouble } from "../assets/ui.js";

/** Asks for an API key. The service keeps it in a cookie that no script can read. */
export function SignIn({ trouble, onSession }) {
  const [error, setError] = useState(trouble);
  const [busy, setBusy] = useState(false);
  const field = useRef(null);
  const submit = async (e) => {
    e.preventDefault();
    setBusy(true);
    try {
      onSession((await request("POST", "/v1/session", { body: { key: field.current.value.trim() } })).data);
    } catch (err) {
      setError(err.status === 401 ? new Error("No such key, or it was revoked.") : err);
      setBusy(false);
      field.current.select();
    }
  };
  return html`<main class="signin"><form class="card stack" onSubmit=${submit}>
    <h1>FirstTap console</h1>
    <label class="stack">API key <input ref=${field} type="password" name="key" autocomplete="current-password" required autofocus /></label>
    <button class="primary" disabled=${busy}>Sign in</button>
    <${Trouble} error=${error} reading />
  </form></main>`;
}
