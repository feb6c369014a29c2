import { accessible, expect, ownClock, test } from "../fixtures.ts";

test.use({ settings: { FIRSTTAP_RELAY: "leader" } }); // of own

test("the locks of the leader and the relay are held, count down, and are renewed", { tag: "@slow" }, async ({ openConsole, own: service }) => {
  const page = await openConsole("#/locks", await service.key("viewer"), service);
  await ownClock(page);
  const row = (name: string) => page.getByRole("row").filter({ has: page.getByRole("rowheader", { name }) });
  let relay: any;
  await expect.poll(async () => {
    const { items } = await service.call("GET", "/v1/admin/locks");
    relay = items.find((l: any) => l.name === "relay" && l.holder);
    return relay;
  }).toBeTruthy();
  await expect(row("relay")).toContainText("sends the pushes of all instances");
  await expect(row("relay")).toContainText(relay.holder);
  await expect(row("relay")).toContainText(/0:(0\d|10)/);
  await expect(row("relay").getByRole("cell").nth(1)).toHaveText(String(relay.fence));
  await expect(row("jobs")).toContainText("leads the jobs");
  await expect(page.getByText("A fence is a number that grows")).toBeVisible();
  await accessible(page);

  await page.context().setOffline(true);
  await expect(page.getByText(/^may be old: read at/)).toBeVisible();
  await page.clock.fastForward(10_000);
  await expect(row("relay")).toContainText("now"); // it counts down, and the page receives no renewal
  await page.context().setOffline(false);
  await page.clock.fastForward(10_000);
  await expect(page.getByText("current", { exact: true })).toBeVisible();
  await expect(row("relay")).toContainText(/0:\d\d/);

  await service.stop("SIGKILL");
  await expect(page.getByText(/^may be old: read at/)).toBeVisible();
  await service.start();
  await page.clock.fastForward(10_000);
  await expect(page.getByText("current", { exact: true })).toBeVisible();
});

test("the lock of a job appears while it is held", { tag: "@slow" }, async ({ openConsole, service }) => {
  const page = await openConsole("#/locks");
  await service.call("POST", "/v1/admin/jobs/supply/run"); // keeps it for the rest of 50 s
  const supply = page.getByRole("row").filter({ has: page.getByRole("rowheader", { name: "supply" }) });
  await expect(supply).toContainText(/0:\d\d/);
  await supply.getByRole("link", { name: "a job" }).focus();
  await page.keyboard.press("Enter");
  await expect(page.getByRole("heading", { name: "Jobs" })).toBeVisible();
});
