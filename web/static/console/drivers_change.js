// The forms and dialogs that change a driver.
import { html, useMemo, useRef, useState } from "../assets/preact.js";
import { send } from "../assets/api.js";
import { useLanguage } from "../assets/language.js";
import { Dialog } from "../assets/ui.js";
import { typedTime, zoneAt } from "../assets/zone.js";
import { Ask, PageError, Secret, Trouble, fieldIn } from "./dialogs.js";
import {
  Choice, Field, Regions, Suggestions, Unsettled, beside, differ, newTo, typedNumber, useEditing, useFirstWrong, useKnown, useMaking, withTyped,
  wrongFields,
} from "./forms.js";
import { useKeptForm } from "./kept.js";

/** @typedef {"name"|"phone"|"regions"|"vehicle_class"|"working_height_m"|"firebase_uid"|"locale"} Name */
/** @typedef {Record<Exclude<Name, "regions">, string> & {regions: string[], region: string}} Form */
/** @typedef {{driver: Schemas["AdminDriver"], path: string, onClose: () => void}} Asked what a dialog gets */

/** The fields of a driver, as the API names them. @type {Name[]} */
export const names = ["name", "phone", "regions", "vehicle_class", "working_height_m", "firebase_uid", "locale"];

/**
 * Returns a driver in the form's texts; regions are a list, and region is one that is being typed.
 * @param {Schemas["AdminDriver"]|null} driver @returns {Form}
 */
function formOf(driver) {
  const text = (/** @type {Name} */ name) => String(driver?.[name] ?? "");
  return {
    name: text("name"), phone: text("phone"), vehicle_class: text("vehicle_class"), working_height_m: text("working_height_m"),
    firebase_uid: text("firebase_uid"), locale: text("locale"), regions: driver?.regions ?? [], region: "",
  };
}

/**
 * Returns the form in the API's types, with null for an empty field.
 * @param {Form} form
 * @returns {{values: Record<Name, string|string[]|number|null>, wrong: Record<string, string>}} wrong has the inputs that no request can carry, by field
 */
function valuesOf(form) {
  const text = (/** @type {"firebase_uid"|"locale"} */ name) => form[name].trim() || null;
  const height = typedNumber(form.working_height_m) ?? null;
  const values = {
    name: form.name.trim(), phone: form.phone.trim(), regions: withTyped(form.regions, form.region),
    vehicle_class: form.vehicle_class.trim(), working_height_m: height, firebase_uid: text("firebase_uid"), locale: text("locale"),
  };
  return { values, wrong: Number.isNaN(height) ? { working_height_m: "must be a number like 45" } : {} };
}

/**
 * @param {{form: Form, wrong: Record<string, string>, change: (changes: Partial<Form>) => void, driver?: Schemas["AdminDriver"]}} props driver: who is edited
 */
function DriverFields({ form, wrong, change, driver }) {
  const { t: { fields, drivers }, t } = useLanguage();
  const known = useKnown(driver);
  const field = (/** @type {Exclude<Name, "regions">} */ name) => ({ name, value: form[name], wrong: wrong[name], onInput: (/** @type {string} */ value) => change({ [name]: value }) });
  return html`<div class="fields">
    <${Field} ...${field("name")} label=${fields.name} />
    <${Field} ...${field("phone")} label=${fields.phone} type="tel" hint=${drivers.phoneHint} />
    <${Regions} form=${form} wrong=${wrong.regions} known=${known?.regions} change=${change} />
    <${Field} ...${field("vehicle_class")} label=${fields.vehicle_class} list="classes"
      hint=${newTo(known?.classes, [form.vehicle_class], t)} />
    <${Field} ...${field("working_height_m")} label=${drivers.heightM} optional inputmode="decimal" />
    <${Field} ...${field("locale")} label=${fields.locale} optional hint=${drivers.localeHint} />
    <${Field} ...${field("firebase_uid")} label=${fields.firebase_uid} optional hint=${drivers.uidHint} />
    <${Suggestions} known=${known} />
  </div>`;
}

const blank = formOf(null);

