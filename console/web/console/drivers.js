import { html } from "../assets/preact.js";
import { DriverList } from "./drivers_list.js";
import { NewDriver } from "./drivers_new.js";
import { OneDriver } from "./drivers_one.js";

/** The list of drivers; one driver at #/drivers/{id}; the form for a new driver at #/drivers/new. */
export function Drivers({ id, session, may }) {
  return html`<div class="admin">${page(id, session, may)}</div>`;
}

function page(id, session, may) {
  if (id === "") return html`<${DriverList} may=${may} />`;
  if (id === "new" && may("admin")) return html`<${NewDriver} session=${session} />`;
  return html`<${OneDriver} id=${id} may=${may} />`;
}
