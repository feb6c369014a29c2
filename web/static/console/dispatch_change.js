import { html, useCallback, useEffect, useMemo, useRef, useState } from "../assets/preact.js";
import { Problem, Unreachable, freshKey, get, list, pause, request, send } from "../assets/api.js";
import { useLanguage } from "../assets/language.js";
import { Dialog } from "../assets/ui.js";
import { StillAsking, Trouble, explain } from "./dialogs.js";
import { State, eventSentence, refusal } from "./dispatch_words.js";
import { beside, settles, useFirstWrong, wrongFields } from "./forms.js";
import { nameDriver } from "./names.js";

const askAgain = 2_000; // ms between readings of the outcome of an unanswered change
const mostEvents = 2_000;

/** @typedef {{now: Schemas["Dispatch"], news: Schemas["Event"][], all: boolean}} Truth news: the events since; all: there are no more of them */

/** Reads the events since the user saw the dispatch. @param {Schemas["Dispatch"]} then @param {AbortSignal} [signal] @returns {Promise<Truth>} */
async function since(then, signal) {
  const path = `/v1/admin/dispatches/${then.id}`;
  const now = await get(path, { signal });
  const { items, more } = await list(`${path}/events`, mostEvents, { signal });
  // The event that made the seen version is not later than updated_at. Events that change no version need no second confirmation.
  const news = items.filter((e) => e.at > then.updated_at && e.type !== "dispatch.declined" && e.type !== "dispatch.reminder");
  return { now, news, all: !more };
}

/**
 * Returns a function from the texts to the sentence about the events.
 * @param {Schemas["Event"][]} news @param {Schemas["Session"]} session @returns {Promise<(t: Texts) => string>}
 */
async function sentences(news, session) {
  const ids = news.flatMap((e) => [e.actor, e.driver_id ?? ""]).filter((id) => id.startsWith("drv_"));
  const names = new Map(await Promise.all([...new Set(ids)].map(async (id) => /** @type {const} */ ([id, await nameDriver(id).catch(() => id)]))));
  return (t) => news.map((e) => eventSentence(e, session, (id) => names.get(id) ?? id, t)).join(t.change.then) || t.change.changed;
}

/**
 * Describes a dispatch whose unanswered change is not among its events, as sentences does.
 * @param {Truth} truth @param {Schemas["Dispatch"]} seen @param {Schemas["Session"]} session @returns {Promise<(t: Texts) => string>}
 */
async function found({ now, news, all }, seen, session) {
  if (now.version === seen.version) return (t) => t.change.notMade;
  if (!all) return (t) => t.change.unclear;
  const events = await sentences(news, session);
  return (t) => t.change.meanwhile(events(t));
}

/**
 * @typedef {{in: (reader: Reader) => string}} Said a message, which follows the reader's language
 * @typedef {{word: string, path: string, event: string, past: (t: Texts) => string, method?: string, danger?: boolean}} ChangeOf
 */

/**
 * Makes changes to a dispatch, one at a time, and knows the outcome of the last one.
 * doubt is an unanswered change, until the service can be reached, and verdict its outcome as found since.
 * @param {Schemas["Session"]} session @param {() => void} onRead
 */
export function useChanges(session, onRead) {
  const [doubt, setDoubt] = useState(/** @type {{change: ChangeOf, seen: Schemas["Dispatch"]}|null} */ (null));
  const [verdict, setVerdict] = useState(/** @type {{done: boolean, said: Said, seen: Schemas["Dispatch"]}|null} */ (null));
  const key = useRef({ of: "", key: "" });

  useEffect(() => {
    if (!doubt) return undefined;
    const abort = new AbortController();
    (async () => {
      let truth;
      while (!truth) {
        await pause(askAgain, abort.signal);
        truth = await since(doubt.seen, abort.signal).catch((err) => {
          if (err instanceof Unreachable || (err instanceof Problem && err.status >= 429)) return null;
          throw err;
        });
      }
      const mine = truth.news.some((e) => e.actor === session.key_id && e.type === doubt.change.event);
      const what = mine ? doubt.change.past : await found(truth, doubt.seen, session);
      const said = { in: (/** @type {Reader} */ { t }) => (mine ? t.change.made(what(t)) : t.change.found(what(t))) };
      if (abort.signal.aborted) return;
      setDoubt(null);
      setVerdict({ done: mine, said, seen: truth.now });
      onRead();
    })().catch((err) => {
      if (abort.signal.aborted) return;
      setDoubt(null);
      setVerdict({ done: false, said: { in: (language) => language.t.change.lost(explain(err, language, true)) }, seen: doubt.seen });
    });
    return () => abort.abort();
  }, [doubt]);

  const submit = useCallback(async (/** @type {ChangeOf} */ change, /** @type {Schemas["Dispatch"]} */ seen, /** @type {unknown} */ body) => {
    setVerdict(null);
    const path = `/v1/admin/dispatches/${seen.id}${change.path}`;
    const options = { body, version: seen.version };
    // The same change of the same version has the same key, however often it is confirmed, so the service makes it once.
    const of = JSON.stringify([path, options]);
    if (key.current.of !== of) key.current = { of, key: freshKey() };
    try {
      // PATCH takes no key: a second request could conflict with the version that the first one made.
      if (change.method === "PATCH") await request("PATCH", path, options);
      else await send("POST", path, { ...options, idempotencyKey: key.current.key });
      setDoubt(null);
    } catch (err) {
      if (err instanceof Unreachable) setDoubt({ change, seen });
      if (settles(err)) key.current = { of: "", key: "" }; // another try is another request: what refused this one may have changed
      throw err;
    }
  }, []);
  const clear = useCallback(() => setVerdict(null), []);
  return { doubt, verdict, submit, clear };
}

