import { html, useState } from "../assets/preact.js";
import { send } from "../assets/api.js";
import { useLanguage } from "../assets/language.js";
import { Ask, Trouble } from "../assets/ui.js";
import { More, usePages } from "./paging.js";

/** A driver's devices, and whether pushes reach them. */
export function Devices({ path, may }) {
  const { t: { devices }, when } = useLanguage();
  const pages = usePages(path + "/devices", {}, 30_000);
  const [removed, remove] = useState(null);
  return html`<section class="card stack"><h2>${devices.title}</h2>
    <${Trouble} error=${pages.error} reading />
    ${pages.items.length > 0 && html`<div class="scroll" tabindex="0" role="region" aria-label=${devices.title}><table>
      <thead><tr>${[devices.platform, devices.version, devices.language, devices.lastSeen, devices.installation,
        devices.push].map((title) => html`<th key=${title} scope="col">${title}</th>`)}
        ${may("admin") && html`<th scope="col"><span class="hidden">${devices.remove}</span></th>`}</tr></thead>
      <tbody>${pages.items.map((d) => html`<tr key=${d.installation_id}>
        <th scope="row">${d.platform}</th><td>${d.app_version ?? "–"}</td><td>${d.locale ?? "–"}</td><td class="nowrap">${when(d.updated_at)}</td>
        <td><code>${d.installation_id}</code></td><td><${Token} device=${d} /></td>
        ${may("admin") && html`<td><button class="danger" onClick=${() => remove(d)}>${devices.remove}</button></td>`}
      </tr>`)}</tbody>
    </table></div>`}
    <${More} pages=${pages} of="devices" />
    ${removed && html`<${Remove} device=${removed} path=${path} onClose=${() => { remove(null); pages.reload(); }} />`}
  </section>`;
}

function Token({ device }) {
  const { t: { devices }, when } = useLanguage();
  if (device.quarantined_at) return html`<span class="badge bad">${devices.dead(when(device.quarantined_at))}</span>`;
  if (device.suspected_at) return html`<span class="badge">${devices.suspected(when(device.suspected_at))}</span>`;
  return devices.good;
}

function Remove({ device, path, onClose }) {
  const { t: { devices } } = useLanguage();
  const act = () => send("DELETE", `${path}/devices/${encodeURIComponent(device.installation_id)}`);
  return html`<${Ask} title=${devices.removeTitle} word=${devices.remove} danger act=${act} onClose=${onClose}>
    <p>${devices.removeMore(html`<code>${device.installation_id}</code>`)}</p>
  <//>`;
}
