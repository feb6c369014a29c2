import { html, useState } from "../assets/preact.js";
import { get } from "../assets/api.js";
import { useLanguage } from "../assets/language.js";
import { Trouble, useTitle } from "../assets/ui.js";
import { shown } from "./names.js";
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
  const { t, when } = useLanguage();
  const path = `/v1/admin/drivers/${encodeURIComponent(id)}`;
  const { data: driver, error, reload } = usePolled((signal) => get(path, { signal }), again, [path]);
  const [asked, ask] = useState(null);
  const Asked = dialogs[asked];
  useTitle(driver?.name);
  return html`<p class="back"><a href="#/drivers">${t.drivers.all}</a></p>
    <div class="head"><h1><bdi>${driver ? shown(driver.name, driver.id) : t.drivers.driver}</bdi></h1>
      ${driver && (driver.erased_at ? html`<span class="badge soft">${t.drivers.erasedAt(when(driver.erased_at))}</span>`
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
  const { t: { drivers } } = useLanguage();
  return html`<div class="row" role="group" aria-label=${drivers.whatToDo}>
    ${!driver.erased_at && html`<${Changes} driver=${driver} ask=${ask} />`}
    <a class="button" href=${path + "/export"} download>${drivers.export}</a>
    <a href=${"#/audit?target=" + driver.id}>${drivers.changes}</a>
  </div>`;
}

function Changes({ driver, ask }) {
  const { t: { drivers } } = useLanguage();
  return html`<button onClick=${() => ask("edit")}>${drivers.edit}</button>
    ${suspended(driver.suspended_until)
      ? html`<button onClick=${() => ask("reinstate")}>${drivers.reinstate}</button>`
      : html`<button class="danger" onClick=${() => ask("suspend")}>${drivers.suspend}</button>`}
    <button onClick=${() => ask("token")}>${drivers.issue}</button>
    <button class="danger" onClick=${() => ask("tokens")}>${drivers.endTokens}</button>
    <button class="danger" onClick=${() => ask("erase")}>${drivers.erase}</button>`;
}

function Facts({ driver }) {
  const { t, when } = useLanguage();
  const { drivers, fields } = t;
  const facts = [
    [fields.phone, driver.phone ?? "–"], [fields.regions, t.list(driver.regions) || "–"], [fields.vehicle_class, driver.vehicle_class || "–"],
    [fields.working_height_m, driver.working_height_m === null ? "–" : t.meters(driver.working_height_m)], [fields.locale, driver.locale ?? "–"],
    [fields.firebase_uid, driver.firebase_uid ?? "–"], [drivers.id, driver.id], [drivers.since, when(driver.created_at)],
    [drivers.lastChange, when(driver.updated_at)],
  ];
  return html`<section class="card"><h2>${drivers.driver}</h2>
    <dl class="facts">${facts.map(([name, value]) => html`<div key=${name}><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>
  </section>`;
}
