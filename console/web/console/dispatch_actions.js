import { html, useState } from "../assets/preact.js";
import { now } from "../assets/api.js";
import { useLanguage } from "../assets/language.js";
import { Change } from "./dispatch_change.js";
import { Assign } from "./dispatch_assign.js";
import { Edit } from "./dispatch_edit.js";
import { localInput, typedTime } from "../assets/zone.js";
import { momentOf, timeLabel } from "./dispatch_time.js";
import { useNames } from "./names.js";

const waiting = ["SCHEDULED", "PENDING"];

/** The actions on a dispatch, by the names of their texts, with their states and the dialogs that confirm them. */
export const actions = [
  { name: "assign", states: waiting, dialog: Assign },
  { name: "extend", states: waiting, dialog: Extend },
  { name: "edit", states: waiting, dialog: Edit },
  { name: "reopen", states: ["EXPIRED"], dialog: Reopen },
  { name: "unassign", states: ["ACCEPTED"], dialog: Unassign, danger: true },
  { name: "cancel", states: ["SCHEDULED", "PENDING", "ACCEPTED", "IN_PROGRESS"], dialog: Cancel, danger: true },
];

function Reason({ value, onInput }) {
  const { t } = useLanguage();
  return html`<label class="stack">${t.dispatch.reason}
    <input value=${value} onInput=${(e) => onInput(e.target.value)} maxlength="64" placeholder=${t.dispatch.reasonHint} autocomplete="off" /></label>`;
}

const withReason = (reason) => (reason.trim() ? { reason_code: reason.trim() } : {});

function Cancel(props) {
  const { t } = useLanguage();
  const { dispatch } = props;
  const [reason, setReason] = useState("");
  const name = useNames(dispatch.accepted_by ? [dispatch.accepted_by] : []);
  return html`<${Change} ...${props} title=${t.cancel.title} body=${() => withReason(reason)}
      change=${{ word: t.cancel.word, past: (words) => words.cancel.past, path: "/cancel", event: "dispatch.canceled", danger: true }}>
    <p>${t.cancel.more}${dispatch.accepted_by && t.cancel.has(name(dispatch.accepted_by))}</p>
    <${Reason} value=${reason} onInput=${setReason} />
  <//>`;
}

function Unassign(props) {
  const { t } = useLanguage();
  const { dispatch } = props;
  const [reason, setReason] = useState("");
  const name = useNames([dispatch.accepted_by]);
  return html`<${Change} ...${props} title=${t.unassign.title} body=${() => withReason(reason)}
      change=${{ word: t.unassign.word, past: (words) => words.unassign.past, path: "/unassign", event: "dispatch.unassigned", danger: true }}>
    <p>${t.unassign.more(dispatch.accepted_by ? name(dispatch.accepted_by) : t.unassign.theDriver, dispatch.round + 1)}</p>
    <${Reason} value=${reason} onInput=${setReason} />
  <//>`;
}

const tenMinutes = 600_000;

function Extend(props) {
  const { t, when } = useLanguage();
  const { dispatch } = props;
  const [until, setUntil] = useState(localInput(Math.min(Date.parse(dispatch.expires_at) + tenMinutes, Date.parse(dispatch.work_ends_at))));
  const add = (ms) => setUntil((u) => localInput(Date.parse(typedTime(u) ?? dispatch.expires_at) + ms));
  return html`<${Change} ...${props} title=${t.extend.title} body=${() => ({ expires_at: momentOf(until) })}
      change=${{ word: t.extend.word, past: (words) => words.extend.past, path: "/extend", event: "dispatch.updated" }}>
    <p>${t.extend.more(when(dispatch.expires_at))}</p>
    <label class="stack">${timeLabel(t, t.extend.end, until)}
      <input type="datetime-local" step="1" value=${until} onInput=${(e) => setUntil(e.target.value)} required /></label>
    <div class="row">${[10, 30, 60].map((m) => html`<button type="button" onClick=${() => add(m * 60_000)}>${t.extend.add(m)}</button>`)}</div>
  <//>`;
}

function Reopen(props) {
  const { t, roughly } = useLanguage();
  const { dispatch } = props;
  const [until, setUntil] = useState("");
  const stood = Date.parse(dispatch.expires_at) - Date.parse(dispatch.opens_at);
  return html`<${Change} ...${props} title=${t.reopen.title} body=${() => (until ? { expires_at: momentOf(until) } : {})}
      change=${{ word: t.reopen.word, past: (words) => words.reopen.past, path: "/reopen", event: "dispatch.reopened" }}>
    <p>${t.reopen.more(dispatch.round + 1)}</p>
    <label class="stack">${t.reopen.until(roughly(stood))}
      <input type="datetime-local" step="1" value=${until} min=${localInput(now())} onInput=${(e) => setUntil(e.target.value)} /></label>
  <//>`;
}
