import { html } from "../assets/preact.js";
import { WebhookList } from "./webhooks_list.js";
import { OneWebhook } from "./webhooks_one.js";

/** The webhooks; one webhook with its deliveries at #/webhooks/{id}. */
export function Webhooks({ id, session }) {
  return html`<div class="admin operations">${id === "" ? html`<${WebhookList} session=${session} />` : html`<${OneWebhook} id=${id} />`}</div>`;
}
