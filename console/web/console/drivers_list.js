import { html } from "../assets/preact.js";
import { Trouble } from "../assets/ui.js";
import { More, usePages } from "./paging.js";
import { useQuery } from "./query.js";
import { Suggestions } from "./suggestions.js";
import { Duty, Suspension } from "./drivers_state.js";

const filters = ["q", "region", "vehicle_class", "on_duty", "suspended"];

export function DriverList({ may }) {
  const [query, change] = useQuery(filters);
  const pages = usePages("/v1/admin/drivers", query);
  return html`<div class="head"><h1>Drivers</h1>${may("admin") && html`<a class="button" href="#/drivers/new">New driver</a>`}</div>
    <form class="filters" role="search" aria-label="Drivers" onSubmit=${(e) => e.preventDefault()}>
      <label>Search <input type="search" value=${query.q} placeholder="Name, phone or ID" onInput=${(e) => change({ q: e.target.value })} /></label>
      <label>Region <input value=${query.region} list="regions" onInput=${(e) => change({ region: e.target.value })} /></label>
      <label>Vehicle class <input value=${query.vehicle_class} list="classes" onInput=${(e) => change({ vehicle_class: e.target.value })} /></label>
      <${YesNo} label="Duty" value=${query.on_duty} yes="On duty" no="Off duty" onInput=${(on_duty) => change({ on_duty })} />
      <${YesNo} label="Suspension" value=${query.suspended} yes="Suspended" no="Not suspended" onInput=${(suspended) => change({ suspended })} />
    </form>
    <${Suggestions} />
    <${Trouble} error=${pages.error} reading />
    <div class="scroll card" tabindex="0" role="region" aria-label="Drivers"><table>
      <thead><tr><th scope="col">Name</th><th scope="col">Duty</th><th scope="col">Regions</th><th scope="col">Vehicle</th>
        <th scope="col">Phone</th><th scope="col">Suspension</th></tr></thead>
      <tbody>${pages.items.map((d) => html`<tr key=${d.id}>
        <th scope="row"><a href=${"#/drivers/" + d.id}>${d.name}</a></th>
        <td><${Duty} on=${d.on_duty} /></td>
        <td>${d.regions.join(", ")}</td>
        <td>${d.vehicle_class}${d.working_height_m !== null && html` <span class="soft">${d.working_height_m} m</span>`}</td>
        <td class="nowrap">${d.phone}</td>
        <td><${Suspension} until=${d.suspended_until} /></td>
      </tr>`)}</tbody>
    </table></div>
    <${More} pages=${pages} one="driver" many="drivers" />`;
}

function YesNo({ label, value, yes, no, onInput }) {
  return html`<label>${label} <select value=${value} onChange=${(e) => onInput(e.target.value)}>
    <option value="">Any</option><option value="true">${yes}</option><option value="false">${no}</option></select></label>`;
}
