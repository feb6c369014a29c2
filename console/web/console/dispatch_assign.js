import { html, useState } from "../assets/preact.js";
import { get } from "../assets/api.js";
import { Trouble, useLoaded } from "../assets/ui.js";
import { Change } from "./dispatch_change.js";
import { suspended } from "./drivers_state.js";
import { useSettled } from "./query.js";

const most = 20;

/** Assigns a dispatch to a driver, whom the user finds by name. */
export function Assign(props) {
  const { dispatch } = props;
  const [q, setQ] = useState("");
  const [driver, setDriver] = useState(null);
  const wanted = useSettled(q.trim());
  const { data, error, loading } = useLoaded((signal) => {
    // Without a search text, the list has the drivers of that region with such a vehicle.
    const query = wanted ? { q: wanted } : { region: dispatch.region, vehicle_class: dispatch.vehicle_class };
    return get(`/v1/admin/drivers?${new URLSearchParams({ ...query, limit: most })}`, { signal });
  }, [wanted]);
  const found = data?.items ?? [];
  const choices = driver && !found.some((d) => d.id === driver.id) ? [driver, ...found] : found;
  return html`<${Change} ...${props} title="Give it to a driver" ready=${driver !== null} body=${() => ({ driver_id: driver.id })}
      change=${{ word: driver ? `Assign to ${driver.name}` : "Assign", past: driver ? `Assigned to ${driver.name}` : "", path: "/assign", event: "dispatch.accepted" }}>
    <p>The driver has it at once, on duty or not: ask them first.</p>
    <label class="stack">Find a driver by name, phone or id
      <input type="search" value=${q} onInput=${(e) => setQ(e.target.value)} autocomplete="off" /></label>
    <${Trouble} error=${error} reading />
    <fieldset class="choices"><legend>${wanted ? "Found" : `Who works in ${dispatch.region} with ${dispatch.vehicle_class}`}</legend>
      ${choices.map((d) => html`<label key=${d.id} class="choice">
        <input type="radio" name="driver" value=${d.id} checked=${driver?.id === d.id} onChange=${() => setDriver(d)} />
        <span><strong>${d.name}</strong> <span class="soft">${d.phone}</span><br /><span class="soft">${about(d)}</span></span></label>`)}
      <p role="status" class="soft">${data && found.length === 0 ? "No driver found." : data?.next_cursor ? `The first ${most}: type more of the name.` : loading ? "Searching …" : ""}</p>
    </fieldset>
  <//>`;
}

function about(d) {
  const parts = [d.vehicle_class, d.regions.join(", "), d.on_duty ? "on duty" : "off duty"];
  if (d.working_height_m !== null) parts.splice(1, 0, `${d.working_height_m} m`);
  if (suspended(d.suspended_until)) parts.push("suspended");
  return parts.join(" · ");
}
