import { html, useState } from "../assets/preact.js";
import { send } from "../assets/api.js";
import { Ask, Trouble, when } from "../assets/ui.js";
import { More, usePages } from "./paging.js";

/** A driver's devices, and whether pushes reach them. */
export function Devices({ path, may }) {
  const pages = usePages(path + "/devices", {}, 30_000);
  const [removed, remove] = useState(null);
  return html`<section class="card stack"><h2>Devices</h2>
    <${Trouble} error=${pages.error} reading />
    ${pages.items.length > 0 && html`<div class="scroll" tabindex="0" role="region" aria-label="Devices"><table>
      <thead><tr><th scope="col">Platform</th><th scope="col">Version</th><th scope="col">Language</th><th scope="col">Last seen</th>
        <th scope="col">Installation</th><th scope="col">Push token</th>
        ${may("admin") && html`<th scope="col"><span class="hidden">Remove</span></th>`}</tr></thead>
      <tbody>${pages.items.map((d) => html`<tr key=${d.installation_id}>
        <th scope="row">${d.platform}</th><td>${d.app_version ?? "–"}</td><td>${d.locale ?? "–"}</td><td class="nowrap">${when(d.updated_at)}</td>
        <td><code>${d.installation_id}</code></td><td><${Token} device=${d} /></td>
        ${may("admin") && html`<td><button class="danger" onClick=${() => remove(d)}>Remove</button></td>`}
      </tr>`)}</tbody>
    </table></div>`}
    <${More} pages=${pages} one="device" many="devices" />
    ${removed && html`<${Remove} device=${removed} path=${path} onClose=${() => { remove(null); pages.reload(); }} />`}
  </section>`;
}

function Token({ device }) {
  if (device.quarantined_at) return html`<span class="badge bad">dead since ${when(device.quarantined_at)}</span>`;
  if (device.suspected_at) return html`<span class="badge">called dead, tried again since ${when(device.suspected_at)}</span>`;
  return "good";
}

function Remove({ device, path, onClose }) {
  const act = () => send("DELETE", `${path}/devices/${encodeURIComponent(device.installation_id)}`);
  return html`<${Ask} title="Remove this device?" word="Remove" danger act=${act} onClose=${onClose}>
    <p>Nothing more is pushed to <code>${device.installation_id}</code> until its app starts again, which registers it anew.</p>
  <//>`;
}
