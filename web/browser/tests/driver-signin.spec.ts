import { type Page, accessible, confirmLink, expect, test } from "../fixtures.ts";
import { card, stored, tap } from "../driver.ts";

test("each tab keeps its own driver, and a new tab has the last driver", { tag: "@slow" }, async ({ openDriver, service, region }) => {
  const [a, b] = await service.drivers(2, region);
  const first = await openDriver(a!.token);
  await expect(first.getByText("Driver 1")).toBeVisible();
  expect(first.url()).not.toContain("token");
  const second = await first.context().newPage();
  await second.goto(`${service.url}/driver/#token=${b!.token}`);
  await second.getByRole("button", { name: "Sign in with the link" }).click();
  await expect(second.getByText("Driver 2")).toBeVisible();
  await first.reload();
  await expect(first.getByText("Driver 1")).toBeVisible();
  const third = await first.context().newPage();
  await third.goto(`${service.url}/driver/`);
  await expect(third.getByText("Driver 2")).toBeVisible();
  await first.getByRole("button", { name: "Sign out" }).click();
  await first.reload();
  await expect(first.getByLabel("Driver token")).toBeVisible();
});

test("a link with a token is for its driver, not the tab's or the device's", { tag: "@slow" }, async ({ openDriver, service, region }) => {
  const [a, b, c] = await service.drivers(3, region);
  const page = await openDriver(a!.token);
  await expect(page.getByText("Driver 1")).toBeVisible();
  const link = (token: string) => `${service.url}/driver/#token=${token}`;
  const wanted = (tab: Page) => tab.getByRole("button", { name: "Sign in with the link" }).click();
  await page.goto(link(b!.token)); // the page stays, only the hash changes
  await wanted(page);
  await expect(page.getByText("Driver 2")).toBeVisible();
  await page.goto("about:blank");
  await page.goto(link(c!.token));
  await wanted(page);
  await expect(page.getByText("Driver 3")).toBeVisible();
  expect(page.url()).toBe(`${service.url}/driver/`);
  const tabs = await Promise.all([a, b].map(async (driver) => {
    const tab = await page.context().newPage();
    await tab.goto(link(driver!.token));
    await wanted(tab);
    return tab;
  }));
  for (const [i, tab] of tabs.entries()) {
    await expect(tab.getByText(`Driver ${i + 1}`)).toBeVisible();
    await tab.reload();
    await expect(tab.getByText(`Driver ${i + 1}`)).toBeVisible();
  }
  await page.reload();
  await expect(page.getByText("Driver 3")).toBeVisible();
});

test("a foreign link replaces no driver unconfirmed, in this tab or a new one", { tag: "@slow" }, async ({ openDriver, service, region }) => {
  const [mine, theirs] = await service.drivers(2, region);
  const page = await openDriver(mine!.token);
  await expect(page.getByText("Driver 1")).toBeVisible();
  await stored(page, "Driver 1"); // the question has the stored name
  const link = `${service.url}/driver/#token=${theirs!.token}`;
  const tab = await page.context().newPage();
  for (const p of [page, tab]) {
    await p.goto(link);
    const ask = p.getByRole("dialog", { name: "Sign in as another driver?" });
    await expect(ask).toContainText("You are signed in as Driver 1.");
    expect(p.url()).toBe(`${service.url}/driver/`);
    await accessible(p);
    await ask.getByRole("button", { name: "Stay signed in" }).click();
    await expect(ask).toBeHidden();
    await expect(p.getByText("Driver 1")).toBeVisible();
    await p.reload();
    await expect(p.getByText("Driver 1")).toBeVisible();
    expect(await p.evaluate(() => JSON.stringify([{ ...sessionStorage }, { ...localStorage }]))).not.toContain(theirs!.token);
  }
  await page.goto(link);
  await expect(page.getByRole("dialog")).toBeVisible();
  await page.keyboard.press("Escape");
  await expect(page.getByRole("dialog")).toHaveCount(0);
  await page.goto(`${service.url}/driver/#token=${mine!.token}`); // the tab's own link, once more
  await expect(page).toHaveURL(`${service.url}/driver/`);
  await expect(page.getByRole("dialog")).toHaveCount(0);
  await expect(page.getByText("Driver 1")).toBeVisible();
  await tab.goto("about:blank");
  await page.getByRole("button", { name: "Sign out" }).click();
  await expect(page.getByLabel("Driver token")).toBeVisible();
  await page.goto(link); // there is no session
  const ask = page.getByRole("dialog", { name: "Sign in with this link?" });
  await expect(ask).toContainText("The link signs in Driver 2.");
  await accessible(page);
  await ask.getByRole("button", { name: "Don't sign in" }).click();
  await expect(page.getByLabel("Driver token")).toBeVisible();
  expect(await page.evaluate(() => JSON.stringify([{ ...sessionStorage }, { ...localStorage }]))).not.toContain(theirs!.token);
  await page.goto(link);
  await confirmLink(page);
  await expect(page.getByText("Driver 2")).toBeVisible();
});

