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

/** Returns the regions and classes in use, undefined until they are read. @param {any} [driver] the driver that is edited */
export function useKnown(driver) {
  const { data } = useLoaded(load, []);
  return data && driver ? { regions: [...data.regions, ...driver.regions], classes: [...data.classes, driver.vehicle_class] } : data;
}

/**
 * Says which of the typed words are not in use yet, as most of those are misspelt.
 * @param {string[]|undefined} known
 * @param {string[]} typed
 */
export function newTo(known, typed, t) {
  const fresh = typed.map((word) => word.trim()).filter((word) => word && known?.includes(word) === false);
  return fresh.length > 0 && t.notInUse(t.list(fresh));
}

/** The lists that inputs name in `list`. Every text can be typed nevertheless. @param {{known: ReturnType<typeof useKnown>}} props */
export function Suggestions({ known }) {
  const options = (words = []) => sorted(words).map((w) => html`<option key=${w} value=${w} />`);
  return html`<datalist id="regions">${options(known?.regions)}</datalist>
    <datalist id="classes">${options(known?.classes)}</datalist>`;
}
