import { html, useState } from "../assets/preact.js";
import { send } from "../assets/api.js";
import { useLanguage } from "../assets/language.js";
import { PageError } from "../assets/problems.js";
import { Ask } from "../assets/ui.js";
import { typedTime, zoneAt } from "../assets/zone.js";
import { Choice, Field, wrongFields } from "./fields.js";

/** Bars a driver from new work, until a time or until a reinstatement. */
export function Suspend({ driver, path, onClose }) {
  const { t: { drivers, suspend } } = useLanguage();
  const [form, set] = useState({ end: "open", until: "", reason: "" });
  const [wrong, setWrong] = useState({});
  const change = (changes) => set((before) => ({ ...before, ...changes }));
  const act = async () => {
    const until = form.end === "at" ? typedTime(form.until) : undefined;
    setWrong({});
    if (form.end === "at" && !until) {
      setWrong({ until: "is required" });
      throw new PageError(({ t }) => t.suspend.askWhen);
    }
    try {
      await send("POST", path + "/suspend", { body: { until, reason_code: form.reason.trim() || undefined } });
    } catch (err) {
      setWrong(wrongFields(err));
      throw err;
    }
  };
  return html`<${Ask} title=${suspend.title(driver.name)} word=${drivers.suspend} danger act=${act} onClose=${onClose}>
    <p>${suspend.more}</p>
    <${Choice} label=${suspend.until} name="end" value=${form.end} choices=${{ open: suspend.reinstated, at: suspend.atTime }} onInput=${(end) => change({ end })}>
      ${form.end === "at" && html`<${Field} name="until" label=${suspend.untilWhen} type="datetime-local" value=${form.until} wrong=${wrong.until}
        hint=${zoneAt(form.until)} onInput=${(until) => change({ until })} />`}
    <//>
    <${Field} name="reason_code" label=${suspend.reason} optional value=${form.reason} wrong=${wrong.reason_code} hint=${suspend.reasonHint}
      onInput=${(reason) => change({ reason })} />
  <//>`;
}

export function Reinstate({ driver, path, onClose }) {
  const { t: { drivers, suspend } } = useLanguage();
  return html`<${Ask} title=${suspend.reinstateTitle(driver.name)} word=${drivers.reinstate} act=${() => send("POST", path + "/reinstate", { body: {} })} onClose=${onClose}>
    <p>${suspend.reinstateMore}</p>
  <//>`;
}
