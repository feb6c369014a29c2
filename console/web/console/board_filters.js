import { html, useEffect, useState } from "../assets/preact.js";

const named = { region: "region", vehicleClass: "class", q: "q" }; // and how they are called in the address

function fromAddress() {
  const at = new URLSearchParams(location.hash.split("?")[1] ?? "");
  return Object.fromEntries(Object.entries(named).map(([k, name]) => [k, at.get(name) ?? ""]));
}

/**
 * The filters, which are kept in the address: #/board?region=seoul&class=45m&q=gate.
 * @returns {[{region: string, vehicleClass: string, q: string}, (change: object) => void]}
 */
export function useFilters() {
  const [filters, set] = useState(fromAddress);
  useEffect(() => {
    const changed = () => set(fromAddress());
    addEventListener("hashchange", changed);
    return () => removeEventListener("hashchange", changed);
  }, []);
  const change = (what) => {
    const next = { ...fromAddress(), ...what };
    const query = new URLSearchParams(Object.entries(named).map(([k, name]) => [name, next[k]]).filter(([, v]) => v));
    history.replaceState(null, "", "#/board" + (query.size > 0 ? "?" + query : ""));
    set(next);
  };
  return [filters, change];
}

function Choice({ label, all, value, options, onChange }) {
  const sorted = [...new Set([...options, ...(value ? [value] : [])])].sort();
  return html`<label>${label} <select value=${value} onChange=${(e) => onChange(e.target.value)}>
    <option value="">${all}</option>
    ${sorted.map((o) => html`<option key=${o} value=${o}>${o}</option>`)}
  </select></label>`;
}

/** The form that narrows the board. */
export function Filters({ filters, change, regions, classes }) {
  return html`<form class="row filters" role="search" onSubmit=${(e) => e.preventDefault()}>
    <${Choice} label="Region" all="All regions" value=${filters.region} options=${regions} onChange=${(region) => change({ region })} />
    <${Choice} label="Vehicle" all="All classes" value=${filters.vehicleClass} options=${classes}
      onChange=${(vehicleClass) => change({ vehicleClass })} />
    <label>Search <input type="search" value=${filters.q} maxlength="200" placeholder="Address, note or id"
      title="Text in the address, the note, the id or your own id" onInput=${(e) => change({ q: e.target.value.trimStart() })} /></label>
    ${(filters.region || filters.vehicleClass || filters.q) && html`
      <button type="button" onClick=${() => change({ region: "", vehicleClass: "", q: "" })}>Show all</button>`}
  </form>`;
}
