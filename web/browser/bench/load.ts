import type { Json, Service } from "../service.ts";

const hour = 3600_000;
const soon = (ms: number) => new Date(Date.now() + ms).toISOString();
const match = (d: Json) => ({ headers: { "If-Match": `"${d.version}"` } });

/** Creates open dispatches, and changes them at a rate as users and drivers do: accept, extend, unassign, create, cancel. */
export class Load {
  private pool: Json[] = [];
  private extra: Json[] = [];
  private drivers: { token: string }[] = [];
  private ticks = 0;
  /** The number of changes that the service made, and of those that it refused. */
  made = 0;
  refused: string[] = [];

  constructor(private readonly service: Service, private readonly region: string) {}

  async fill(n: number): Promise<void> {
    this.drivers = await this.service.drivers(40, this.region);
    for (let i = 0; i < n; i += 10) {
      this.pool.push(...await Promise.all(Array.from({ length: Math.min(10, n - i) }, (_, j) => this.create(i + j))));
    }
  }

  private create(i: number): Promise<Json> {
    return this.service.dispatch(this.region, {
      site_address: `${i} Teheran-ro, Gangnam-gu`, expires_at: soon(hour), note: "Gate 2, ask for Mr. Park.", site_lat: 37.4979, site_lng: 127.0276,
    });
  }

  /** Makes rate changes a second for ms, and returns the time until all of them are answered. */
  async run(rate: number, ms: number): Promise<number> {
    const began = performance.now();
    const under: Promise<void>[] = [];
    for (let i = 0; i < rate * ms / 1000; i++) {
      const wait = began + i * 1000 / rate - performance.now();
      if (wait > 0) await new Promise((resolve) => setTimeout(resolve, wait));
      under.push(this.change(this.ticks++).then(() => { this.made++; }, (err) => { this.refused.push(String(err)); }));
    }
    await Promise.all(under);
    return performance.now() - began;
  }

  private taken: { d: Json; accepted: Promise<Json> }[] = [];

  private async change(n: number): Promise<void> {
    const service = this.service, d = this.pool[Math.floor(n / 5) % this.pool.length];
    switch (n % 5) {
      case 0: {
        const { token } = this.drivers[Math.floor(n / 5) % this.drivers.length]!;
        const accepted = service.accept(d.id, token);
        this.taken.push({ d, accepted });
        await accepted;
        return;
      }
      case 1: {
        const other = this.pool[(Math.floor(n / 5) + this.pool.length / 2) % this.pool.length];
        Object.assign(other, await service.call("POST", `/v1/admin/dispatches/${other.id}/extend`, { expires_at: soon(hour + n * 1000) }, match(other)));
        return;
      }
      case 2: {
        const { d: mine, accepted } = this.taken.shift()!;
        const { dispatch } = await accepted;
        Object.assign(mine, await service.call("POST", `/v1/admin/dispatches/${mine.id}/unassign`, {}, match(dispatch)));
        return;
      }
      case 3:
        this.extra.push(await this.create(n));
        return;
      default: {
        const old = this.extra.shift();
        if (old) await service.call("POST", `/v1/admin/dispatches/${old.id}/cancel`, {}, match(old));
      }
    }
  }
}

/** Counts the stream's events, until it is stopped. */
export async function countEvents(service: Service): Promise<{ events: () => number; stop: () => void }> {
  const abort = new AbortController();
  const response = await fetch(`${service.url}/v1/admin/stream`, { signal: abort.signal, headers: { Authorization: `Bearer ${service.adminKey}` } });
  let n = 0;
  (async () => {
    const text = new TextDecoder();
    let rest = "";
    for await (const chunk of response.body as unknown as AsyncIterable<Uint8Array>) {
      const lines = (rest + text.decode(chunk, { stream: true })).split("\n");
      rest = lines.pop()!;
      n += lines.filter((l) => l.startsWith("event: dispatch.")).length;
    }
  })().catch((err) => {
    if (!abort.signal.aborted) throw err;
  });
  return { events: () => n, stop: () => abort.abort() };
}
