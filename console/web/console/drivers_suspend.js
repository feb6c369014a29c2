import { html, useState } from "../assets/preact.js";
import { send } from "../assets/api.js";
import { Ask } from "../assets/ui.js";
import { Choice, Field, typedTime, wrongFields, zoneAt } from "./fields.js";

/** Bars a driver from new work, until a time or until a reinstatement. */
export function Suspend({ driver, path, onClose }) {
  const [form, set] = useState({ end: "open", until: "", reason: "" });
  const [wrong, setWrong] = useState({});
  const change = (changes) => set((before) => ({ ...before, ...changes }));
  const act = async () => {
    const until = form.end === "at" ? typedTime(form.until) : undefined;
    setWrong({});
    if (form.end === "at" && !until) {
      setWrong({ until: "is required" });
      throw new Error("Until when?");
    }
    try {
      await send("POST", path + "/suspend", { body: { until, reason_code: form.reason.trim() || undefined } });
    } catch (err) {
      setWrong(wrongFields(err));
      throw err;
    }
  };
  return html`<${Ask} title=${`Suspend ${driver.name}?`} word="Suspend" danger act=${act} onClose=${onClose}>
    <p>Until then they are offered nothing, and start nothing. What they have accepted stays theirs: they may give it back, and
      complete what they have started.</p>
    <${Choice} label="Until" name="end" value=${form.end} choices=${{ open: "reinstated", at: "a time" }} onInput=${(end) => change({ end })}>
      ${form.end === "at" && html`<${Field} name="until" label="Until when" type="datetime-local" value=${form.until} wrong=${wrong.until}
        hint=${zoneAt(form.until)} onInput=${(until) => change({ until })} />`}
    <//>
    <${Field} name="reason_code" label="Reason" optional value=${form.reason} wrong=${wrong.reason_code} hint="A word or two of your own: it is kept in the audit."
      onInput=${(reason) => change({ reason })} />
  <//>`;
}

export function Reinstate({ driver, path, onClose }) {
  return html`<${Ask} title=${`Reinstate ${driver.name}?`} word="Reinstate" act=${() => send("POST", path + "/reinstate", { body: {} })} onClose=${onClose}>
    <p>They are offered work again at once, while they are on duty.</p>
  <//>`;
}
