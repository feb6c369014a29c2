import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { randomBytes } from "node:crypto";

export type Json = any;

/** A service for one test: a process on SQLite, in a temporary folder, on its own port. */
export class Service {
  url = "";
  readonly adminKey = randomBytes(24).toString("hex");
  private readonly secret = randomBytes(24).toString("hex");
  /** The database's file, for tests that read it while the service is stopped. */
  get database(): string { return join(this.dir, "firsttap.db"); }
  private dir = "";
  private process: ChildProcess | undefined;
  private log: string[] = [];

  constructor(private readonly settings: Record<string, string> = {}) {}

  /** Starts it. After stop it has the same address and database. */
  async start(): Promise<this> {
    this.dir ||= await mkdtemp(join(tmpdir(), "firsttap-browser-"));
    const child = spawn(process.env.FIRSTTAP_BIN!, [], {
      cwd: this.dir,
      stdio: ["ignore", "pipe", "pipe"],
      env: {
        PATH: process.env.PATH,
        FIRSTTAP_ADDR: this.url ? new URL(this.url).host : "127.0.0.1:0",
        FIRSTTAP_OPS_ADDR: "",
        FIRSTTAP_DATABASE_URL: `sqlite://${this.database}`,
        FIRSTTAP_ADMIN_KEY: this.adminKey,
        FIRSTTAP_JWT_SECRET: this.secret,
        FIRSTTAP_RATE_LIMIT_ADMIN: "5000/s",
        FIRSTTAP_DRAIN: "0",
        FIRSTTAP_LOG: "warn",
        ...this.settings,
      },
    });
    this.process = child;
    child.stderr!.on("data", (d) => this.log.push(String(d)));
    const lines = createInterface(child.stdout!);
    this.url = await new Promise<string>((resolve, reject) => {
      lines.on("line", (line) => {
        this.log.push(line);
        const at = /^FirstTap listens on (.*)$/.exec(line);
        if (at) resolve(at[1]!);
      });
      child.once("exit", () => reject(new Error(`firsttap ended:\n${this.log.join("\n")}`)));
    });
    return this;
  }

  /** Stops it with SIGTERM, as an operator does, or with SIGKILL. The address is free again. */
  async stop(signal: NodeJS.Signals = "SIGTERM"): Promise<void> {
    const child = this.process;
    if (!child || child.exitCode !== null || child.signalCode !== null) return;
    const ended = once(child, "exit");
    child.kill(signal);
    await ended;
  }

  /** Stops it and removes its data. */
  async close(): Promise<void> {
    await this.stop("SIGKILL");
    await rm(this.dir, { recursive: true, force: true });
  }

  /** Sends a request with the admin key or a token, and returns the answer's body. It throws for a status other than 2xx. */
  async call(method: string, path: string, body?: Json, options: { token?: string; headers?: Record<string, string> } = {}): Promise<Json> {
    const response = await fetch(this.url + path, {
      method,
      headers: { Authorization: `Bearer ${options.token ?? this.adminKey}`, ...options.headers },
      body: body === undefined ? undefined : JSON.stringify(body),
    });
    const text = await response.text();
    if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${text}`);
    return text === "" ? undefined : JSON.parse(text);
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

  /** Creates an API key of a role, and returns its secret. */
  async key(role: "viewer" | "dispatcher" | "admin"): Promise<string> {
    return (await this.call("POST", "/v1/admin/api-keys", { name: `A ${role}`, role })).key;
  }

  accept(id: string, token: string, round?: number): Promise<Json> {
    return this.call("POST", `/v1/dispatches/${id}/accept`, round === undefined ? undefined : { round }, { token });
  }
}
