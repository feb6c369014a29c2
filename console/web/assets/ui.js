import { html, useEffect, useLayoutEffect, useReducer, useRef, useState } from "./preact.js";
import { now } from "./api.js";
import { useLanguage } from "./language.js";
import { explain } from "./problems.js";

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
  const { t } = useLanguage();
  useEffect(() => {
    if (name) document.title = t.titleOf(name);
  }, [name, t]);
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
  const language = useLanguage();
  return html`<div class="trouble" role="alert">${error && explain(error, language, reading)}</div>`;
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
  const { t } = useLanguage();
  const [slow, setSlow] = useState(false);
  useEffect(() => {
    setSlow(false);
    const timer = busy && setTimeout(setSlow, 1500, true);
    return () => clearTimeout(timer);
  }, [busy]);
  return slow && html`<p class="soft" role="status">${t.noAnswerYet}</p>`;
}

/**
 * Asks for confirmation, acts, and closes after a success. It shows a failure.
 * @param {{title: string, word: string, danger?: boolean, act: () => Promise<any>, onClose: (done: boolean) => void, children?: any}} props
 * word is the verb on the button that acts
 */
export function Ask({ title, word, danger, act, onClose, children }) {
  const { t } = useLanguage();
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
        <button type="button" onClick=${() => onClose(false)}>${t.back}</button>
      </div>
    </form>
  <//>`;
}

/** "4:05", "1:02:09"; "0:00" when it is over. */
export function left(ms) {
  const s = Math.max(0, Math.ceil(ms / 1000));
  const two = (n) => String(n).padStart(2, "0");
  const h = Math.floor(s / 3600), m = Math.floor(s / 60) % 60;
  return h ? `${h}:${two(m)}:${two(s % 60)}` : `${m}:${two(s % 60)}`;
}
