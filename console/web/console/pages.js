import { html } from "../assets/preact.js";
import { Unreachable } from "../assets/api.js";
import { useLanguage } from "../assets/language.js";
import { Trouble, useLoaded } from "../assets/ui.js";
import { Board } from "./board.js";
import { Create } from "./create.js";
import { Dispatch } from "./dispatch.js";
import { Jobs } from "./jobs.js";
import { Keys } from "./keys.js";
import { Locks } from "./locks.js";
import { Notifications } from "./notifications.js";
import { Audit } from "./audit.js";

/**
 * A page whose modules are loaded when it is shown, as the board, which is shown first, has to be small.
 * @param {() => Promise<any>} load returns its component
 */
const later = (load) => function Later(props) {
  const { t } = useLanguage();
  const { data, error } = useLoaded(() => load().then((component) => ({ component }), (err) => { throw new Unreachable(err); }), []);
  if (!data) return html`<p class="soft" role="status">${!error && t.reading}</p><${Trouble} error=${error} reading />`;
  return html`<${data.component} ...${props} />`;
};

/**
 * The pages, in the order of the navigation, which names them by the texts' page. #/path/id shows a page; its component gets id ("" without), session and
 * may(role). role is the lowest role that may see it.
 */
export const pages = [
  { path: "board", role: "viewer", component: Board },
  { path: "new", role: "dispatcher", component: Create },
  { path: "dispatches", role: "viewer", component: Dispatch, unlisted: true },
  { path: "drivers", role: "viewer", component: later(() => import("./drivers.js").then((m) => m.Drivers)) },
  { path: "notifications", role: "viewer", component: Notifications },
  { path: "jobs", role: "viewer", component: Jobs },
  { path: "locks", role: "viewer", component: Locks },
  { path: "supply", role: "viewer", component: later(() => import("./supply.js").then((m) => m.Supply)) },
  { path: "keys", role: "admin", component: Keys },
  { path: "webhooks", role: "admin", component: later(() => import("./webhooks.js").then((m) => m.Webhooks)) },
  { path: "audit", role: "admin", component: Audit },
];

/** Returns the page of an address; refused: the address names a page that does not exist or is not allowed. */
export function pageOf(hash, allowed) {
  const [, path = "", rest = ""] = /^#\/([^/?]*)\/?([^?]*)/.exec(hash) ?? [];
  const page = allowed.find((p) => p.path === path);
  return page ? { page, rest: plain(rest), refused: false } : { page: allowed[0], rest: "", refused: path !== "" };
}

function plain(encoded) {
  try {
    return decodeURIComponent(encoded);
  } catch {
    return encoded; // the address is malformed: no such id exists, and the page shows that
  }
}
