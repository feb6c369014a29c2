import { html } from "../assets/preact.js";
import { DriverList } from "./drivers_list.js";
import { NewDriver } from "./drivers_new.js";
import { OneDriver } from "./drivers_one.js";

/** The drivers; one of them at #/drivers/{id}; a new one at #/drivers/new. */
export function Drivers({ id, session, may }) {
  return html`<div class="admin">${page(id, session, may)}</div>`;
}

function page(id, session, may) {
  if (id === "") return html`<${DriverList} may=${may} />`;
  if (id === "new" && may("admin")) return html`<${NewDriver} session=${session} />`;
  return html`<${OneDriver} id=${id} may=${may} />`;
}
