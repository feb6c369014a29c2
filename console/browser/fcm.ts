import { type ChildProcess, execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { promisify } from "node:util";

/** A simulated push service for one test: a process of notify/fcmsim. */
export class Fcm {
  /** The value for FIRSTTAP_FCM_ENDPOINT. */
  endpoint = "";
  private dir = "";
  private process: ChildProcess | undefined;

  async start(): Promise<this> {
    this.dir = await mkdtemp(join(tmpdir(), "firsttap-fcm-"));
    const binary = join(this.dir, "fcmsim");
    await promisify(execFile)("go", ["build", "-o", binary, "./notify/fcmsim"], { cwd: join(import.meta.dirname, "../..") });
    const child = spawn(binary, ["-addr", "127.0.0.1:0"], { stdio: ["ignore", "pipe", "inherit"] });
    this.process = child;
    const lines = createInterface(child.stdout!);
    this.endpoint = await new Promise<string>((resolve, reject) => {
      lines.on("line", (line) => {
        const at = /^fcmsim: FCM is (.*)$/.exec(line);
        if (at) resolve(at[1]!);
      });
      child.once("exit", () => reject(new Error("fcmsim ended")));
    });
    return this;
  }

  /** Returns the settings of a service that pushes here. */
  settings(): Record<string, string> {
    return { FIRSTTAP_PUSH: "fcm", FIRSTTAP_FIREBASE_PROJECT: "demo", FIRSTTAP_FCM_ENDPOINT: this.endpoint };
  }

  private async call(method: string, path: string, body?: unknown): Promise<any> {
    const response = await fetch(new URL(`/sim/${path}`, this.endpoint), { method, body: body === undefined ? undefined : JSON.stringify(body) });
    const text = await response.text();
    if (!response.ok) throw new Error(`${path}: ${response.status} ${text}`);
    return text === "" ? undefined : JSON.parse(text);
  }

  /** Refuses messages that contain match for good, until cure. */
  poison(match: string): Promise<void> { return this.call("POST", `poison?match=${encodeURIComponent(match)}`); }
  cure(): Promise<void> { return this.call("DELETE", "poison"); }
  /** Answers every send with an error; 0 ends it. */
  fail(status: number): Promise<void> { return this.call("PATCH", "knobs", { status }); }
  /** Returns the number of sends that it refused as invalid. */
  async refused(): Promise<number> { return (await this.call("GET", "stats")).statuses["400"] ?? 0; }
  /** Returns the notifications on a phone. */
  device(token: string): Promise<any> { return this.call("GET", `device?token=${encodeURIComponent(token)}`); }

  async close(): Promise<void> {
    const child = this.process;
    if (child && child.exitCode === null && child.signalCode === null) {
      const ended = once(child, "exit");
      child.kill("SIGKILL");
      await ended;
    }
    await rm(this.dir, { recursive: true, force: true });
  }
}
