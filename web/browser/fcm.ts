import { Program } from "./program.ts";

/** A simulated push service: a process of notify/fcmsim. */
export class Fcm extends Program {
  /** The value for FIRSTTAP_FCM_ENDPOINT. */
  endpoint = "";

  async start(): Promise<this> {
    this.endpoint = (await this.run(process.env.FIRSTTAP_FCMSIM!, ["-addr", "127.0.0.1:0"], {}, /^fcmsim: FCM is (\S+)\n/m))[1]!;
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
}