/** The form that creates a driver and then shows the driver. @param {{session: Schemas["Session"]}} props */
export function NewDriver({ session }) {
  const { t } = useLanguage();
  const [form, change, clear] = useKeptForm(`firsttap.driver.${session.key_id}`, blank);
  const { make, busy, error, unsettled } = useMaking("/v1/admin/drivers", `firsttap.driver.${session.key_id}.sent`);
  const [unsaid, setUnsaid] = useState(/** @type {Record<string, string>|null} */ (null));
  const wrong = useMemo(() => unsaid ?? wrongFields(error), [unsaid, error]);
  /** @type {Ref<HTMLFormElement>} */
  const element = useRef(null);
  useFirstWrong(element, wrong);
  const submit = async (/** @type {SubmitEvent} */ e) => {
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

/**
 * Returns the error that describes another user's changes to a driver.
 * @param {Schemas["AdminDriver"]} before @param {Schemas["AdminDriver"]} after
 */
function movedBy(before, after) {
  const changed = differ(names, before, after);
  return new PageError(({ t }) => {
    const now = changed.map((name) => t.drivers.isNow(fieldIn(t, name), after[name] ?? ""));
    return `${now.length > 0 ? t.drivers.movedByTo(t.list(now)) : t.drivers.movedBy} ${t.drivers.notSaved}`;
  });
}

/** @param {Asked} props */
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

/** Bars a driver from new work, until a time or until a reinstatement. @param {Asked} props */
export function Suspend({ driver, path, onClose }) {
  const { t: { drivers, suspend } } = useLanguage();
  const [form, set] = useState({ end: "open", until: "", reason: "" });
  const [wrong, setWrong] = useState(/** @type {Record<string, string>} */ ({}));
  const change = (/** @type {Partial<typeof form>} */ changes) => set((before) => ({ ...before, ...changes }));
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

/** @param {Asked} props */
export function Reinstate({ driver, path, onClose }) {
  const { t: { drivers, suspend } } = useLanguage();
  return html`<${Ask} title=${suspend.reinstateTitle(driver.name)} word=${drivers.reinstate} act=${() => send("POST", path + "/reinstate", { body: {} })} onClose=${onClose}>
    <p>${suspend.reinstateMore}</p>
  <//>`;
}

/** Issues a token that signs in as the driver, and shows it once. @param {Asked} props */
export function IssueToken({ driver, path, onClose }) {
  const { t: { done, token }, when } = useLanguage();
  const [made, setMade] = useState(/** @type {Schemas["Token"]|null} */ (null));
  const act = async () => setMade((await send("POST", path + "/tokens")).data);
  if (!made) {
    return html`<${Ask} title=${token.title(driver.name)} word=${token.word} act=${act} onClose=${(issued) => issued || onClose()}>
      <p>${token.more}</p>
    <//>`;
  }
  return html`<${Dialog} title=${token.made(driver.name)} onClose=${onClose}>
    <div class="stack">
      <p>${token.good(when(made.expires_at))}</p>
      <${Secret} label=${token.token} value=${made.token} />
      <div class="row">
        <a class="button" href=${"/driver/#token=" + made.token} target="_blank" rel="noopener">${token.open}</a>
        <button onClick=${onClose}>${done}</button>
      </div>
    </div>
  <//>`;
}

/** Revokes every token that the driver was issued. @param {Asked} props */
export function EndTokens({ driver, path, onClose }) {
  const { t: { drivers, token } } = useLanguage();
  const act = () => send("DELETE", path + "/tokens");
  return html`<${Ask} title=${token.endTitle(driver.name)} word=${drivers.endTokens} danger act=${act} onClose=${onClose}>
    <p>${token.endMore}</p>
    ${driver.firebase_uid && html`<p>${token.firebase}</p>`}
  <//>`;
}

/** Erases the driver's personal data, for good. @param {Asked} props */
export function Erase({ driver, path, onClose }) {
  const { t: { erase } } = useLanguage();
  const act = async () => {
    try {
      await send("POST", path + "/erase", { body: {} });
    } catch (err) {
      throw err.code === "DRIVER_BUSY" ? new PageError(({ t }) => t.erase.hasJob) : err;
    }
  };
  return html`<${Ask} title=${erase.title(driver.name)} word=${erase.word} danger act=${act} onClose=${onClose}>
    <p>${erase.gone}</p>
    <p>${erase.kept}</p>
  <//>`;
}
