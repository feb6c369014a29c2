import { html, useState } from "../assets/preact.js";
import { get } from "../assets/api.js";
import { useLanguage } from "../assets/language.js";
import { Trouble, useLoaded } from "../assets/ui.js";
import { Change } from "./dispatch_change.js";
import { suspended } from "./drivers_state.js";
import { useSettled } from "./query.js";

const most = 20;

/** Assigns a dispatch to a driver, whom the user finds by name. */
export function Assign(props) {
  const { t } = useLanguage();
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
  return html`<${Change} ...${props} title=${t.assign.title} ready=${driver !== null} body=${() => ({ driver_id: driver.id })}
      change=${{ word: driver ? t.assign.to(driver.name) : t.assign.word, past: (words) => words.assign.past(driver?.name ?? ""), path: "/assign", event: "dispatch.accepted" }}>
    <p>${t.assign.more}</p>
    <label class="stack">${t.assign.find}
      <input type="search" value=${q} onInput=${(e) => setQ(e.target.value)} autocomplete="off" /></label>
    <${Trouble} error=${error} reading />
    <fieldset class="choices"><legend>${wanted ? t.assign.found : t.assign.here(dispatch.region, dispatch.vehicle_class)}</legend>
      ${choices.map((d) => html`<label key=${d.id} class="choice">
        <input type="radio" name="driver" value=${d.id} checked=${driver?.id === d.id} onChange=${() => setDriver(d)} />
        <span><strong>${d.name}</strong> <span class="soft">${d.phone}</span><br /><span class="soft">${about(d, t)}</span></span></label>`)}
      <p role="status" class="soft">${data?.next_cursor ? found.length === 0 ? t.assign.far : t.assign.first(most) : data && found.length === 0 ? t.assign.nobody : loading ? t.assign.searching : ""}</p>
    </fieldset>
  <//>`;
}

function about(d, t) {
  const parts = [d.vehicle_class, t.list(d.regions), d.on_duty ? t.drivers.onBadge : t.drivers.offBadge];
  if (d.working_height_m !== null) parts.splice(1, 0, t.meters(d.working_height_m));
  if (suspended(d.suspended_until)) parts.push(t.drivers.suspendedWord);
  return parts.join(" · ");
}
