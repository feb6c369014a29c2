import { html, useEffect, useRef, useState } from "../assets/preact.js";
import { Unreachable, get } from "../assets/api.js";
import { useLanguage } from "../assets/language.js";
import { PageError } from "../assets/problems.js";
import { Trouble, useLoaded, useTitle } from "../assets/ui.js";
import { LiveBadge } from "./live.js";
import { shown } from "./names.js";
import { useQuery } from "./query.js";
import { boardAddress } from "./board_return.js";
import { actions } from "./dispatch_actions.js";
import { useChanges } from "./dispatch_change.js";
import { useTurns } from "./dispatch_fresh.js";
import { Funnel, Pushes, Told, Trail } from "./dispatch_lists.js";
import { Terms } from "./dispatch_terms.js";
import { State, Unread } from "./dispatch_words.js";
import { Race } from "./race.js";

/** The page of one dispatch: its terms, the notified drivers, the taps, the events, and the possible actions. */
export function Dispatch({ id, session, may }) {
  const { t } = useLanguage();
  const [ended, setEnded] = useState(false);
  const { turn, stir, state } = useTurns(id, ended);
  const { data: dispatch, error } = useLoaded((signal) => get(`/v1/admin/dispatches/${encodeURIComponent(id)}`, { signal }), [id, turn]);
  useEffect(() => {
    if (dispatch) setEnded(["COMPLETED", "CANCELED", "EXPIRED"].includes(dispatch.status));
  }, [dispatch]);
  if (!dispatch && error?.status === 404) return html`<${Missing} id=${id} />`;
  if (!dispatch) return html`<h1>${t.dispatch.title}</h1><${Unread} error=${error} />${!error && html`<p role="status" class="soft">${t.reading}</p>`}`;
  return html`<${Shown} dispatch=${dispatch} error=${error} turn=${turn} stir=${stir} live=${state} session=${session} may=${may} />`;
}

const old = new PageError(({ t }) => t.dispatch.unreachable);

function Missing({ id }) {
  const { t } = useLanguage();
  return html`<div class="card missing stack"><h1>${t.dispatch.missing}</h1>
    <p>${t.dispatch.missingMore(html`<code>${id || t.dispatch.noId}</code>`)}</p>
    <p><a href=${boardAddress()}>${t.dispatch.toBoard}</a></p></div>`;
}

function Shown({ dispatch, error, turn, stir, live, session, may }) {
  const { t } = useLanguage();
  const changes = useChanges(session, stir);
  const [said, setSaid] = useState(null); // {in: the language to the text}
  useTitle(dispatch.site_address);
  const [query, change] = useQuery(["round"]); // #/dispatches/{id}?round=1
  const chosen = Array.from({ length: dispatch.round - 1 }, (_, i) => i + 1).find((r) => String(r) === query.round) ?? 0; // 0 is the current one
  const round = chosen || dispatch.round;
  const holder = round === dispatch.round ? dispatch.accepted_by : undefined;
  return html`<div class="dispatch">
    <p class="back"><a href=${boardAddress()}>${t.dispatch.toBoard}</a></p>
    <header class="row between">
      <div><h1><bdi>${shown(dispatch.site_address, dispatch.id)}</bdi></h1>
        <p class="row"><span role="status" aria-label=${t.dispatch.state}><${State} of=${dispatch.status} /></span>
          <span>${t.round(dispatch.round)}</span> <span class="soft">${t.dispatch.version(dispatch.version)}</span> <${LiveBadge} state=${live} /></p></div>
      ${may("dispatcher") && html`<${Actions} dispatch=${dispatch} session=${session} changes=${changes} stir=${stir} setSaid=${setSaid} />`}
    </header>
    <${Trouble} error=${error instanceof Unreachable ? old : error} />
    <${News} changes=${changes} said=${said} />
    <div class="columns">
      <div class="stack">
        <${Terms} dispatch=${dispatch} onDue=${stir} />
        <${Trail} id=${dispatch.id} turn=${turn} session=${session} />
      </div>
      <div class="stack">
        ${dispatch.round > 1 && html`<label class="row">${t.dispatch.round} <select value=${String(chosen)} onChange=${(e) => change({ round: e.target.value === "0" ? "" : e.target.value })}>
          <option value="0">${t.dispatch.roundNow(dispatch.round)}</option>
          ${Array.from({ length: dispatch.round - 1 }, (_, i) => dispatch.round - 1 - i).map((r) => html`<option key=${r} value=${String(r)}>${r}</option>`)}
        </select></label>`}
        <${Race} key=${`race ${round}`} id=${dispatch.id} round=${round} holder=${holder} turn=${turn} onMore=${stir} />
        <${Funnel} id=${dispatch.id} turn=${turn} />
        <${Told} key=${`told ${round}`} id=${dispatch.id} round=${round} turn=${turn} />
        <${Pushes} id=${dispatch.id} turn=${turn} />
      </div>
    </div>
  </div>`;
}

// News shows the outcome of a change, also after its dialog was closed.
function News({ changes: { doubt, verdict }, said }) {
  const language = useLanguage();
  const { t } = language;
  const text = doubt ? t.dispatch.doubt : (verdict?.said ?? said)?.in(language);
  return html`<p role="status" aria-label=${t.dispatch.yourChange} class=${`news ${doubt ? "warn" : ""}`}>${text}</p>`;
}

function Actions({ dispatch, session, changes, stir, setSaid }) {
  const { t } = useLanguage();
  const [asking, ask] = useState(null);
  const bar = useRef(null), used = useRef(false);
  const possible = actions.filter((a) => a.states.includes(dispatch.status));
  const begin = (action) => {
    changes.clear();
    setSaid(null);
    ask(action);
  };
  const end = (said) => {
    ask(null);
    if (said) setSaid(said);
    stir();
  };
  // The button that opened the dialog may have disappeared with the state: the focus stays near it.
  useEffect(() => {
    if (asking) used.current = true;
    else if (used.current && document.activeElement === document.body) bar.current.focus();
  }, [asking, dispatch.status]);
  return html`<div class="row" role="group" aria-label=${t.dispatch.actions} tabindex="-1" ref=${bar}>
    ${possible.length === 0 && html`<span class="soft">${t.dispatch.nothingMore}</span>`}
    ${possible.map((a) => html`<button key=${a.name} class=${a.danger ? "danger" : ""} onClick=${() => begin(a)}>${t.dispatch.action[a.name]}</button>`)}
    ${asking && html`<${asking.dialog} dispatch=${dispatch} session=${session} changes=${changes} onRead=${stir} onClose=${end} />`}
  </div>`;
}
