// Who this tab is, and what it keeps of that. Each tab has its own driver; the device remembers the last that signed in, for
// the next tab and for the installed app.
import { Problem, freshKey, request } from "../assets/api.js";
import { Refused, refreshed } from "./firebase.js";

const place = "firsttap.driver";
const early = 60_000; // ms before its end that an ID token is renewed

function read(storage) {
  try {
    return JSON.parse(storage.getItem(place));
  } catch {
    return null;
  }
}

function write(storage, record) {
  try {
    storage.setItem(place, JSON.stringify(record));
  } catch {
    // Full, or forbidden: the tab goes on with what it has in memory.
  }
}

/** Takes a driver's token out of the address, where it must not stay. */
export function takeFromAddress() {
  const token = new URLSearchParams(location.hash.slice(1)).get("token");
  if (token) history.replaceState(null, "", location.pathname + location.search);
  return token;
}

/** What this tab keeps, or in a new one the device; undefined where nobody is signed in. */
function present() {
  const record = read(sessionStorage) ?? read(localStorage);
  return record?.token ? record : undefined;
}

export class Session {
  #record;
  #renewal = null;
  /** Hears that the token is no longer good. */
  onOver = () => {};

  constructor(record) {
    this.#record = record;
  }

  /** This tab's session, or in a new tab the device's last; null where nobody is signed in. */
  static resume() {
    const record = present();
    if (!record) return null;
    write(sessionStorage, record);
    return new Session(record);
  }

  /** Whether to begin one with the token would end another's. */
  static replaces(token) {
    return (present()?.token ?? token) !== token;
  }

  /** The name of who is signed in, "" where it is not known. */
  static name() {
    return present()?.known?.me?.name ?? "";
  }

  /**
   * Begins one, in place of the tab's last. The taps that had no answer yet are taken over: their driver may be back.
   * @param {{token: string, firebase?: {api_key: string, emulator: string|null, refresh: string, ends: number}}} credentials
   */
  static begin(credentials) {
    const record = { id: freshKey(), ...credentials, taps: read(sessionStorage)?.taps };
    write(sessionStorage, record);
    write(localStorage, record);
    return new Session(record);
  }

  get token() {
    return this.#record.token;
  }

  /** What was kept with keep. */
  get kept() {
    return this.#record;
  }

  /** Keeps something over a reload. @param {{known?: any, taps?: any}} part */
  keep(part) {
    if (!this.#record.token) return;
    Object.assign(this.#record, part);
    if ((read(sessionStorage)?.id ?? this.#record.id) !== this.#record.id) return; // another has begun in this tab
    write(sessionStorage, this.#record);
    if (read(localStorage)?.id === this.#record.id) write(localStorage, this.#record);
  }

  /**
   * Ends it, and forgets everything of the driver but, where they did not ask for it, the taps that have no answer yet. The tab
   * stays signed out, whoever else the device remembers.
   */
  end(asked) {
    if (read(localStorage)?.id === this.#record.id) write(localStorage, null);
    const open = Object.entries(this.#record.taps ?? {}).filter(([, tap]) => tap.state !== "done");
    this.#record = asked ? {} : { taps: Object.fromEntries(open) };
    write(sessionStorage, this.#record);
  }

  /** Sends a request as the driver: see request. A token that has ended is renewed where it can be. */
  async call(method, path, options = {}) {
    if (this.#record.firebase && Date.now() > this.#record.firebase.ends - early) await this.renew(this.token);
    const { token } = this;
    try {
      return await request(method, path, { ...options, token });
    } catch (err) {
      if (!(err instanceof Problem && err.status === 401)) throw err;
      if (!await this.renew(token)) throw err;
    }
    try {
      return await request(method, path, { ...options, token: this.token });
    } catch (err) {
      if (err instanceof Problem && err.status === 401) this.onOver();
      throw err;
    }
  }

  /**
   * Replaces a token that is no longer good, once for all who ask at the same time.
   * @returns {Promise<boolean>} false where it can't be: the session is over
   * @throws {Unreachable} nobody knows
   */
  async renew(stale) {
    if (!this.#record.token) return false;
    if (this.token !== stale) return true;
    if (!this.#record.firebase) {
      this.onOver();
      return false;
    }
    this.#renewal ??= this.#refresh().finally(() => { this.#renewal = null; });
    return this.#renewal;
  }

  async #refresh() {
    try {
      const { token, refresh, ends } = await refreshed(this.#record.firebase, this.#record.firebase.refresh);
      this.keep({ token, firebase: { ...this.#record.firebase, refresh, ends } });
      return true;
    } catch (err) {
      if (!(err instanceof Refused)) throw err;
      this.onOver();
      return false;
    }
  }
}
