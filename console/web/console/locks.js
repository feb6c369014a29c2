import { html } from "../assets/preact.js";
import { list } from "../assets/api.js";
import { left, useNow } from "../assets/ui.js";
import { Freshness, usePolled } from "./poll.js";

const most = 1000;

// The purposes of the locks that no job's name explains.
const purposes = { jobs: "leads the jobs that run on the leader", relay: "sends the pushes of all instances" };

/** The locks, with their holders and the time left. */
export function Locks() {
  const polled = usePolled((signal) => list("/v1/admin/locks", most, { signal }), 2000, []);
  const time = useNow(250);
  return html`<div class="stack operations">
    <div class="row"><h1>Locks</h1><${Freshness} of=${polled} /></div>
    <p class="soft">The locks of the jobs and of the leader. A fence is a number that grows with every new holder: what a
      former holder still writes with a lower one is refused.</p>
    ${polled.data && (polled.data.items.length === 0 ? html`<p class="card">Nothing is held.</p>`
      : html`<${Held} locks=${polled.data.items} passed=${time - polled.at} />`)}
    ${polled.data?.more && html`<p class="soft">The first ${most} are shown. There are more.</p>`}
  </div>`;
}

function Held({ locks, passed }) {
  return html`<div class="scroll card flush" tabindex="0" role="region" aria-label="Locks that are held">
    <table class="dense">
      <thead><tr><th scope="col">Lock</th><th scope="col">Holder</th><th scope="col" class="number">Fence</th><th scope="col" class="number">Ends in</th></tr></thead>
      <tbody>${locks.map((l) => html`<tr key=${l.name}>
        <th scope="row">${l.name}<small>${purposes[l.name] ?? html`<a href="#/jobs">a job</a>`}</small></th>
        <td>${l.holder}</td>
        <td class="number">${l.fence}</td>
        <td class="number short"><${Ends} lock=${l} passed=${passed} /></td>
      </tr>`)}</tbody>
    </table>
  </div>`;
}

/** Shows a lock's end. A holder renews its lock before the end, so the end may move. */
function Ends({ lock, passed }) {
  if (lock.lease_left_ms === null) return html`<span>with its holder's session</span>`;
  const still = lock.lease_left_ms - passed;
  return still > 0 ? html`${left(still)}<small>unless renewed</small>` : html`<span class="soft">now</span>`;
}
