import { useMemo, useRef, useState } from "../assets/preact.js";
import { get, request } from "../assets/api.js";
import { beside, useFirstWrong, wrongFields } from "./fields.js";

const same = (a, b) => JSON.stringify(a) === JSON.stringify(b); // some fields are lists

/** Returns the names of the fields that differ. */
export const differ = (names, a, b) => names.filter((name) => !same(a[name], b[name]));

/**
 * Edits something by a PATCH with the fields that were edited, and no others: what a form can't show, or shows in another form, stays as it
 * is. It sends them once and never repeats them by itself: a second request would take its own change for another user's.
 *
 * @param {any} opened what is edited: its later versions do not change the form
 * @param {string} path
 * @param {{names: string[], formOf: (of: any) => object, valuesOf: (form: object) => {values: object, wrong: Object<string, string>},
 *   movedBy?: (before: any, after: any) => Error, onClose: () => void}} options
 * valuesOf: the form in the API's types, and the inputs that no request can carry; movedBy: the error about another user's changes
 */
export function useEditing(opened, path, { names, formOf, valuesOf, movedBy, onClose }) {
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
      if (differ(Object.keys(changes), changes, after).length === 0) return; // by an unanswered try
      throw movedBy?.(seen, after) ?? error;
    }
  };
  const onSubmit = async (e) => {
    e.preventDefault();
    const { values, wrong: found } = valuesOf(form);
    const edited = differ(names, values, valuesOf(formOf(first)).values);
    const unsaid = Object.fromEntries(edited.filter((name) => found[name]).map((name) => [name, found[name]]));
    if (Object.keys(unsaid).length > 0) {
      set({ busy: false, error: null, unsaid });
      return;
    }
    set({ busy: true, error: null, unsaid: null });
    try {
      if (edited.length > 0) await save(Object.fromEntries(edited.map((name) => [name, values[name]])));
      onClose();
    } catch (error) {
      set({ busy: false, error, unsaid: null });
    }
  };
  return {
    element, form, wrong, onSubmit, busy: state.busy, error: state.error && beside(state.error, wrong, names),
    change: (changes) => setForm((before) => ({ ...before, ...changes })),
  };
}
