// Requests to the API. A request ends with an answer, a Problem from the service, or Unreachable, after which its outcome is
// unknown.

/**
 * What a problem of any kind may have.
 * @typedef {{code?: string, title?: string, detail?: string, errors?: Schemas["FieldError"][], reasons?: Schemas["Reason"][], opens_at?: string,
 *   final?: boolean}} ProblemBody
 */

/** The service's answer to a request that it refused or that failed: an RFC 9457 problem. */
export class Problem extends Error {
  /**
   * @param {number} status
   * @param {ProblemBody} body
   * @param {number} retryAfter seconds, or 0 without a Retry-After
   */
  constructor(status, body, retryAfter) {
    super(body.detail || body.title || `HTTP ${status}`);
    this.name = "Problem";
    this.status = status;
    this.code = body.code || "INTERNAL";
    this.body = body;
    this.retryAfter = retryAfter;
  }
}

/** No readable answer came. The service may have made the change nevertheless. */
export class Unreachable extends Error {
  /** @param {unknown} [cause] */
  constructor(cause) {
    super("The service can't be reached.", { cause });
    this.name = "Unreachable";
  }
}

const patience = 10_000; // ms

let onSignedOut = () => {};

/** Sets f, which is called when the service refuses a request because the console's session has ended. @param {() => void} f */
export const whenSignedOut = (f) => { onSignedOut = f; };

let clockOffset = 0; // ms that the service's clock is ahead of ours
let bestRoundTrip = Infinity;

/** The time by the service's clock, in ms. Countdowns use it. */
export const now = () => Date.now() + clockOffset;

/** @param {string} serverTime @param {number} sent @param {number} received ms, by our clock */
function learnTime(serverTime, sent, received) {
  const at = Date.parse(serverTime);
  const roundTrip = received - sent;
  if (Number.isNaN(at) || roundTrip > bestRoundTrip + 50) return;
  bestRoundTrip = roundTrip;
  clockOffset = at - (sent + received) / 2;
}

/** A unique Idempotency-Key. crypto.randomUUID exists only in secure contexts. */
export function freshKey() {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (b) => b.toString(16).padStart(2, "0")).join("");
}

/**
 * version becomes If-Match; token is a driver's, and without one the console's session is used; timeout is in ms.
 * @typedef {{body?: unknown, version?: number, idempotencyKey?: string, token?: string, etag?: string, signal?: AbortSignal, timeout?: number}} Options
 */

/**
 * Sends one request.
 *
 * @param {string} method
 * @param {string} path
 * @param {Options} [options]
 * @returns {Promise<{status: number, data: any, etag: string|null}>} data is undefined for 204 and 304
 * @throws {Problem|Unreachable|DOMException} a DOMException when signal was aborted
 */
export async function request(method, path, options = {}) {
  /** @type {Record<string, string>} */
  const headers = { Accept: "application/json" };
  if (options.body !== undefined) headers["Content-Type"] = "application/json";
  if (options.version !== undefined) headers["If-Match"] = `"${options.version}"`;
  if (options.idempotencyKey) headers["Idempotency-Key"] = options.idempotencyKey;
  if (options.token) headers.Authorization = `Bearer ${options.token}`;
  if (options.etag) headers["If-None-Match"] = options.etag;
  const timer = AbortSignal.timeout(options.timeout ?? patience);
  const signal = options.signal ? AbortSignal.any([options.signal, timer]) : timer;
  const sent = Date.now();
  let response, data;
  try {
    response = await fetch(path, {
      method, headers, signal, cache: "no-store", redirect: "error",
      credentials: options.token ? "omit" : "same-origin",
      body: options.body === undefined ? undefined : JSON.stringify(options.body),
    });
    const text = response.status === 204 || response.status === 304 ? "" : await response.text();
    data = text === "" ? undefined : JSON.parse(text);
  } catch (err) {
    options.signal?.throwIfAborted();
    throw new Unreachable(err);
  }
  if (data?.server_time) learnTime(data.server_time, sent, Date.now());
  if (response.status === 401 && !options.token && path !== "/v1/session") onSignedOut();
  if (!response.ok && response.status !== 304) {
    throw new Problem(response.status, data ?? {}, Number(response.headers.get("Retry-After")) || 0);
  }
  return { status: response.status, data, etag: response.headers.get("ETag") };
}

/** Sends a GET. @param {string} path @param {Options} [options] @returns {Promise<any>} the body */
export const get = async (path, options) => (await request("GET", path, options)).data;

const tries = 4;

/** Reports whether a repetition of the request may get another answer. @param {unknown} err */
export function worthRetrying(err) {
  return err instanceof Unreachable ||
    (err instanceof Problem && (err.status === 429 || err.status === 503 || err.code === "IDEMPOTENCY_KEY_IN_USE"));
}

/** Waits ms. It rejects when signal is aborted. @param {number} ms @param {AbortSignal} [signal] @returns {Promise<void>} */
export function pause(ms, signal) {
  return new Promise((resolve, reject) => {
    signal?.throwIfAborted();
    const stop = () => { clearTimeout(timer); reject(signal?.reason); };
    const timer = setTimeout(() => { signal?.removeEventListener("abort", stop); resolve(); }, ms);
    signal?.addEventListener("abort", stop, { once: true });
  });
}

/**
 * Sends a repeatable request a few times, until an answer comes: a GET, a PUT, a request that the API calls repeatable, or a
 * POST to the admin API, which gets an Idempotency-Key so that the service executes it once. It throws the error of the last
 * try: after Unreachable the outcome is unknown.
 * @param {string} method
 * @param {string} path
 * @param {Options} [options]
 */
export async function send(method, path, options = {}) {
  if (method === "POST" && path.startsWith("/v1/admin/") && !options.idempotencyKey) {
    options = { ...options, idempotencyKey: freshKey() };
  }
  for (let n = 1; ; n++) {
    try {
      return await request(method, path, options);
    } catch (err) {
      if (n === tries || !worthRetrying(err)) throw err;
      await pause(Math.max((err.retryAfter || 0) * 1000, 250 * 2 ** n * (0.5 + Math.random())), options.signal);
    }
  }
}

/**
 * Reads a list page by page, up to a number of items, and of pages: those of a search may be short.
 * @param {string} path
 * @param {number} most
 * @param {Options & {pages?: number, read?: typeof get}} [options] read: reads a page, get by default
 * @returns {Promise<{items: any[], more: boolean, cut: boolean}>} cut: the pages ended before the items
 */
export async function list(path, most, { pages = Infinity, read = get, ...options } = {}) {
  /** @type {any[]} */
  const items = [];
  let cursor = "", n = 0;
  do {
    const url = new URL(path, location.origin);
    url.searchParams.set("limit", String(Math.min(200, most - items.length)));
    if (cursor) url.searchParams.set("cursor", cursor);
    const page = await read(url.pathname + url.search, options);
    items.push(...page.items);
    cursor = page.next_cursor;
    n++;
  } while (cursor && items.length < most && n < pages);
  return { items, more: Boolean(cursor), cut: Boolean(cursor) && items.length < most };
}
