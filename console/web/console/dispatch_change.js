import { html, useCallback, useEffect, useRef, useState } from "../assets/preact.js";
import { Problem, Unreachable, freshKey, get, list, pause, request, send } from "../assets/api.js";
import { Dialog, StillAsking, Trouble } from "../assets/ui.js";
import { nameDriver } from "./names.js";
import { State, eventSentence, refusal } from "./dispatch_words.js";

const askAgain = 2_000; // ms between readings of the outcome of an unanswered change
const mostEvents = 2_000;

/** Reads the events since the user saw the dispatch. */
async function since(then, signal) {
  const path = `/v1/admin/dispatches/${then.id}`;
  const now = await get(path, { signal });
  const { items, more } = await list(`${path}/events`, mostEvents, { signal });
  // The event that made the seen version has its time. Events that change no version need no second confirmation.
  const news = items.filter((e) => e.at > then.updated_at && e.type !== "dispatch.declined" && e.type !== "dispatch.reminder");
  return { now, news, all: !more };
}

async function sentences(news, session) {
  const ids = news.flatMap((e) => [e.actor, e.driver_id]).filter((id) => id?.startsWith("drv_"));
  const names = new Map(await Promise.all([...new Set(ids)].map(async (id) => [id, await nameDriver(id).catch(() => id)])));
  const said = news.map((e) => eventSentence(e, session, (id) => names.get(id) ?? id));
  return said.length > 0 ? said.join(", then ") : "changed";
}

// found describes a dispatch whose unanswered change is not among its events.
async function found({ now, news, all }, seen, session) {
  if (now.version === seen.version) return "Your change is not made so far. You can confirm it again: it is made once at most";
  if (!all) return "The dispatch has changed; whether by you, the list of what happened says";
  return `Your change was not made; meanwhile it was ${await sentences(news, session)}`;
}

/**
 * Makes changes to a dispatch, one at a time, and knows the outcome of the last one.
 * @returns {{doubt: any, verdict: any, submit: (change: any, seen: any, body: any) => Promise<void>, clear: () => void}}
 * doubt: an unanswered change, until the service can be reached. verdict: its outcome as found since, {done, text, seen}.
 */
export function useChanges(session, onRead) {
  const [doubt, setDoubt] = useState(null);
  const [verdict, setVerdict] = useState(null);
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
      const text = `The service can be reached again${mine ? `: ${doubt.change.past}` : `. ${await found(truth, doubt.seen, session)}`}.`;
      if (abort.signal.aborted) return;
      setDoubt(null);
      setVerdict({ done: mine, text, seen: truth.now });
      onRead();
    })().catch((err) => {
      if (abort.signal.aborted) return;
      setDoubt(null);
      setVerdict({ done: false, text: `Nobody can tell what became of it: ${err.message}`, seen: doubt.seen });
    });
    return () => abort.abort();
  }, [doubt]);

  const submit = useCallback(async (change, seen, body) => {
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
      throw err;
    }
  }, []);
  const clear = useCallback(() => setVerdict(null), []);
  return { doubt, verdict, submit, clear };
}

/**
 * Asks for confirmation of a change, and makes it to the version that was seen when the dialog opened. If another user was
 * faster, the dialog shows that change and its author, and the next confirmation is of the new version.
 * @param {{title: string, change: {word: string, past: string, path: string, event: string, method?: string, danger?: boolean},
 *   dispatch: any, session: any, changes: any, body: () => any, ready?: boolean, onRead: () => void,
 *   onClose: (said: string) => void, children?: any}} props
 * past is the message after a success; body returns the request's body, or throws an error in the input
 */
export function Change({ title, change, dispatch, session, changes, body, ready = true, onRead, onClose, children }) {
  const [seen, setSeen] = useState(dispatch);
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState(null);
  const [moved, setMoved] = useState(null);
  const { doubt, verdict } = changes;

  useEffect(() => {
    if (!verdict) return;
    if (verdict.done) return onClose(verdict.text);
    setError(null);
    setSeen(verdict.seen);
  }, [verdict]);

  const submit = async (e) => {
    e.preventDefault();
    setBusy(true);
    setError(null);
    setMoved(null);
    try {
      await changes.submit(change, seen, body());
      onRead();
      return onClose(`${change.past}.`);
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
  return html`<${Dialog} title=${title} onClose=${() => onClose("")}>
    <form class="stack" onSubmit=${submit}>
      ${children}
      <div role="alert">${moved && html`<div class="moved stack">
        <p><strong>${moved.own ? "It has changed meanwhile, by your own key." : "Someone else changed it first."}</strong> It was ${moved.said}.</p>
        <p>Now it is <${State} of=${moved.now.status} /> in round ${moved.now.round}. Nothing of yours was done. What you typed is
          still here: confirm again if you still want it.</p></div>`}
        ${!doubt && verdict && !verdict.done && html`<p class="moved">${verdict.text}</p>`}</div>
      <${Trouble} error=${doubt ? null : error} />
      <div role="status">${doubt && html`<p class="moved">The service can't be reached. It is not known whether this was done; it
        is being asked until it answers.</p>`}</div>
      <${StillAsking} busy=${busy} />
      <div class="row">
        <button type="submit" class=${change.danger ? "danger" : "primary"} disabled=${busy || !ready || Boolean(doubt)}>${change.word}</button>
        <button type="button" onClick=${() => onClose("")}>Back</button>
      </div>
    </form>
  <//>`;
}
