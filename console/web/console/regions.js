import { html } from "../assets/preact.js";
import { useLanguage } from "../assets/language.js";
import { Field } from "./fields.js";
import { newTo } from "./suggestions.js";

// What people type and paste between the items of a list. A point or a slash may be a part of a name: 종로·중구.
const separators = /[,，、;；|\r\n\t]+/;

/** Returns the regions with those of a typed or pasted text, each once. @param {string[]} regions @param {string} text */
export const withTyped = (regions, text) => [...new Set([...regions, ...text.split(separators).map((r) => r.trim()).filter(Boolean)])];

/**
 * The regions of a driver: each is an item of its own, which is chosen, typed, or pasted in a list.
 * @param {{form: {regions: string[], region: string}, wrong?: string, known?: string[], change: (changes: object) => void}} props
 */
export function Regions({ form: { regions, region }, wrong, known, change }) {
  const { t: { fields, drivers }, t } = useLanguage();
  const add = (text) => change({ regions: withTyped(regions, text), region: "" });
  const remove = (name) => change({ regions: regions.filter((r) => r !== name) });
  const composing = (e) => e.isComposing || e.keyCode === 229; // Safari says that it is over before the key that ends it
  const chosen = (text, e) => known?.includes(text) && (!e.inputType || e.inputType === "insertReplacementText"); // from the list
  const more = {
    // What is typed last stays typed until it is sent: an item that appears moves the button that is being clicked.
    onInput: (text, e) => ((separators.test(text) && !composing(e)) || chosen(text, e) ? add(text) : change({ region: text })),
    onKeyDown(e) {
      if (e.key !== "Enter" || composing(e) || region.trim() === "") return;
      e.preventDefault();
      add(region);
    },
    onPaste(e) { // an input would join the lines of a pasted list
      const text = e.clipboardData.getData("text/plain");
      if (!separators.test(text)) return;
      e.preventDefault();
      add(`${region}${text}`);
    },
  };
  const hint = html`${drivers.regionsHint} ${newTo(known, withTyped(regions, region), t)}`;
  return html`<div class="stack">
    <${Field} name="regions" label=${fields.regions} value=${region} wrong=${wrong} hint=${hint} list="regions"
      required=${regions.length === 0} ...${more} />
    ${regions.length > 0 && html`<ul class="chips row">${regions.map((name) => html`<li key=${name} class="badge"><bdi>${name}</bdi>
      <button type="button" class="quiet" aria-label=${drivers.removeRegion(name)} onClick=${() => remove(name)}>×</button>
    </li>`)}</ul>`}
  </div>`;
}