/**
 * What a dialog of an action gets.
 * @typedef {{dispatch: Schemas["Dispatch"], session: Schemas["Session"], changes: ReturnType<typeof useChanges>, onRead: () => void,
 *   onClose: (said: Said|null) => void}} Acting
 */

/**
 * Asks for confirmation of a change, and makes it to the version that was seen when the dialog opened. If another user was
 * faster, the dialog shows that change and its author, and the next confirmation is of the new version.
 * @param {Acting & {title: string, change: ChangeOf, body: () => unknown, ready?: boolean, fields?: string[], children?: unknown}} props
 * past returns the message after a success; body returns the request's body, or throws an error in the input; children may be a function of
 * what is wrong with each of the fields, as the API names them
 */
export function Change({ title, change, dispatch, session, changes, body, ready = true, fields = [], onRead, onClose, children }) {
  const language = useLanguage();
  const { t } = language;
  const [seen, setSeen] = useState(dispatch);
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState(/** @type {Failure|null} */ (null));
  const [moved, setMoved] = useState(/** @type {{own: boolean, said: (t: Texts) => string, now: Schemas["Dispatch"]}|null} */ (null));
  const { doubt, verdict } = changes;
  const wrong = useMemo(() => wrongFields(error), [error]);
  /** @type {Ref<HTMLFormElement>} */
  const form = useRef(null);
  useFirstWrong(form, wrong);

  useEffect(() => {
    if (!verdict) return;
    if (verdict.done) return onClose(verdict.said);
    setError(null);
    setSeen(verdict.seen);
  }, [verdict]);

  const submit = async (/** @type {SubmitEvent} */ e) => {
    e.preventDefault();
    setBusy(true);
    setError(null);
    setMoved(null);
    try {
      await changes.submit(change, seen, body());
      onRead();
      return onClose({ in: ({ t }) => t.dispatch.tell(change.past(t)) });
    } catch (err) {
      onRead();
      try {
        if (err.code !== "VERSION_MOVED") throw err;
        const truth = await since(seen);
        const own = truth.news.length > 0 && truth.news.every((e) => e.actor === session.key_id); // another window
        setMoved({ own, said: await sentences(truth.news, session), now: truth.now });
        setSeen(truth.now);
      } catch (failed) {
        setError(refusal(failed));
      }
    }
    setBusy(false);
  };
  return html`<${Dialog} title=${title} onClose=${() => onClose(null)}>
    <form ref=${form} class="stack" onSubmit=${submit}>
      ${typeof children === "function" ? children(wrong) : children}
      <div role="alert">${moved && html`<div class="moved stack">
        <p><strong>${moved.own ? t.change.own : t.change.other}</strong>${t.change.was(moved.said(t))}</p>
        <p>${t.change.now(html`<${State} of=${moved.now.status} />`, moved.now.round)}</p></div>`}
        ${!doubt && verdict && !verdict.done && html`<p class="moved">${verdict.said.in(language)}</p>`}</div>
      <${Trouble} error=${doubt ? null : error && beside(error, wrong, fields)} />
      <div role="status">${doubt && html`<p class="moved">${t.change.doubt}</p>`}</div>
      <${StillAsking} busy=${busy} />
      <div class="row">
        <button type="submit" class=${change.danger ? "danger" : "primary"} disabled=${busy || !ready || Boolean(doubt)}>${change.word}</button>
        <button type="button" onClick=${() => onClose(null)}>${t.back}</button>
      </div>
    </form>
  <//>`;
}