test("a sign-out leaves no data behind", { tag: "@slow" }, async ({ openDriver, service, region }) => {
  const [driver, other] = await service.drivers(2, region);
  for (const site of ["1 Private Place", "2 Private Place"]) await service.dispatch(region, { site_address: site });
  const page = await openDriver(driver!.token);
  await tap(card(page, "1 Private Place"));
  await expect(card(page, "1 Private Place")).toContainText("Yours");
  await page.route("**/accept", (route) => route.abort());
  await tap(card(page, "2 Private Place"));
  await expect(card(page, "2 Private Place")).toContainText("Not known yet");
  const left = () => page.evaluate(async () => {
    const kept = JSON.stringify([{ ...sessionStorage }, { ...localStorage }]);
    const requests = await Promise.all((await caches.keys()).map(async (name) => (await caches.open(name)).keys()));
    const databases = await indexedDB.databases();
    return { kept, api: requests.flat().map((r) => r.url).filter((u) => u.includes("/v1/")), databases, cookie: document.cookie };
  });
  expect((await left()).kept).toContain("Private Place");
  const tab = await page.context().newPage();
  await tab.goto(page.url());
  await expect(tab.getByText("Driver 1")).toBeVisible();
  await expect(tab.getByText("Live")).toBeVisible(); // it shows the stored name before it listens to other tabs
  await page.getByRole("button", { name: "Sign out" }).click();
  await expect(page.getByLabel("Driver token")).toBeVisible();
  await expect(tab.getByLabel("Driver token")).toBeVisible();
  const { kept, ...more } = await left();
  for (const secret of [driver!.token, driver!.id, "Driver 1", "Private"]) expect(kept).not.toContain(secret);
  expect(more).toEqual({ api: [], databases: [], cookie: "" });
  await page.getByLabel("Driver token").fill(other!.token);
  await page.getByRole("button", { name: "Sign in" }).click();
  await expect(page.getByText("Driver 2")).toBeVisible();
});

test("an invalid token leads back to the sign-in, which shows the reason", async ({ openDriver, own }) => {
  const [driver] = await own.drivers(1, "seoul");
  const page = await openDriver(driver!.token, own);
  await expect(page.getByText("Driver 1")).toBeVisible();
  await page.evaluate(() => navigator.serviceWorker.ready.then(() => {})); // or its requests meet the service that stops
  await own.stop();
  own.settings = { FIRSTTAP_JWT_SECRET: "b".repeat(48) };
  await own.start();
  await expect(page.getByRole("alert")).toHaveText("Your sign-in has ended, or was revoked. Sign in again.");
  await page.getByLabel("Driver token").fill("한글 token");
  await page.getByRole("button", { name: "Sign in" }).click();
  await expect(page.getByRole("alert")).toContainText("not a driver's token");
  await page.getByLabel("Driver token").fill(driver!.token);
  await page.getByRole("button", { name: "Sign in" }).click();
  await expect(page.getByRole("alert")).toContainText("not a driver's token");
  const { token } = await own.call("POST", `/v1/admin/drivers/${driver!.id}/tokens`);
  await page.getByLabel("Driver token").fill(` ${token}\n`);
  await page.getByRole("button", { name: "Sign in" }).click();
  await expect(page.getByText("Driver 1")).toBeVisible();
});

test("a link that is opened while the page appears signs in", { tag: "@slow" }, async ({ open, service, region }) => {
  const [driver] = await service.drivers(1, region);
  const page = await open("/driver/");
  await page.addInitScript((token) => {
    new MutationObserver((_, watch) => {
      if (!document.querySelector("#app input")) return;
      watch.disconnect();
      location.hash = `token=${token}`;
    }).observe(document, { childList: true, subtree: true });
  }, driver!.token);
  await page.reload();
  await confirmLink(page);
  await expect(page.getByText(driver!.name, { exact: true })).toBeVisible();
});
