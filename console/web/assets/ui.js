import { html, useEffect, useLayoutEffect, useReducer, useRef, useState } from "./preact.js";
import { Problem, Unreachable, now } from "./api.js";

export { html };

/** Renders again every ms, by one timer of the component's own. @returns {number} the service's time in ms */
export function useNow(ms = 1000) {
  const [, tick] = useReducer((n) => n + 1, 0);
  useEffect(() => {
    const timer = setInterval(tick, ms);
    return () => clearInterval(timer);
  }, [ms]);
  return now();
}

/** Sets the tab's title as soon as the name is known, until the page changes. */
export function useTitle(name) {
  useEffect(() => {
    if (name) document.title = `${name} · FirstTap console`;
  }, [name]);
}

/**
 * Loads a component's data, and again when a dependency changes or reload is called. The old data stays during a load, and
 * beside the error after a failure.
 * @returns {{data: any, error: Error|null, loading: boolean, reload: () => void}}
 */
export function useLoaded(load, dependencies) {
  const [state, set] = useState({ data: undefined, error: null, loading: true });
  const [turn, reload] = useReducer((n) => n + 1, 0);
  useEffect(() => {
    const abort = new AbortController();
    set((s) => ({ ...s, loading: true }));
    load(abort.signal).then(
      (data) => abort.signal.aborted || set({ data, error: null, loading: false }),
      (error) => abort.signal.aborted || set((s) => ({ ...s, error, loading: false })),
    );
    return () => abort.abort();
  }, [...dependencies, turn]);
  return { ...state, reload };
}

/**
 * Shows an error in a live region that exists before the error does, so that screen readers read it.
 * @param {{error: Error|null, reading?: boolean}} props reading: a reading failed, and not a change
 */
export function Trouble({ error, reading }) {
  return html`<div class="trouble" role="alert">${error && explain(error, reading)}</div>`;
}

/** The English text of an error. Without an answer the outcome of a change is unknown; a reading has no outcome. */
export function explain(error, reading = false) {
  if (error instanceof Unreachable && !reading) return `${error.message} Nobody knows yet whether that was done.`;
  if (error instanceof Problem && error.body.errors) {
    return error.body.errors.map((e) => `${e.field} ${e.message}`).join("; ");
  }
  return error.message;
}

/**
 * A modal dialog: the browser's own, which keeps the focus inside and gives it back, and closes on Escape.
 * @param {{title: string, onClose: () => void, children: any}} props
 */
export function Dialog({ title, onClose, children }) {
  const dialog = useRef(null);
  const ended = useRef(false);
  const end = () => {
    if (ended.current) return;
    ended.current = true;
    onClose();
  };
  useLayoutEffect(() => { // at once, because the next key is meant for the dialog
    const before = document.activeElement, shown = dialog.current;
    shown.showModal();
    return () => {
      ended.current = true;
      shown.close(); // while it is open, nothing outside of it takes the focus
      before?.focus?.();
    };
  }, []);
  // The event close comes some time after Escape: the user may have opened the next dialog by then.
  return html`<dialog ref=${dialog} aria-label=${title} onCancel=${end} onClose=${end}>
    <h2>${title}</h2>
    ${children}
  </dialog>`;
}

/** Shows that a request that takes long is still under way. @param {{busy: boolean}} props */
export function StillAsking({ busy }) {
  const [slow, setSlow] = useState(false);
  useEffect(() => {
    setSlow(false);
    const timer = busy && setTimeout(setSlow, 1500, true);
    return () => clearTimeout(timer);
  }, [busy]);
  return slow && html`<p class="soft" role="status">No answer yet. It is being asked again …</p>`;
}

/**
 * Asks for confirmation, acts, and closes after a success. It shows a failure.
 * @param {{title: string, word: string, danger?: boolean, act: () => Promise<any>, onClose: (done: boolean) => void, children?: any}} props
 * word is the verb on the button that acts
 */
export function Ask({ title, word, danger, act, onClose, children }) {
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState(null);
  const submit = async (e) => {
    e.preventDefault();
    setBusy(true);
    try {
      await act();
    } catch (err) {
      setError(err);
      setBusy(false);
      return;
    }
    onClose(true);
  };
  return html`<${Dialog} title=${title} onClose=${() => onClose(false)}>
    <form class="stack" onSubmit=${submit}>
      ${children}
      <${Trouble} error=${error} />
      <${StillAsking} busy=${busy} />
      <div class="row">
        <button type="submit" class=${danger ? "danger" : "primary"} disabled=${busy}>${word}</button>
        <button type="button" onClick=${() => onClose(false)}>Back</button>
      </div>
    </form>
  <//>`;
}

const day = new Intl.DateTimeFormat("sv-SE", { dateStyle: "short", timeStyle: "short" });
const second = new Intl.DateTimeFormat("sv-SE", { dateStyle: "short", timeStyle: "medium" });

/** "2026-11-22 14:03", in the reader's own zone; an en dash for null. */
export const when = (iso) => (iso ? day.format(new Date(iso)) : "–");
/** "2026-11-22 14:03:27" */
export const whenExactly = (iso) => (iso ? second.format(new Date(iso)) : "–");

/** "4:05", "1:02:09"; "0:00" when it is over. */
export function left(ms) {
  const s = Math.max(0, Math.ceil(ms / 1000));
  const two = (n) => String(n).padStart(2, "0");
  const h = Math.floor(s / 3600), m = Math.floor(s / 60) % 60;
  return h ? `${h}:${two(m)}:${two(s % 60)}` : `${m}:${two(s % 60)}`;
}

/** The rough time since or until a moment: "3 min". */
export function roughly(ms) {
  const s = Math.abs(ms) / 1000;
  if (s < 1) return `${Math.round(Math.abs(ms))} ms`;
  if (s < 60) return `${Math.round(s)} s`;
  if (s < 3600) return `${Math.round(s / 60)} min`;
  if (s < 172800) return `${Math.round(s / 3600)} h`;
  return `${Math.round(s / 86400)} d`;
}

const currencies = new Map(); // creating a format takes longer than the rest of a board's card

/** "₩350,000": amount is in the currency's minor unit. */
export function money({ amount, currency }, locale = "en") {
  const key = `${locale} ${currency}`;
  if (!currencies.has(key)) {
    if (currencies.size >= 50) currencies.clear();
    currencies.set(key, new Intl.NumberFormat(locale, { style: "currency", currency }));
  }
  const format = currencies.get(key);
  return format.format(amount / 10 ** format.resolvedOptions().maximumFractionDigits);
}
