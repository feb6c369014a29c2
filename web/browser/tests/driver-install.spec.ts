import { expect, test } from "../fixtures.ts";
import { card, stored } from "../driver.ts";

test("the page can be installed", async ({ open }) => {
  const page = await open("/driver/");
  await page.evaluate(async () => { await navigator.serviceWorker.ready; });
  const cdp = await page.context().newCDPSession(page);
  const manifest = await cdp.send("Page.getAppManifest");
  expect(manifest.errors).toEqual([]);
  expect(JSON.parse(manifest.data!)).toMatchObject({ start_url: "/driver/", display: "standalone" });
  const icons = await page.evaluate(async (list: { src: string; type: string }[]) => Promise.all(list.map(async ({ src, type }) => {
    const blob = await (await fetch(src)).blob();
    const { width, height } = await createImageBitmap(blob);
    return { sizes: `${width}x${height}`, type: blob.type === type };
  })), JSON.parse(manifest.data!).icons);
  expect(icons).toEqual(JSON.parse(manifest.data!).icons.map(({ sizes }: { sizes: string }) => ({ sizes, type: true })));
  const { installabilityErrors: errors } = await cdp.send("Page.getInstallabilityErrors");
  expect(errors.filter((e) => e.errorId !== "in-incognito")).toEqual([]);
});

test("the page opens without the service, and shows the last known jobs as old", async ({ openDriver, own }) => {
  const [driver] = await own.drivers(1, "seoul");
  const job = await own.dispatch("seoul", { site_address: "1 Offline" });
  await own.accept(job.id, driver!.token);
  const page = await openDriver(driver!.token, own);
  await page.evaluate(async () => { await navigator.serviceWorker.ready; });
  await page.getByRole("link", { name: /^My jobs/ }).click();
  await expect(card(page, "1 Offline")).toBeVisible();
  await stored(page, "1 Offline");
  await own.stop("SIGKILL");
  const second = await page.context().newPage();
  await second.goto(`${own.url}/driver/#jobs`);
  await expect(second.getByText(/Cut off from the service. This is as of \d\d:\d\d:\d\d/)).toBeVisible();
  await expect(card(second, "1 Offline")).toContainText("Accepted");
  await own.start();
  await expect(second.getByText("Live")).toBeVisible();
});

test("the stored set is complete, without the API's answers, and never outdated", async ({ openDriver, service, region }) => {
  const [driver] = await service.drivers(1, region);
  const page = await openDriver(driver!.token);
  await page.evaluate(async () => { await navigator.serviceWorker.ready; });
  await page.reload();
  await expect(page.getByText("Live")).toBeVisible();
  const asked = await page.evaluate(() => performance.getEntriesByType("resource").map((e) => new URL(e.name).pathname));
  const files = asked.filter((p) => !p.startsWith("/v1/"));
  const kept = await page.evaluate(async () => {
    const [name, ...more] = await caches.keys();
    const requests = await (await caches.open(name!)).keys();
    return { more, paths: requests.map((r) => new URL(r.url).pathname) };
  });
  expect(kept.more).toEqual([]);
  expect(kept.paths).toEqual(expect.arrayContaining(files));
  expect(kept.paths.filter((p) => p.startsWith("/v1/"))).toEqual([]);

  const name = await page.evaluate(async () => {
    const [name] = await caches.keys();
    const old = new Response("document.title = 'old'", { headers: { "Content-Type": "text/javascript" } });
    await (await caches.open(name!)).put("/driver/main.js", old);
    const other = await caches.open("driver of an earlier release");
    await other.put("/driver/", new Response("old"));
    return name;
  });
  // The service worker takes a stored file after four seconds. The service answers, however long that takes: here it waits for it.
  const [worker] = page.context().serviceWorkers();
  await worker!.evaluate(() => { Object.assign(globalThis, { setTimeout: () => 0 }); });
  await page.reload();
  await expect(page.getByText("Live")).toBeVisible();
  expect(await page.title()).toBe("FirstTap Driver");
  await expect.poll(() => page.evaluate(() => caches.keys())).toEqual([name]);
});
