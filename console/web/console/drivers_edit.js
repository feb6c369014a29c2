import { html, useState } from "../assets/preact.js";
import { useLanguage } from "../assets/language.js";
import { PageError, fieldIn } from "../assets/problems.js";
import { Dialog, Trouble } from "../assets/ui.js";
import { differ, useEditing } from "./editing.js";
import { DriverFields, formOf, names, valuesOf } from "./drivers_form.js";

/** Returns the error that describes another user's changes to a driver. */
function movedBy(before, after) {
  const changed = differ(names, before, after);
  return new PageError(({ t }) => {
    const now = changed.map((name) => t.drivers.isNow(fieldIn(t, name), after[name] ?? ""));
    return `${now.length > 0 ? t.drivers.movedByTo(t.list(now)) : t.drivers.movedBy} ${t.drivers.notSaved}`;
  });
}

export function EditDriver({ driver, path, onClose }) {
  const { t } = useLanguage();
  const [opened] = useState(driver); // the page behind reads the driver again
  const { element, onSubmit, error, busy, ...fields } = useEditing(driver, path, { names, formOf, valuesOf, movedBy, onClose });
  return html`<${Dialog} title=${t.drivers.editTitle(opened.name)} onClose=${onClose}>
    <form ref=${element} class="stack" noValidate onSubmit=${onSubmit}>
      <${DriverFields} ...${fields} driver=${driver} />
      <${Trouble} error=${error} />
      <div class="row">
        <button type="submit" class="primary" disabled=${busy}>${t.drivers.save}</button>
        <button type="button" onClick=${onClose}>${t.back}</button>
      </div>
    </form>
  <//>`;
}
