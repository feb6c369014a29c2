import { html, useEffect, useLayoutEffect, useReducer, useRef, useState } from "./preact.js";
import { now } from "./api.js";

/** Counts how often it was asked to render again. @returns {[number, () => void]} */
export const useTurn = () => useReducer((/** @type {number} */ n, /** @type {void} */ _) => n + 1, 0);

/** Renders again every ms, by one timer of the component's own. @returns {number} the service's time in ms */
export function useNow(ms = 1000) {
  const [, tick] = useTurn();
  useEffect(() => {
    const timer = setInterval(tick, ms);
    return () => clearInterval(timer);
  }, [ms]);
  return now();
}

/**
 * Loads a component's data, and again when a dependency changes or reload is called. The old data stays during a load, and
 * beside the error after a failure.
 * @template T
 * @param {(signal: AbortSignal) => Promise<T>} load
 * @param {unknown[]} dependencies
 * @returns {{data: T|undefined, error: Failure|null, loading: boolean, reload: () => void}}
 */
export function useLoaded(load, dependencies) {
  const [state, set] = useState(/** @type {{data: T|undefined, error: Failure|null, loading: boolean}} */ ({ data: undefined, error: null, loading: true }));
  const [turn, reload] = useTurn();
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
 * A modal dialog: the browser's own, which keeps the focus inside and gives it back, and closes on Escape.
 * @param {{title: string, onClose: () => void, children?: unknown}} props
 */
export function Dialog({ title, onClose, children }) {
  /** @type {Ref<HTMLDialogElement>} */
  const dialog = useRef(null);
  const ended = useRef(false);
  const end = () => {
    if (ended.current) return;
    ended.current = true;
    onClose();
  };
  useLayoutEffect(() => { // at once, because the next key is meant for the dialog
    const before = /** @type {HTMLElement|null} */ (document.activeElement), shown = dialog.current;
    shown.showModal();
    return () => {
      ended.current = true;
      shown.close(); // while it is open, nothing outside of it takes the focus
      before?.focus?.(); // an element of SVG may have none
    };
  }, []);
  // The event close comes some time after Escape: the user may have opened the next dialog by then.
  return html`<dialog ref=${dialog} aria-label=${title} onCancel=${end} onClose=${end}>
    <h2>${title}</h2>
    ${children}
  </dialog>`;
}

/** "4:05", "1:02:09"; "0:00" when it is over. @param {number} ms */
export function left(ms) {
  const s = Math.max(0, Math.ceil(ms / 1000));
  const two = (/** @type {number} */ n) => String(n).padStart(2, "0");
  const h = Math.floor(s / 3600), m = Math.floor(s / 60) % 60;
  return h ? `${h}:${two(m)}:${two(s % 60)}` : `${m}:${two(s % 60)}`;
}
