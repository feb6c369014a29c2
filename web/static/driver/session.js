// The tab's session, and its stored data. Each tab has its own driver. The device remembers the last driver that signed in, for
// the next tab and for the installed app.
import { Problem, Unreachable, freshKey, request } from "../assets/api.js";

/** @import { Known, Tap } from "./work_state.js" */

const place = "firsttap.driver";
const early = 60_000; // ms: an ID token is renewed this long before its end

/** @typedef {{token: string, firebase?: {api_key: string, emulator: string|null, refresh: string, ends: number}}} Credentials */

/**
 * What keeps stored: the session, what is known, and the taps without an answer. After a sign-out it has no token.
 * @typedef {Partial<Credentials> & {id?: string, known?: Known, taps?: Record<string, Tap>}} Stored
 */

/** @param {Storage} storage @returns {Stored|null} */
function read(storage) {
  try {
    return JSON.parse(storage.getItem(place) ?? "null");
  } catch {
    return null;
  }
}

/** @param {Storage} storage @param {Stored|null} record */
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
  /** @type {Promise<boolean>|null} */
  #renewal = null;
  /** It is called when the token is no longer valid. */
  onOver = () => {};

  /** @param {Stored} record */
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

  /** Reports whether the token is that of the tab's session, or of the device's in a new tab. @param {string} token */
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
   * @param {Credentials} credentials
   */
  static begin(credentials) {
    const record = { id: freshKey(), ...credentials, taps: read(sessionStorage)?.taps };
    write(sessionStorage, record);
    write(localStorage, record);
    return new Session(record);
  }

  get token() {
    return this.#record.token ?? "";
  }

  /** The data that keep stored. */
  get kept() {
    return this.#record;
  }

  /** Stores data for the time after a reload. @param {Partial<Stored>} part */
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
   * @param {boolean} asked
   */
  end(asked) {
    if (read(localStorage)?.id === this.#record.id) write(localStorage, null);
    const open = Object.entries(this.#record.taps ?? {}).filter(([, tap]) => tap.state !== "done");
    this.#record = asked ? {} : { taps: Object.fromEntries(open) };
    write(sessionStorage, this.#record);
  }

  /**
   * Sends a request as the driver, as request does. It renews an expired token if that is possible.
   * @param {string} method
   * @param {string} path
   * @param {import("../assets/api.js").Options} [options]
   */
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
   * @param {string} stale
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
    this.#renewal ??= this.#refresh(this.#record.firebase).finally(() => { this.#renewal = null; });
    return this.#renewal;
  }

  /** @param {NonNullable<Credentials["firebase"]>} firebase */
  async #refresh(firebase) {
    try {
      const { token, refresh, ends } = await refreshed(firebase, firebase.refresh);
      this.keep({ token, firebase: { ...firebase, refresh, ends } });
      return true;
    } catch (err) {
      if (!(err instanceof Refused)) throw err;
      this.onOver();
      return false;
    }
  }
}

// Firebase Auth over its REST API. It exchanges a password or a refresh token for an ID token.

/** A refusal by Firebase. code is Firebase's error code. */
export class Refused extends Error {
  /** @param {string} code */
  constructor(code) {
    super(code);
    this.name = "Refused";
    this.code = code;
  }
}

const patience = 10_000; // ms

/** The address of a Firebase service, at Google or at the emulator. @param {{emulator: string|null}} firebase @param {string} service */
const at = ({ emulator }, service) => (emulator ? `${emulator}/${service}/v1` : `https://${service}/v1`);

/** @param {string} url @param {string} type @param {string} body */
async function ask(url, type, body) {
  let response, data;
  try {
    response = await fetch(url, {
      method: "POST", headers: { "Content-Type": type }, body, credentials: "omit", cache: "no-store",
      referrerPolicy: "no-referrer", signal: AbortSignal.timeout(patience),
    });
    data = await response.json();
  } catch (err) {
    throw new Unreachable(err);
  }
  if (response.ok) return data;
  // "TOO_MANY_ATTEMPTS_TRY_LATER : Access to this account ..."
  const code = String(data.error?.message ?? "").split(" ")[0];
  if (response.status >= 500 || response.status === 429) throw new Unreachable(new Error(code));
  throw new Refused(code);
}

const ending = (/** @type {string} */ seconds) => Date.now() + Number(seconds) * 1000;

/**
 * @param {{api_key: string, emulator: string|null}} firebase
 * @param {string} email
 * @param {string} password
 * @returns {Promise<{token: string, refresh: string, ends: number}>} ends is in ms of this device's clock
 * @throws {Refused|Unreachable}
 */
export async function signInWithPassword(firebase, email, password) {
  const url = `${at(firebase, "identitytoolkit.googleapis.com")}/accounts:signInWithPassword?key=${encodeURIComponent(firebase.api_key)}`;
  const a = await ask(url, "application/json", JSON.stringify({ email, password, returnSecureToken: true }));
  return { token: a.idToken, refresh: a.refreshToken, ends: ending(a.expiresIn) };
}

/**
 * Returns the next ID token, in the form of signInWithPassword.
 * @param {{api_key: string, emulator: string|null}} firebase @param {string} refresh
 */
async function refreshed(firebase, refresh) {
  const url = `${at(firebase, "securetoken.googleapis.com")}/token?key=${encodeURIComponent(firebase.api_key)}`;
  const form = new URLSearchParams({ grant_type: "refresh_token", refresh_token: refresh });
  const a = await ask(url, "application/x-www-form-urlencoded", form.toString());
  return { token: a.id_token, refresh: a.refresh_token, ends: ending(a.expires_in) };
}
