import { html } from "../assets/preact.js";
import { now } from "../assets/api.js";
import { when } from "../assets/ui.js";

const forever = Date.parse("9999-12-31T00:00:00Z"); // the API's time for a suspension without an end

export const suspended = (until) => until !== null && Date.parse(until) > now();

export function Duty({ on }) {
  return html`<span class=${"badge " + (on ? "good" : "soft")}>${on ? "on duty" : "off duty"}</span>`;
}

/** Shows the end of a driver's suspension, and nothing without a suspension. */
export function Suspension({ until }) {
  if (!suspended(until)) return null;
  return html`<span class="badge bad">suspended ${Date.parse(until) >= forever ? "until reinstated" : `until ${when(until)}`}</span>`;
}
