// The tab's session, and its stored data. Each tab has its own driver. The device remembers the last driver that signed in, for
// the next tab and for the installed app.
import { Problem, freshKey, request } from "../assets/api.js";
import { Refused, refreshed } from "./firebase.js";

const place = "firsttap.driver";
const early = 60_000; // ms: an ID token is renewed this long before its end

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
    // The storage is full or forbidden. The tab goes on with its memory.
  }
}

/** Removes a driver's token from the address, where it must not stay, and returns it. */
export function takeFromAddress() {
  const token = new URLSearchParams(location.hash.slice(1)).get("token");
  if (token) history.replaceState(null, "", location.pathname + location.search);
  return token;
}

/** Returns the stored data of this tab, or of the device in a new tab. It is undefined without a sign-in. */
function present() {
  const record = read(sessionStorage) ?? read(localStorage);
  return record?.token ? record : undefined;
}

export class Session {
  #record;
  #renewal = null;
  /** It is called when the token is no longer valid. */
  onOver = () => {};

  constructor(record) {
    this.#record = record;
  }

  /** Returns this tab's session, or the device's last session in a new tab. It is null without a sign-in. */
  static resume() {
    const record = present();
    if (!record) return null;
    write(sessionStorage, record);
    return new Session(record);
  }

  /** Reports whether the token is that of the tab's session, or of the device's in a new tab. */
  static has(token) {
    return present()?.token === token;
  }

  /** Returns the signed-in driver with the name, "" if it is unknown; null if nobody is signed in. */
  static now() {
    const record = present();
    return record ? { name: record.known?.me?.name ?? "" } : null;
  }

  /**
   * Begins a session in place of the tab's last one. It keeps the unanswered taps, because their driver may be back.
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

  /** The data that keep stored. */
  get kept() {
    return this.#record;
  }

  /** Stores data for the time after a reload. @param {{known?: any, taps?: any}} part */
  keep(part) {
    if (!this.#record.token) return;
    Object.assign(this.#record, part);
    if ((read(sessionStorage)?.id ?? this.#record.id) !== this.#record.id) return; // another session has begun in this tab
    write(sessionStorage, this.#record);
    if (read(localStorage)?.id === this.#record.id) write(localStorage, this.#record);
  }

  /**
   * Ends the session and deletes the driver's data. Unless the driver asked for it, unanswered taps stay. The tab stays signed
   * out, even if the device remembers another driver.
   */
  end(asked) {
    if (read(localStorage)?.id === this.#record.id) write(localStorage, null);
    const open = Object.entries(this.#record.taps ?? {}).filter(([, tap]) => tap.state !== "done");
    this.#record = asked ? {} : { taps: Object.fromEntries(open) };
    write(sessionStorage, this.#record);
  }

  /** Sends a request as the driver, as request does. It renews an expired token if that is possible. */
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
   * Replaces an invalid token, once for all concurrent callers.
   * @returns {Promise<boolean>} false if no renewal is possible: the session is over
   * @throws {Unreachable} the outcome is unknown
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
