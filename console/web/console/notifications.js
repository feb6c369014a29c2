import { html, useRef, useState } from "../assets/preact.js";
import { list, now } from "../assets/api.js";
import { roughly, useNow, whenExactly } from "../assets/ui.js";
import { useNames } from "./names.js";
import { Freshness, usePolled } from "./poll.js";
import { Outcome, Redrive } from "./redrive.js";

const states = [
  { status: "PENDING", title: "Backlog", none: "Nothing waits to be sent." },
  { status: "DEAD", title: "Dead", none: "No push is dead." },
  { status: "DROPPED", title: "Dropped", none: "No push was dropped." },
  { status: "SENT", title: "Sent", none: "No push was sent in the last days." },
];
const attention = ["PENDING", "DEAD"]; // both are counted, whichever is shown
const pageSize = 100;
const most = 1000;

const listOf = (status, n, signal) => list(`/v1/admin/notifications?status=${status}`, n, { signal });

const counted = ({ items, more }) => `${items.length}${more ? "+" : ""}`;

/** The pushes to drivers: pending, dead, dropped and sent. */
export function Notifications({ id, may }) {
  const [status, setStatus] = useState(states.some((s) => s.status === id) ? id : "PENDING");
  const [shown, setShown] = useState(pageSize);
  const polled = usePolled(async (signal) => {
    const wanted = [...new Set([status, ...attention])];
    const read = await Promise.all(wanted.map((s) => listOf(s, s === status ? shown : pageSize, signal)));
    return { status, lists: Object.fromEntries(wanted.map((s, i) => [s, read[i]])) };
  }, shown > pageSize ? 15_000 : 5000, [status, shown]);
  const choose = (s) => {
    history.replaceState(null, "", `#/notifications/${s}`);
    setStatus(s);
    setShown(pageSize);
  };
  const lists = polled.data?.lists ?? {};
  return html`<div class="stack operations">
    <div class="row"><h1>Notifications</h1><${Freshness} of=${polled} /></div>
    <${Tabs} status=${status} lists=${lists} onChoose=${choose} />
    <div role="tabpanel" id="pushes" aria-labelledby=${"tab-" + status} class="stack">
      ${lists[status] && html`<${Pushes} key=${status} state=${states.find((s) => s.status === status)} found=${lists[status]}
        may=${may} reload=${polled.reload} />`}
      ${lists[status]?.more && (shown < most
        ? html`<div><button onClick=${() => setShown(shown + pageSize)}>Show ${pageSize} more</button></div>`
        : html`<p class="soft">The newest ${most} are shown. There are more.</p>`)}
    </div>
  </div>`;
}

function Tabs({ status, lists, onChoose }) {
  const row = useRef(null);
  const onKeyDown = (e) => {
    const at = states.findIndex((s) => s.status === status);
    const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: states.length - 1 }[e.key];
    if (to === undefined) return;
    e.preventDefault();
    const next = (to + states.length) % states.length;
    onChoose(states[next].status);
    row.current.children[next].focus();
  };
  return html`<div role="tablist" aria-label="Pushes by state" class="tabs" ref=${row} onKeyDown=${onKeyDown}>
    ${states.map((s) => html`<button key=${s.status} role="tab" id=${"tab-" + s.status} aria-controls="pushes"
      aria-selected=${String(s.status === status)} tabindex=${s.status === status ? 0 : -1} onClick=${() => onChoose(s.status)}>
      ${s.title}${lists[s.status] && html` <span class=${"count" + (s.status === "DEAD" && lists.DEAD.items.length > 0 ? " bad" : "")}>${counted(lists[s.status])}</span>`}
    </button>`)}
  </div>`;
}

/** Reports whether a push may still be sent again: the service refuses expired pushes. */
const useful = (n) => Date.parse(n.expires_at) > now();

function Pushes({ state, found, may, reload }) {
  const time = useNow();
  const names = useNames([...new Set(found.items.map((n) => n.driver_id).filter(Boolean))]);
  const [asked, setAsked] = useState(null);
  const [outcome, setOutcome] = useState(null);
  const dead = state.status === "DEAD";
  const again = dead && may("dispatcher") ? found.items.filter(useful) : [];
  const closed = (result) => {
    setAsked(null);
    if (result) setOutcome(result);
    if (result) reload();
  };
  return html`
    <${Outcome} outcome=${outcome} />
    ${again.length > 1 && html`<div><button onClick=${() => setAsked(again)}>Send all ${again.length} shown again</button></div>`}
    ${asked && html`<${Redrive} items=${asked} onClose=${closed} />`}
    ${found.items.length === 0 ? html`<p class="soft">${state.none}</p>` : html`
    <div class="scroll card flush" tabindex="0" role="region" aria-label=${`${state.title}: pushes`}>
      <table class="dense">
        <thead><tr><th scope="col">What</th><th scope="col">Dispatch</th><th scope="col">To</th><th scope="col" class="number">Attempts</th>
          <th scope="col">What came of it</th><th scope="col" class="number">Age</th><${LastHeading} status=${state.status} />
          ${dead && may("dispatcher") && html`<th scope="col"><span class="hidden">Send again</span></th>`}</tr></thead>
        <tbody>${found.items.map((n) => html`<tr key=${n.id}>
          <td>${n.type.replace("dispatch.", "")}${n.silent && html` <span class="soft" title="For the app and not for its user">silent</span>`}</td>
          <td class="short"><a href=${"#/dispatches/" + n.dispatch_id} title=${n.dispatch_id}>…${n.dispatch_id.slice(-8)}</a> <span class="soft">round ${n.round}</span></td>
          <td class="short">${n.driver_id ? html`<span title=${n.driver_id}>${names(n.driver_id)}</span>` : html`<span class="soft">topic</span> ${n.topic}`}</td>
          <td class="number">${n.attempts}</td>
          <td>${came(n)}</td>
          <td class="number" title=${whenExactly(n.created_at)}>${roughly(time - Date.parse(n.created_at))}</td>
          <${Last} n=${n} time=${time} />
          ${dead && may("dispatcher") && html`<td class="act">${useful(n) && html`<button aria-label=${`Send again: ${n.type} to ${n.driver_id ? names(n.driver_id) : n.topic}`}
            onClick=${() => setAsked([n])}>Send again</button>`}</td>`}
        </tr>`)}</tbody>
      </table>
    </div>`}`;
}

const came = ({ result, reason }) => html`${result ?? "–"}${reason && html` <span class="soft">${reason}</span>`}`;

const headings = { PENDING: "Next try", DEAD: "Of use", DROPPED: "Of use", SENT: "Sent" };

const LastHeading = ({ status }) => html`<th scope="col">${headings[status]}</th>`;

/** The column that differs from state to state. */
function Last({ n, time }) {
  if (n.status === "PENDING") {
    const wait = n.next_at ? Date.parse(n.next_at) - time : 0;
    return html`<td class="short" title=${whenExactly(n.next_at)}>${wait > 0 ? `in ${roughly(wait)}` : "due"}</td>`;
  }
  if (n.status === "SENT") {
    return html`<td class="short" title=${whenExactly(n.sent_at)}>${n.delay_ms === null ? "–" : `after ${roughly(n.delay_ms)}`}</td>`;
  }
  const still = Date.parse(n.expires_at) - time;
  return html`<td class="short" title=${whenExactly(n.expires_at)}>${still > 0 ? `for ${roughly(still)} more` : html`<span class="soft">no more</span>`}</td>`;
}
