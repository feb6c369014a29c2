import { html } from "../assets/preact.js";
import { useLanguage } from "../assets/language.js";
import { Trouble } from "../assets/ui.js";
import { Export } from "./export.js";
import { shown } from "./names.js";
import { More, usePages } from "./paging.js";
import { useQuery } from "./query.js";
import { Suggestions, useKnown } from "./suggestions.js";
import { Duty, Suspension } from "./drivers_state.js";

const filters = ["q", "region", "vehicle_class", "on_duty", "suspended"];

export function DriverList({ may }) {
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
      <tbody>${pages.items.map((d) => html`<tr key=${d.id}>
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

function YesNo({ label, value, yes, no, onInput }) {
  const { t } = useLanguage();
  return html`<label>${label} <select value=${value} onChange=${(e) => onInput(e.target.value)}>
    <option value="">${t.drivers.any}</option><option value="true">${yes}</option><option value="false">${no}</option></select></label>`;
}
