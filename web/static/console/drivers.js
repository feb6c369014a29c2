// The drivers, and the page of each.
import { html, useState } from "../assets/preact.js";
import { get, send } from "../assets/api.js";
import { useLanguage } from "../assets/language.js";
import { useLoaded } from "../assets/ui.js";
import { Ask, Trouble, useTitle } from "./dialogs.js";
import { EditDriver, EndTokens, Erase, IssueToken, NewDriver, Reinstate, Suspend } from "./drivers_change.js";
import { Suggestions, useKnown } from "./forms.js";
import { useQuery } from "./kept.js";
import { Duty, Suspension, shown, suspended } from "./names.js";
import { Export, More, usePages, usePolled } from "./reading.js";

/** The list of drivers; one driver at #/drivers/{id}; the form for a new driver at #/drivers/new. @param {PageProps} props */
export function Drivers({ id, session, may }) {
  return html`<div class="admin">${page(id, session, may)}</div>`;
}

/** @param {string} id @param {Schemas["Session"]} session @param {May} may */
function page(id, session, may) {
  if (id === "") return html`<${DriverList} may=${may} />`;
  if (id === "new" && may("admin")) return html`<${NewDriver} session=${session} />`;
  return html`<${OneDriver} id=${id} may=${may} />`;
}

const filters = ["q", "region", "vehicle_class", "on_duty", "suspended"];

/** @param {{may: May}} props */
function DriverList({ may }) {
  const { t } = useLanguage();
  const { drivers, fields } = t;
  const [query, change] = useQuery(filters);
  const pages = usePages("/v1/admin/drivers", query);
  return html`<div class="head"><h1>${t.page.drivers}</h1>${may("admin") && html`<a class="button" href="#/drivers/new">${drivers.newDriver}</a>`}
    <${Export} list="drivers" query=${query} /></div>
    <form class="filters" role="search" aria-label=${t.page.drivers} onSubmit=${(e) => e.preventDefault()}>
      <label>${t.search} <input type="search" value=${query.q} placeholder=${drivers.searchHint} onInput=${(e) => change({ q: e.target.value })} /></label>
      <label>${t.region} <input value=${query.region} list="regions" onInput=${(e) => change({ region: e.target.value })} /></label>
      <label>${fields.vehicle_class} <input value=${query.vehicle_class} list="classes" onInput=${(e) => change({ vehicle_class: e.target.value })} /></label>
      <${YesNo} label=${drivers.duty} value=${query.on_duty} yes=${drivers.on} no=${drivers.off} onInput=${(on_duty) => change({ on_duty })} />
      <${YesNo} label=${drivers.suspension} value=${query.suspended} yes=${drivers.suspended} no=${drivers.notSuspended} onInput=${(suspended) => change({ suspended })} />
    </form>
    <${Suggestions} known=${useKnown()} />
    <${Trouble} error=${pages.error} reading />
    <div class="scroll card" tabindex="0" role="region" aria-label=${t.page.drivers}><table>
      <thead><tr>${[fields.name, drivers.duty, fields.regions, drivers.vehicle, fields.phone, drivers.suspension].map((title) => html`
        <th key=${title} scope="col">${title}</th>`)}</tr></thead>
      <tbody>${pages.items.map((/** @type {Schemas["AdminDriver"]} */ d) => html`<tr key=${d.id}>
        <th scope="row"><a href=${"#/drivers/" + d.id}><bdi>${shown(d.name, d.id)}</bdi></a></th>
        <td><${Duty} on=${d.on_duty} /></td>
        <td>${t.list(d.regions)}</td>
        <td>${d.vehicle_class}${d.working_height_m !== null && html` <span class="soft">${t.meters(d.working_height_m)}</span>`}</td>
        <td class="nowrap">${d.phone}</td>
        <td><${Suspension} until=${d.suspended_until} /></td>
      </tr>`)}</tbody>
    </table></div>
    <${More} pages=${pages} of="drivers" />`;
}

/** @param {{label: string, value: string, yes: string, no: string, onInput: (value: string) => void}} props */
function YesNo({ label, value, yes, no, onInput }) {
  const { t } = useLanguage();
  return html`<label>${label} <select value=${value} onChange=${(e) => onInput(e.target.value)}>
    <option value="">${t.drivers.any}</option><option value="true">${yes}</option><option value="false">${no}</option></select></label>`;
}

const again = 10_000; // ms: the stream does not announce drivers' changes

const dialogs = { edit: EditDriver, suspend: Suspend, reinstate: Reinstate, token: IssueToken, tokens: EndTokens, erase: Erase };

