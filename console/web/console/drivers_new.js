import { html, useMemo, useRef, useState } from "../assets/preact.js";
import { useLanguage } from "../assets/language.js";
import { Trouble } from "../assets/ui.js";
import { beside, useFirstWrong, wrongFields } from "./fields.js";
import { useKeptForm } from "./kept.js";
import { Unsettled, useMaking } from "./making.js";
import { DriverFields, formOf, names, valuesOf } from "./drivers_form.js";

const blank = formOf(null);

/** The form that creates a driver and then shows the driver. */
export function NewDriver({ session }) {
  const { t } = useLanguage();
  const [form, change, clear] = useKeptForm(`firsttap.driver.${session.key_id}`, blank);
  const { make, busy, error, unsettled } = useMaking("/v1/admin/drivers", `firsttap.driver.${session.key_id}.sent`);
  const [unsaid, setUnsaid] = useState(null);
  const wrong = useMemo(() => unsaid ?? wrongFields(error), [unsaid, error]);
  const element = useRef(null);
  useFirstWrong(element, wrong);
  const submit = async (e) => {
    e.preventDefault();
    const { values, wrong: found } = valuesOf(form);
    const sayable = Object.keys(found).length === 0;
    setUnsaid(sayable ? null : found);
    const made = sayable && await make({ ...values, unique_phone: true });
    if (!made) return;
    clear();
    location.hash = `#/drivers/${made.id}`;
  };
  return html`<h1>${t.drivers.newDriver}</h1>
    <form ref=${element} class="card stack narrow" noValidate onSubmit=${submit} aria-label=${t.drivers.newDriver}>
      <${DriverFields} form=${form} wrong=${wrong} change=${change} />
      <${Trouble} error=${error && beside(error, wrong, names)} />
      <${Unsettled} unsettled=${unsettled && !busy} thing="driver" />
      <div class="row">
        <button type="submit" class="primary" disabled=${busy}>${busy ? t.drivers.adding : t.drivers.add}</button>
        <a class="button" href="#/drivers">${t.back}</a>
      </div>
    </form>`;
}
