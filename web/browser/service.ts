import { execFileSync } from "node:child_process";
import { randomBytes } from "node:crypto";
import { join } from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { Program } from "./program.ts";

export type Json = any;

/** A service: a process on SQLite, on its own port. */
export class Service extends Program {
  url = "";
  readonly adminKey = randomBytes(24).toString("hex");
  private readonly secret = randomBytes(24).toString("hex");
  private readonly database = join(this.folder, "firsttap.db");

  constructor(public settings: Record<string, string> = {}) { super(); }

  /** Starts it. After stop it has the same address and database. */
  async start(): Promise<this> {
    const match = await this.run(process.env.FIRSTTAP_BIN!, [], {
      FIRSTTAP_ADDR: this.url ? new URL(this.url).host : "127.0.0.1:0",
      FIRSTTAP_OPS_ADDR: "",
      FIRSTTAP_DATABASE_URL: `sqlite://${this.database}`,
      FIRSTTAP_ADMIN_KEY: this.adminKey,
      FIRSTTAP_JWT_SECRET: this.secret,
      FIRSTTAP_RATE_LIMIT_ADMIN: "5000/s",
      FIRSTTAP_DRAIN: "0",
      FIRSTTAP_LOG: "warn",
      ...this.settings,
    }, /FirstTap listens on ([^"\s]+)"/);
    this.url = match[1]!;
    return this;
  }

  /** Changes rows of its database, while it runs. */
  sql(statement: string, ...rows: unknown[][]): void {
    execFileSync("python3", ["-c", `
import json, sqlite3, sys
with sqlite3.connect(sys.argv[1], timeout=30) as db:
    db.executemany(sys.argv[2], json.load(sys.stdin))`, this.database, statement], { input: JSON.stringify(rows) });
  }

  /** Moves the opening or the end of a dispatch to ms from now. */
  move(id: string, what: "opens_at" | "expires_at", ms: number): void {
    this.sql(`UPDATE dispatches SET ${what} = ? WHERE id = ?`, [(Date.now() + ms) * 1000, id]);
  }

  /**
   * Sends a request with the admin key or a token, and returns the answer's body. It throws for a status other than 2xx. A 503 says that
   * nothing was done in time, as on a machine that stands still for seconds: the request is sent again, unless it is to be sent once.
   */
  async call(method: string, path: string, body?: Json, options: { token?: string; headers?: Record<string, string>; once?: boolean } = {}): Promise<Json> {
    const response = await fetch(this.url + path, {
      method,
      headers: { Authorization: `Bearer ${options.token ?? this.adminKey}`, ...options.headers },
      body: body === undefined ? undefined : JSON.stringify(body),
    });
    const text = await response.text();
    if (response.ok) return text === "" ? undefined : JSON.parse(text);
    if (response.status !== 503 || options.once) throw new Error(`${method} ${path}: ${response.status} ${text}`);
    await pause(1000 * Number(response.headers.get("Retry-After")));
    return this.call(method, path, body, options);
  }

  /** Creates drivers on duty, eligible for dispatch() of the same region, each with a token. */
  async drivers(n: number, region: string, more: Json = {}): Promise<{ id: string; name: string; token: string }[]> {
    const drivers = Array.from({ length: n }, (_, i) => ({
      name: `Driver ${i + 1}`, phone: `+8210${String(10000000 + i)}`, regions: [region], vehicle_class: "45m", on_duty: true, ...more,
    }));
    return (await this.call("POST", "/v1/admin/drivers/bulk", { issue_tokens: true, drivers })).items;
  }

  async dispatch(region: string, more: Json = {}): Promise<Json> {
    const starts = Date.now() + 24 * 3600_000;
    return this.call("POST", "/v1/admin/dispatches", {
      region, vehicle_class: "45m", site_address: "12 Teheran-ro, Gangnam-gu",
      work_starts_at: new Date(starts).toISOString(), work_ends_at: new Date(starts + 3 * 3600_000).toISOString(),
      fee: { amount: 350000, currency: "KRW" }, ...more,
    });
  }

  /** Returns the dispatch as it is now. */
  read(d: Json): Promise<Json> { return this.call("GET", `/v1/admin/dispatches/${d.id}`); }

  /** Returns the dispatch's events, the oldest first. */
  async events(d: Json): Promise<Json[]> { return (await this.call("GET", `/v1/admin/dispatches/${d.id}/events`)).items; }

  /** Cancels, extends or unassigns a dispatch at its version, as the office. */
  change(d: Json, what: string, body: Json = {}): Promise<Json> {
    return this.call("POST", `/v1/admin/dispatches/${d.id}/${what}`, body, { headers: { "If-Match": `"${d.version}"` } });
  }

  /** Changes the terms or the window of a dispatch at its version. */
  patch(d: Json, body: Json): Promise<Json> {
    return this.call("PATCH", `/v1/admin/dispatches/${d.id}`, body, { headers: { "If-Match": `"${d.version}"` } });
  }

  /** Creates an API key of a role, and returns its secret. */
  async key(role: "viewer" | "dispatcher" | "admin"): Promise<string> {
    return (await this.call("POST", "/v1/admin/api-keys", { name: `A ${role}`, role })).key;
  }

  accept(id: string, token: string, round?: number): Promise<Json> {
    return this.call("POST", `/v1/dispatches/${id}/accept`, round === undefined ? undefined : { round }, { token });
  }

  /**
   * Lets drivers tap together in round 1, once each, whatever they are answered. One of them has the dispatch afterwards: if the service could not
   * decide in time, the first driver repeats the tap.
   */
  async acceptOnce(id: string, drivers: { token: string }[]): Promise<void> {
    await Promise.allSettled(drivers.map(({ token }) => this.call("POST", `/v1/dispatches/${id}/accept`, { round: 1 }, { token, once: true })));
    while ((await this.read({ id })).status === "PENDING") await this.accept(id, drivers[0]!.token, 1).catch(() => pause(200));
  }
}
