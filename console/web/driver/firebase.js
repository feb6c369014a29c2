// Firebase Auth over its REST API. It exchanges a password or a refresh token for an ID token.
import { Unreachable } from "../assets/api.js";

/** A refusal by Firebase. code is Firebase's error code. */
export class Refused extends Error {
  constructor(code) {
    super(code);
    this.name = "Refused";
    this.code = code;
  }
}

const patience = 10_000; // ms

/** The address of a Firebase service, at Google or at the emulator. */
const at = ({ emulator }, service) => (emulator ? `${emulator}/${service}/v1` : `https://${service}/v1`);

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

const ending = (seconds) => Date.now() + Number(seconds) * 1000;

/**
 * @param {{api_key: string, emulator: string|null}} firebase
 * @returns {Promise<{token: string, refresh: string, ends: number}>} ends is in ms of this device's clock
 * @throws {Refused|Unreachable}
 */
export async function signInWithPassword(firebase, email, password) {
  const url = `${at(firebase, "identitytoolkit.googleapis.com")}/accounts:signInWithPassword?key=${encodeURIComponent(firebase.api_key)}`;
  const a = await ask(url, "application/json", JSON.stringify({ email, password, returnSecureToken: true }));
  return { token: a.idToken, refresh: a.refreshToken, ends: ending(a.expiresIn) };
}

/** Returns the next ID token, in the form of signInWithPassword. */
export async function refreshed(firebase, refresh) {
  const url = `${at(firebase, "securetoken.googleapis.com")}/token?key=${encodeURIComponent(firebase.api_key)}`;
  const form = new URLSearchParams({ grant_type: "refresh_token", refresh_token: refresh });
  const a = await ask(url, "application/x-www-form-urlencoded", form.toString());
  return { token: a.id_token, refresh: a.refresh_token, ends: ending(a.expires_in) };
}
