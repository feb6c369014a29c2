import { html, useMemo, useRef, useState } from "../assets/preact.js";
import { get, request } from "../assets/api.js";
import { useLanguage } from "../assets/language.js";
import { PageError, fieldIn } from "../assets/problems.js";
import { Dialog, Trouble } from "../assets/ui.js";
import { beside, useFirstWrong, wrongFields } from "./fields.js";
import { Suggestions } from "./suggestions.js";
import { DriverFields, driverOf, formOf, names } from "./drivers_form.js";

const same = (a, b) => JSON.stringify(a) === JSON.stringify(b); // regions are a list
const differ = (a, b) => names.filter((name) => !same(a[name], b[name]));

/** Returns the error that describes another user's changes to a driver. */
function movedBy(before, after) {
  const changed = differ(before, after);
  return new PageError(({ t }) => {
    const now = changed.map((name) => t.drivers.isNow(fieldIn(t, name), after[name] ?? ""));
    return `${now.length > 0 ? t.drivers.movedByTo(t.list(now)) : t.drivers.movedBy} ${t.drivers.notSaved}`;
  });
}

/**
 * Sends the changed fields only. It sends them once and never repeats them by itself: a second request would take its own
 * change for another user's.
 */
export function EditDriver({ driver: opened, path, onClose }) {
  const { t } = useLanguage();
  const [first] = useState(opened);
  const [seen, setSeen] = useState(opened);
  const [form, setForm] = useState(() => formOf(opened));
  const [state, set] = useState({ busy: false, error: null, unsaid: null });
  const wrong = useMemo(() => state.unsaid ?? wrongFields(state.error), [state]);
  const element = useRef(null);
  useFirstWrong(element, wrong);

  const save = async (changes) => {
    try {
      await request("PATCH", path, { body: changes, version: seen.version });
    } catch (error) {
      if (error.status !== 412) throw error;
      const after = await get(path);
      setSeen(after);
      if (Object.keys(changes).every((name) => same(changes[name], after[name]))) return; // by an unanswered try
      throw movedBy(seen, after);
    }
  };
  const submit = async (e) => {
    e.preventDefault();
    const { driver, wrong: unsaid } = driverOf(form);
    if (Object.keys(unsaid).length > 0) {
      set({ busy: false, error: null, unsaid });
      return;
    }
    set({ busy: true, error: null, unsaid: null });
    try {
      const changes = Object.fromEntries(differ(driver, first).map((name) => [name, driver[name]]));
      if (Object.keys(changes).length > 0) await save(changes);
      onClose();
    } catch (error) {
      set({ busy: false, error, unsaid: null });
    }
  };
  return html`<${Dialog} title=${t.drivers.editTitle(first.name)} onClose=${onClose}>
    <form ref=${element} class="stack" noValidate onSubmit=${submit}>
      <${DriverFields} form=${form} wrong=${wrong} change=${(changes) => setForm((before) => ({ ...before, ...changes }))} />
      <${Suggestions} />
      <${Trouble} error=${state.error && beside(state.error, wrong, names)} />
      <div class="row">
        <button type="submit" class="primary" disabled=${state.busy}>${t.drivers.save}</button>
        <button type="button" onClick=${onClose}>${t.back}</button>
      </div>
    </form>
  <//>`;
}
