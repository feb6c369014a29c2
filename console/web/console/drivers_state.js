import { html } from "../assets/preact.js";
import { now } from "../assets/api.js";
import { useLanguage } from "../assets/language.js";

export const forever = Date.parse("9999-12-31T00:00:00Z"); // the API's time for a suspension without an end

export const suspended = (until) => until !== null && Date.parse(until) > now();

export function Duty({ on }) {
  const { t } = useLanguage();
  return html`<span class=${"badge " + (on ? "good" : "soft")}>${on ? t.drivers.onBadge : t.drivers.offBadge}</span>`;
}

/** Shows the end of a driver's suspension, and nothing without a suspension. */
export function Suspension({ until }) {
  const { t, when } = useLanguage();
  if (!suspended(until)) return null;
  return html`<span class="badge bad">${Date.parse(until) >= forever ? t.drivers.suspendedOpen : t.drivers.suspendedUntil(when(until))}</span>`;
}
