import { get, list } from "../assets/api.js";
import { html } from "../assets/preact.js";
import { useLoaded } from "../assets/ui.js";

const sample = 200; // drivers: enough to know the regions and classes in use

const sorted = (words) => [...new Set(words)].sort();

async function load(signal) {
  const [board, drivers] = await Promise.all([get("/v1/admin/board", { signal }), list("/v1/admin/drivers", sample, { signal })]);
  return {
    regions: sorted([...board.regions.map((r) => r.region), ...drivers.items.flatMap((d) => d.regions)]),
    classes: sorted(drivers.items.map((d) => d.vehicle_class)),
  };
}

/** The lists that inputs name in `list`: the regions and classes in use. Without them every text can be typed. */
export function Suggestions() {
  const { data } = useLoaded(load, []);
  const options = (words = []) => words.map((w) => html`<option key=${w} value=${w} />`);
  return html`<datalist id="regions">${options(data?.regions)}</datalist>
    <datalist id="classes">${options(data?.classes)}</datalist>`;
}
