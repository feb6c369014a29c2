import { html } from "../assets/preact.js";
import { get } from "../assets/api.js";
import { useLanguage } from "../assets/language.js";
import { named } from "../assets/words.js";
import { left, useNow } from "../assets/ui.js";
import { Freshness, usePolled } from "./reading.js";

/** The locks, with their holders and the time left. */
export function Locks() {
  const { t } = useLanguage();
  const { locks } = t;
  const polled = usePolled((signal) => get("/v1/admin/locks", { signal }), 2000, []);
  const time = useNow(250);
  return html`<div class="stack operations">
    <div class="row"><h1>${t.page.locks}</h1><${Freshness} of=${polled} /></div>
    <p class="soft">${locks.more}</p>
    ${polled.data && (polled.data.items.length === 0 ? html`<p class="card">${locks.nothing}</p>`
      : html`<${Held} locks=${polled.data.items} passed=${time - polled.at} />`)}
  </div>`;
}

/** @param {{locks: Schemas["Lock"][], passed: number}} props */
function Held({ locks, passed }) {
  const { t: { locks: words } } = useLanguage();
  return html`<div class="scroll card flush" tabindex="0" role="region" aria-label=${words.table}>
    <table class="dense">
      <thead><tr><th scope="col">${words.lock}</th><th scope="col">${words.holder}</th><th scope="col" class="number">${words.fence}</th><th scope="col" class="number">${words.ends}</th></tr></thead>
      <tbody>${locks.map((l) => html`<tr key=${l.name}>
        <th scope="row">${l.name}<small>${named(words.purposes, l.name) ?? html`<a href="#/jobs">${words.job}</a>`}</small></th>
        <td><bdi>${l.holder}</bdi></td>
        <td class="number">${l.fence}</td>
        <td class="number short"><${Ends} lock=${l} passed=${passed} /></td>
      </tr>`)}</tbody>
    </table>
  </div>`;
}

/** Shows a lock's end. A holder renews its lock before the end, so the end may move. @param {{lock: Schemas["Lock"], passed: number}} props */
function Ends({ lock, passed }) {
  const { t: { locks } } = useLanguage();
  if (lock.lease_left_ms === null) return html`<span>${locks.session}</span>`;
  const still = lock.lease_left_ms - passed;
  return still > 0 ? html`${left(still)}<small>${locks.renewed}</small>` : html`<span class="soft">${locks.now}</span>`;
}
