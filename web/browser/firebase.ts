import { once } from "node:events";
import { existsSync } from "node:fs";
import { writeFile } from "node:fs/promises";
import { createServer } from "node:net";
import { join } from "node:path";
import { Program } from "./program.ts";
import type { Json } from "./service.ts";

const project = "demo-firsttap";

// install.sh puts the emulator beside FIRSTTAP_MYSQL_ROOT.
const script = join(process.env.FIRSTTAP_MYSQL_ROOT ?? "/var/cache/firsttap/mysql", "..", "firebase", "node_modules", "firebase-tools", "lib", "bin", "firebase.js");

/** The reason for a missing emulator; "" if it is installed or required. */
export const noFirebase = existsSync(script) || /firebase/.test(process.env.FIRSTTAP_TEST_REQUIRE ?? "") ? "" : "firebase-tools is not installed";

async function freePort(): Promise<number> {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as { port: number };
  server.close();
  await once(server, "close");
  return port;
}

/** A Firebase Auth emulator. */
export class Firebase extends Program {
  host = "";

  async start(): Promise<this> {
    const ports = await Promise.all([freePort(), freePort(), freePort()]);
    const [auth, hub, logging] = ports.map((port) => ({ host: "127.0.0.1", port }));
    await writeFile(join(this.folder, "firebase.json"), JSON.stringify({ emulators: { auth, hub, logging, ui: { enabled: false } } }));
    await this.run(process.execPath, [script, "emulators:start", "--only", "auth", "--project", project],
      { HOME: this.folder, XDG_CONFIG_HOME: this.folder, XDG_CACHE_HOME: this.folder, CI: "1" }, /All emulators ready/);
    this.host = `127.0.0.1:${auth!.port}`;
    return this;
  }

  /** The settings of a service that uses it. */
  get settings(): Record<string, string> {
    return { FIRSTTAP_FIREBASE_PROJECT: project, FIREBASE_AUTH_EMULATOR_HOST: this.host, FIRSTTAP_PUSH: "log" };
  }

  /** Creates a user, and returns the id. */
  async user(email: string, password: string): Promise<string> {
    return (await this.call("/v1/accounts:signUp?key=any", { email, password })).localId;
  }

  /** Removes a user, which revokes the user's tokens. */
  async remove(localId: string): Promise<void> {
    await this.call(`/v1/projects/${project}/accounts:delete`, { localId });
  }

  private async call(path: string, body: Json): Promise<Json> {
    const response = await fetch(`http://${this.host}/identitytoolkit.googleapis.com${path}`, {
      method: "POST", headers: { "Content-Type": "application/json", ...(path.includes("projects") && { Authorization: "Bearer owner" }) }, body: JSON.stringify(body),
    });
    if (!response.ok) throw new Error(`firebase: ${response.status} ${await response.text()}`);
    return response.json();
  }
}
