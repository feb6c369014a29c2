import { html, useState } from "../assets/preact.js";
import { now } from "../assets/api.js";
import { roughly, when } from "../assets/ui.js";
import { Change } from "./dispatch_change.js";
import { Assign } from "./dispatch_assign.js";
import { Edit } from "./dispatch_edit.js";
import { localInput, momentOf } from "./dispatch_time.js";
import { useNames } from "./names.js";

const waiting = ["SCHEDULED", "PENDING"];

/** The actions on a dispatch, their states, and the dialogs that confirm them. */
export const actions = [
  { name: "Assign…", states: waiting, dialog: Assign },
  { name: "Extend…", states: waiting, dialog: Extend },
  { name: "Edit terms…", states: waiting, dialog: Edit },
  { name: "Reopen…", states: ["EXPIRED"], dialog: Reopen },
  { name: "Unassign…", states: ["ACCEPTED"], dialog: Unassign, danger: true },
  { name: "Cancel…", states: ["SCHEDULED", "PENDING", "ACCEPTED", "IN_PROGRESS"], dialog: Cancel, danger: true },
];

function Reason({ value, onInput }) {
  return html`<label class="stack">Reason (optional)
    <input value=${value} onInput=${(e) => onInput(e.target.value)} maxlength="64" placeholder="CUSTOMER_CANCELED" autocomplete="off" /></label>`;
}

const withReason = (reason) => (reason.trim() ? { reason_code: reason.trim() } : {});

function Cancel(props) {
  const { dispatch } = props;
  const [reason, setReason] = useState("");
  const name = useNames(dispatch.accepted_by ? [dispatch.accepted_by] : []);
  return html`<${Change} ...${props} title="Cancel this dispatch?" body=${() => withReason(reason)}
      change=${{ word: "Cancel the dispatch", past: "Canceled", path: "/cancel", event: "dispatch.canceled", danger: true }}>
    <p>It ends for everyone and can't be opened again.${dispatch.accepted_by && ` ${name(dispatch.accepted_by)} has it and is told.`}</p>
    <${Reason} value=${reason} onInput=${setReason} />
  <//>`;
}

function Unassign(props) {
  const { dispatch } = props;
  const [reason, setReason] = useState("");
  const name = useNames([dispatch.accepted_by]);
  return html`<${Change} ...${props} title="Take it from its driver?" body=${() => withReason(reason)}
      change=${{ word: "Unassign", past: "Unassigned: it is open again, in the next round", path: "/unassign", event: "dispatch.unassigned", danger: true }}>
    <p>${dispatch.accepted_by ? name(dispatch.accepted_by) : "The driver"} loses it at once, and round ${dispatch.round + 1} begins: every
      eligible driver is told.</p>
    <${Reason} value=${reason} onInput=${setReason} />
  <//>`;
}

const tenMinutes = 600_000;

function Extend(props) {
  const { dispatch } = props;
  const [until, setUntil] = useState(localInput(Date.parse(dispatch.expires_at) + tenMinutes));
  const add = (ms) => setUntil((u) => localInput((Date.parse(u) || Date.parse(dispatch.expires_at)) + ms));
  return html`<${Change} ...${props} title="Let it stand longer" body=${() => ({ expires_at: momentOf(until) })}
      change=${{ word: "Extend", past: "Extended", path: "/extend", event: "dispatch.updated" }}>
    <p>It expires at ${when(dispatch.expires_at)}. The round stays, and nobody is told again.</p>
    <label class="stack">New end (your time)
      <input type="datetime-local" step="1" value=${until} onInput=${(e) => setUntil(e.target.value)} required /></label>
    <div class="row">${[10, 30, 60].map((m) => html`<button type="button" onClick=${() => add(m * 60_000)}>${m} min more</button>`)}</div>
  <//>`;
}

function Reopen(props) {
  const { dispatch } = props;
  const [until, setUntil] = useState("");
  const stood = Date.parse(dispatch.expires_at) - Date.parse(dispatch.opens_at);
  return html`<${Change} ...${props} title="Open it again" body=${() => (until ? { expires_at: momentOf(until) } : {})}
      change=${{ word: "Reopen", past: "Reopened: the next round has begun", path: "/reopen", event: "dispatch.reopened" }}>
    <p>Round ${dispatch.round + 1} begins now, and every eligible driver is told.</p>
    <label class="stack">Until (your time; left empty: for ${roughly(stood)}, as before)
      <input type="datetime-local" step="1" value=${until} min=${localInput(now())} onInput=${(e) => setUntil(e.target.value)} /></label>
  <//>`;
}
