import { html } from "../assets/preact.js";
import { useLanguage } from "../assets/language.js";
import { Trouble, useLoaded } from "../assets/ui.js";

/**
 * Returns a page whose modules are loaded when it is shown, so that the board does not wait for them.
 * @param {() => Promise<any>} load imports the module
 * @param {string} name the component's name in it
 */
export function later(load, name) {
  return function Later(props) {
    const { t } = useLanguage();
    const { data, error } = useLoaded(async () => ({ component: (await load())[name] }), []);
    if (error) return html`<${Trouble} error=${error} />`;
    return data ? html`<${data.component} ...${props} />` : html`<p class="soft" role="status">${t.reading}</p>`;
  };
}
