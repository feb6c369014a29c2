import { html, useState } from "../assets/preact.js";
import { useLanguage } from "../assets/language.js";
import { PageError } from "../assets/problems.js";
import { Trouble } from "../assets/ui.js";

const notLoaded = new PageError(({ t }) => t.export.notLoaded);

/**
 * The button that exports a list as a file. What it takes is loaded when it is pressed.
 * @param {{list: string, query?: Object<string, string>, keep?: (item: any) => boolean}} props list is a name in csv_lists.js; query has
 * the present filters, of which a "" is omitted; keep is a filter that the API does not have
 */
export function Export({ list, query = {}, keep }) {
  const { t } = useLanguage();
  const [open, setOpen] = useState(null); // {Dialog} or {error}
  const begin = () => import("./export_dialog.js").then(({ ExportDialog }) => setOpen({ Dialog: ExportDialog }), () => setOpen({ error: notLoaded }));
  return html`<button type="button" onClick=${begin}>${t.export.button}</button>
    ${open?.error && html`<${Trouble} error=${open.error} />`}
    ${open?.Dialog && html`<${open.Dialog} list=${list} query=${query} keep=${keep} onClose=${() => setOpen(null)} />`}`;
}
