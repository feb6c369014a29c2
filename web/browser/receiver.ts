import { createServer, type IncomingMessage } from "node:http";
import type { AddressInfo } from "node:net";

/** A program that gets webhooks. It answers with status and answer, which a test may change. */
export class Receiver {
  url = "";
  status = 204;
  answer = "";
  readonly got: { headers: IncomingMessage["headers"]; body: string }[] = [];
  private readonly server = createServer(async (req, res) => {
    const chunks: Buffer[] = [];
    for await (const chunk of req) chunks.push(chunk as Buffer);
    this.got.push({ headers: req.headers, body: Buffer.concat(chunks).toString() });
    res.writeHead(this.status).end(this.answer);
  });

  async start(): Promise<this> {
    await new Promise<void>((resolve) => this.server.listen(0, "127.0.0.1", resolve));
    this.url = `http://127.0.0.1:${(this.server.address() as AddressInfo).port}/webhooks`;
    return this;
  }

  async close(): Promise<void> {
    this.server.closeAllConnections();
    await new Promise((resolve) => this.server.close(resolve));
  }
}
