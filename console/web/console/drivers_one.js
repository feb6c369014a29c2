import { html, useState } from "../assets/preact.js";
import { get } from "../assets/api.js";
import { Trouble, useTitle, when } from "../assets/ui.js";
import { usePolled } from "./poll.js";
import { EditDriver } from "./drivers_edit.js";
import { Devices } from "./drivers_devices.js";
import { Erase } from "./drivers_erase.js";
import { Reinstate, Suspend } from "./drivers_suspend.js";
import { Signals } from "./drivers_signals.js";
import { Duty, Suspension, suspended } from "./drivers_state.js";
import { EndTokens, IssueToken } from "./drivers_token.js";

const again = 10_000; // ms: the stream does not announce drivers' changes

const dialogs = { edit: EditDriver, suspend: Suspend, reinstate: Reinstate, token: IssueToken, tokens: EndTokens, erase: Erase };

/** The page of one driver: the profile, the devices, the signals, and an admin's actions. */
export function OneDriver({ id, may }) {
  const path = `/v1/admin/drivers/${encodeURIComponent(id)}`;
  const { data: driver, error, reload } = usePolled((signal) => get(path, { signal }), again, [path]);
  const [asked, ask] = useState(null);
  const Asked = dialogs[asked];
  useTitle(driver?.name);
  return html`<p class="back"><a href="#/drivers">All drivers</a></p>
    <div class="head"><h1><bdi>${driver?.name ?? "Driver"}</bdi></h1>
      ${driver && (driver.erased_at ? html`<span class="badge soft">erased ${when(driver.erased_at)}</span>`
        : html`<${Duty} on=${driver.on_duty} /><${Suspension} until=${driver.suspended_until} />`)}</div>
    <${Trouble} error=${error} reading />
    ${driver && html`<div class="stack">
      ${may("admin") && html`<${Actions} driver=${driver} path=${path} ask=${ask} />`}
      <${Facts} driver=${driver} />
      <${Devices} path=${path} may=${may} />
      ${may("admin") && html`<${Signals} path=${path} />`}
      ${Asked && html`<${Asked} driver=${driver} path=${path} onClose=${() => { ask(null); reload(); }} />`}
    </div>`}`;
}

function Actions({ driver, path, ask }) {
  return html`<div class="row" role="group" aria-label="What to do">
    ${!driver.erased_at && html`<${Changes} driver=${driver} ask=${ask} />`}
    <a class="button" href=${path + "/export"} download>Export all data</a>
    <a href=${"#/audit?target=" + driver.id}>What admins changed</a>
  </div>`;
}

function Changes({ driver, ask }) {
  return html`<button onClick=${() => ask("edit")}>Edit</button>
    ${suspended(driver.suspended_until)
      ? html`<button onClick=${() => ask("reinstate")}>Reinstate</button>`
      : html`<button class="danger" onClick=${() => ask("suspend")}>Suspend</button>`}
    <button onClick=${() => ask("token")}>Issue a token</button>
    <button class="danger" onClick=${() => ask("tokens")}>End all tokens</button>
    <button class="danger" onClick=${() => ask("erase")}>Erase</button>`;
}

function Facts({ driver }) {
  const facts = [
    ["Phone", driver.phone ?? "–"], ["Regions", driver.regions.join(", ") || "–"], ["Vehicle class", driver.vehicle_class || "–"],
    ["Working height", driver.working_height_m === null ? "–" : `${driver.working_height_m} m`], ["Language", driver.locale ?? "–"],
    ["Firebase UID", driver.firebase_uid ?? "–"], ["ID", driver.id], ["Since", when(driver.created_at)], ["Last change", when(driver.updated_at)],
  ];
  return html`<section class="card"><h2>Driver</h2>
    <dl class="facts">${facts.map(([name, value]) => html`<div key=${name}><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>
  </section>`;
}
