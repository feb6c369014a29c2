import { html } from "../assets/preact.js";
import { useLanguage } from "../assets/language.js";
import { useQuery } from "./query.js";

/**
 * The filters of the board. The address stores them: #/board?region=seoul&class=45m&q=gate.
 * @returns {[{region: string, vehicleClass: string, q: string}, (change: object) => void]}
 */
export function useFilters() {
  const [{ class: vehicleClass, ...others }, change] = useQuery(["region", "class", "q"]);
  return [{ ...others, vehicleClass }, change];
}

function Choice({ label, all, value, options, onChange }) {
  const sorted = [...new Set([...options, ...(value ? [value] : [])])].sort();
  return html`<label>${label} <select value=${value} onChange=${(e) => onChange(e.target.value)}>
    <option value="">${all}</option>
    ${sorted.map((o) => html`<option key=${o} value=${o}>${o}</option>`)}
  </select></label>`;
}

export function Filters({ filters, change, regions, classes }) {
  const { t } = useLanguage();
  return html`<form class="row filters" role="search" onSubmit=${(e) => e.preventDefault()}>
    <${Choice} label=${t.region} all=${t.board.allRegions} value=${filters.region} options=${regions} onChange=${(region) => change({ region })} />
    <${Choice} label=${t.board.vehicle} all=${t.board.allClasses} value=${filters.vehicleClass} options=${classes}
      onChange=${(c) => change({ class: c })} />
    <label>${t.search} <input type="search" value=${filters.q} maxlength="200" placeholder=${t.board.searchHint}
      title=${t.board.searchMore} onInput=${(e) => change({ q: e.target.value.trimStart() })} /></label>
    ${(filters.region || filters.vehicleClass || filters.q) && html`
      <button type="button" onClick=${() => change({ region: "", class: "", q: "" })}>${t.showAll}</button>`}
  </form>`;
}
