import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync } from "node:fs";
import { rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";

/** A program that tests run, in a temporary folder of its own. */
export class Program {
  protected readonly folder = mkdtempSync(join(tmpdir(), "firsttap-browser-"));
  private process: ChildProcess | undefined;

  /** Runs it, waits until its output matches ready, and returns the match. */
  protected async run(command: string, args: string[], env: Record<string, string>, ready: RegExp): Promise<string[]> {
    const child = spawn(command, args, { cwd: this.folder, stdio: ["ignore", "pipe", "pipe"], env: { PATH: process.env.PATH, ...env } });
    this.process = child;
    let said = "";
    return new Promise((resolve, reject) => {
      const hear = (d: Buffer) => {
        said += d;
        const match = ready.exec(said);
        if (match) resolve(match);
      };
      child.stdout.on("data", hear);
      child.stderr.on("data", hear);
      child.once("error", reject);
      child.once("exit", () => reject(new Error(`${command} ended:\n${said}`)));
    });
  }

  /** Stops it with SIGTERM, as an operator does, or with SIGKILL. */
  async stop(signal: NodeJS.Signals = "SIGTERM"): Promise<void> {
    const child = this.process;
    if (!child || child.exitCode !== null || child.signalCode !== null) return;
    const ended = once(child, "exit");
    child.kill(signal);
    await ended;
  }

  /** Stops it and removes its data. */
  async close(signal: NodeJS.Signals = "SIGKILL"): Promise<void> {
    await this.stop(signal);
    await rm(this.folder, { recursive: true, force: true });
  }
}