/** The page of one driver: the profile, the devices, the signals, and an admin's actions. @param {{id: string, may: May}} props */
function OneDriver({ id, may }) {
  const { t, when } = useLanguage();
  const path = `/v1/admin/drivers/${encodeURIComponent(id)}`;
  const { data: driver, error, reload } = usePolled(/** @returns {Promise<Schemas["AdminDriver"]>} */ (signal) => get(path, { signal }), again, [path]);
  const [asked, ask] = useState(/** @type {keyof typeof dialogs|null} */ (null));
  const Asked = asked && dialogs[asked];
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

/** @param {{driver: Schemas["AdminDriver"], path: string, ask: (what: keyof typeof dialogs) => void}} props */
function Actions({ driver, path, ask }) {
  const { t: { drivers } } = useLanguage();
  return html`<div class="row" role="group" aria-label=${drivers.whatToDo}>
    ${!driver.erased_at && html`<${Changes} driver=${driver} ask=${ask} />`}
    <a class="button" href=${path + "/export"} download>${drivers.export}</a>
    <a href=${"#/audit?target=" + driver.id}>${drivers.changes}</a>
  </div>`;
}

/** @param {{driver: Schemas["AdminDriver"], ask: (what: keyof typeof dialogs) => void}} props */
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

/** @param {{driver: Schemas["AdminDriver"]}} props */
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

/** A driver's devices, and whether pushes reach them. @param {{path: string, may: May}} props */
export function Devices({ path, may }) {
  const { t: { devices }, when } = useLanguage();
  const pages = usePages(path + "/devices", {}, 30_000);
  const [removed, remove] = useState(/** @type {Schemas["AdminDevice"]|null} */ (null));
  return html`<section class="card stack"><h2>${devices.title}</h2>
    <${Trouble} error=${pages.error} reading />
    ${pages.items.length > 0 && html`<div class="scroll" tabindex="0" role="region" aria-label=${devices.title}><table>
      <thead><tr>${[devices.platform, devices.version, devices.language, devices.lastSeen, devices.installation,
        devices.push].map((title) => html`<th key=${title} scope="col">${title}</th>`)}
        ${may("admin") && html`<th scope="col"><span class="hidden">${devices.remove}</span></th>`}</tr></thead>
      <tbody>${pages.items.map((/** @type {Schemas["AdminDevice"]} */ d) => html`<tr key=${d.installation_id}>
        <th scope="row">${d.platform}</th><td>${d.app_version ?? "–"}</td><td>${d.locale ?? "–"}</td><td class="nowrap">${when(d.updated_at)}</td>
        <td><code>${d.installation_id}</code></td><td><${Token} device=${d} /></td>
        ${may("admin") && html`<td><button class="danger" onClick=${() => remove(d)}>${devices.remove}</button></td>`}
      </tr>`)}</tbody>
    </table></div>`}
    <${More} pages=${pages} of="devices" />
    ${removed && html`<${Remove} device=${removed} path=${path} onClose=${() => { remove(null); pages.reload(); }} />`}
  </section>`;
}

/** @param {{device: Schemas["AdminDevice"]}} props */
function Token({ device }) {
  const { t: { devices }, when } = useLanguage();
  if (device.quarantined_at) return html`<span class="badge bad">${devices.dead(when(device.quarantined_at))}</span>`;
  if (device.suspected_at) return html`<span class="badge">${devices.suspected(when(device.suspected_at))}</span>`;
  return devices.good;
}

/** @param {{device: Schemas["AdminDevice"], path: string, onClose: () => void}} props */
function Remove({ device, path, onClose }) {
  const { t: { devices } } = useLanguage();
  const act = () => send("DELETE", `${path}/devices/${encodeURIComponent(device.installation_id)}`);
  return html`<${Ask} title=${devices.removeTitle} word=${devices.remove} danger act=${act} onClose=${onClose}>
    <p>${devices.removeMore(html`<code>${device.installation_id}</code>`)}</p>
  <//>`;
}

/** A driver's tapping behavior, for human judgment. @param {{path: string}} props */
export function Signals({ path }) {
  const { t: { signals }, number, whenExactly } = useLanguage();
  const ms = (/** @type {number|null} */ value) => (value === null ? "–" : signals.ms(number(Math.round(value))));
  const percentOfWon = (/** @type {number|null} */ rate) => (rate === null ? "" : signals.ofWon(Math.round(rate * 100)));
  const { data, error } = useLoaded(/** @returns {Promise<Schemas["Signals"]>} */ (signal) => get(path + "/signals", { signal }), [path]);
  const facts = data && [
    [signals.taps, data.taps], [signals.won, data.wins], [signals.back, data.withdrawn + percentOfWon(data.withdraw_rate)],
    [signals.fastest, ms(data.fastest_reaction_ms)], [signals.median, ms(data.median_reaction_ms)], [signals.under, data.under_300_ms],
    [signals.backDay, data.withdrawn_24h], [signals.hopeless, data.hopeless_taps_24h], [signals.since, whenExactly(data.taps_since)],
  ];
  return html`<section class="card"><h2>${signals.title}</h2>
    <p class="soft">${signals.more}</p>
    <${Trouble} error=${error} reading />
    ${facts && html`<dl class="facts">${facts.map(([name, value]) => html`<div key=${name}><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>`}
  </section>`;
}
