import { type Page, expect, test } from "../fixtures.ts";
import { column, counted, soon } from "../board.ts";
import type { Json } from "../service.ts";

test.use({ settings: { FIRSTTAP_RATE_LIMIT_DRIVER: "5000/s" } });

test("500 open dispatches: few bytes are sent, and only changed cards are rendered or read", { tag: "@slow" }, async ({ openConsole, own: service }) => {
  test.setTimeout(180_000);
  const [driver] = await service.drivers(1, "seoul");
  const all: Json[] = [];
  while (all.length < 500) {
    all.push(...await Promise.all(Array.from({ length: 20 }, (_, i) =>
      service.dispatch("seoul", { site_address: `${all.length + i} Teheran-ro`, expires_at: soon(3600_000), note: "Gate 2, ask for Mr. Park." }))));
  }
  const { page, bytes } = await firstView(await openConsole("#/jobs", undefined, service), service.url);
  await counted(page, { Pending: 500 });
  await expect(column(page, "Pending").getByRole("link")).toHaveCount(500);
  await expect(page.getByText("live", { exact: true })).toBeVisible();
  expect(bytes()).toBeLessThan(200_000);

  const drawn = () => page.evaluate(async (module) => (await import(module)).drawn.cards as number, "/console/board_card.js");
  const before = await drawn();
  const countdown = column(page, "Pending").getByRole("link").first().locator("time");
  for (let ticks = 0; ticks < 2; ticks++) await expect(countdown).not.toHaveText((await countdown.textContent())!);
  expect(await drawn()).toBe(before);

  let asked = 0;
  page.on("request", () => asked++);
  const burst = 60;
  await Promise.all(Array.from({ length: burst }, (_, i) => service.dispatch("seoul", { site_address: `${i} New-ro`, expires_at: soon(3600_000) })));
  for (const d of all.slice(0, burst)) {
    const { dispatch } = await service.accept(d.id, driver!.token);
    await service.change(dispatch, "unassign");
  }
  await counted(page, { Pending: 560, Accepted: 0 });
  await expect(column(page, "Pending").getByRole("link", { name: "New-ro" })).toHaveCount(burst);
  await expect(column(page, "Pending").getByText("round 2")).toHaveCount(burst);
  // One rendering for each event, and one more for each dispatch that was read.
  expect(await drawn() - before).toBeLessThanOrEqual(burst * (1 + 1 + 2 + 1 + 1));
  expect(asked).toBeLessThan(burst / 2);
});

/** Opens the board in a tab without a cache, and counts the bytes over the wire. */
async function firstView(signedIn: Page, url: string): Promise<{ page: Page; bytes: () => number }> {
  const page = await signedIn.context().newPage();
  const cdp = await page.context().newCDPSession(page);
  await cdp.send("Network.enable");
  await cdp.send("Network.setCacheDisabled", { cacheDisabled: true });
  let bytes = 0;
  cdp.on("Network.loadingFinished", (e) => { bytes += e.encodedDataLength; });
  await page.goto(`${url}/console/#/board`);
  return { page, bytes: () => bytes };
}
