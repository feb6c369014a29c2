import { accessible, cut, expect, idle, tabTo, test } from "../fixtures.ts";
import { accept, attempts, card, count, seen, tap } from "../driver.ts";

test("a driver accepts, starts and completes, by the keyboard alone", async ({ open, service, region }) => {
  const [driver] = await service.drivers(1, region);
  const job = await service.dispatch(region, { site_address: "1 Key Street", note: "Gate 2" });
  const page = await open("/driver/");
  await expect(page.getByLabel("Driver token")).toBeFocused();
  await page.keyboard.insertText(driver!.token);
  await page.keyboard.press("Enter");
  const offer = card(page, "1 Key Street");
  await expect(offer).toContainText("₩350,000");
  await expect(offer).toContainText("Gate 2");
  await tabTo(page.getByText("Accept", { exact: true }).and(page.locator("button, a")));
  await page.keyboard.press("Enter");
  await expect(offer).toContainText("Yours");
  await tabTo(page.getByText("To my jobs", { exact: true }).and(page.locator("button, a")));
  await page.keyboard.press("Enter");
  await tabTo(page.getByText("Start", { exact: true }).and(page.locator("button, a")));
  await page.keyboard.press("Enter");
  await expect(offer).toContainText("In progress");
  await expect(offer.getByRole("button", { name: "Complete" })).toBeEnabled(); // the list may have been faster than the answer to Start
  await tabTo(page.getByText("Complete", { exact: true }).and(page.locator("button, a")));
  await page.keyboard.press("Enter");
  await expect(offer).toContainText("Done");
  expect((await service.read(job)).status).toBe("COMPLETED");
});

test("a double tap is one tap", async ({ openOffer, service }) => {
  const { page, job } = await openOffer("3 Twice Lane");
  const sent = count(page, "/accept");
  await accept(page).dblclick();
  await page.keyboard.press("Enter");
  await expect(card(page, "3 Twice Lane")).toContainText("Yours");
  expect(sent()).toBe(1);
  await expect.poll(() => attempts(service, job.id)).toHaveLength(1); // the service writes it after the answer
});

test("a double tap on Start does not complete the job", async ({ openDriver, service, region }) => {
  const [driver] = await service.drivers(1, region);
  const job = await service.dispatch(region, { site_address: "3 Twice Lane" });
  await service.accept(job.id, driver!.token);
  const page = await openDriver(driver!.token);
  await page.getByRole("link", { name: /My jobs/ }).click();
  const start = card(page, "3 Twice Lane").getByRole("button", { name: "Start" });
  await expect(start).toBeEnabled();
  // The second tap comes down as soon as the button says Complete.
  await start.evaluate((button) => {
    const { x, y } = button.getBoundingClientRect();
    new MutationObserver(() => setTimeout(() => {
      const under = document.elementFromPoint(x + 20, y + 20)?.closest("button");
      if (under?.textContent !== "Complete" || document.title.startsWith("tapped")) return;
      under.dispatchEvent(new MouseEvent("click", { bubbles: true, detail: 1 }));
      document.title = "tapped twice";
    })).observe(document.body, { childList: true, subtree: true, characterData: true });
  });
  const sent = page.waitForRequest((r) => r.url().endsWith("/start"));
  await start.click();
  expect((await sent).postDataJSON()).toEqual({ round: 1 });
  await expect(page).toHaveTitle("tapped twice");
  expect((await service.read(job)).status).toBe("IN_PROGRESS");
  await card(page, "3 Twice Lane").getByRole("button", { name: "Complete" }).click();
  await expect(card(page, "3 Twice Lane")).toContainText("Done");
});

test("a tap on a card that has just moved under the finger does nothing", async ({ openDriver, service, region }) => {
  const [driver] = await service.drivers(1, region);
  const page = await openDriver(driver!.token);
  await page.setViewportSize({ width: 390, height: 1600 });
  await expect(page.getByText("Live")).toBeVisible();
  await service.dispatch(region, { site_address: "1 Meant" });
  await expect(accept(card(page, "1 Meant"))).toBeEnabled();
  const sent = count(page, "/accept");
  // The finger comes down as soon as another offer has taken the place of the first.
  await page.evaluate(() => {
    const { x, y } = document.querySelector(".accept")!.getBoundingClientRect();
    new MutationObserver(() => {
      if (document.querySelectorAll("article").length < 2 || document.title.startsWith("tapped")) return;
      const under = document.elementFromPoint(x + 20, y + 20);
      under?.dispatchEvent(new MouseEvent("click", { bubbles: true, detail: 1 }));
      document.title = "tapped: " + (under?.closest(".accept") ? under.closest("article")!.textContent! : "no button");
    }).observe(document.body, { childList: true, subtree: true });
  });
  await service.dispatch(region, { site_address: "2 Above" });
  await expect.poll(() => page.title()).toMatch(/^tapped: .*2 Above/s);
  await tap(card(page, "1 Meant"));
  await expect(card(page, "1 Meant")).toContainText("Yours");
  expect(sent()).toBe(1);
});

test("an offer that is canceled, taken or changed shows that on the open page", async ({ openDriver, service, region }) => {
  const [me, other] = await service.drivers(2, region);
  const page = await openDriver(me!.token);
  await page.evaluate(() => { Object.assign(window, { neverReloaded: true }); });
  const make = (site: string) => seen(page, service, region, site);
  const canceled = await make("4 Gone Gate");
  const taken = await make("5 Fast Field");
  const changed = await make("6 New Nook");
  await service.change(canceled, "cancel", { reason_code: "NO_LONGER_NEEDED" });
  await expect(card(page, "4 Gone Gate")).toContainText("CanceledThe office canceled it.");
  await service.accept(taken.id, other!.token);
  await expect(card(page, "5 Fast Field")).toContainText("TakenAnother driver has it.");
  await service.patch(changed, { fee: { amount: 420000, currency: "KRW" } });
  await expect(card(page, "6 New Nook")).toContainText("New terms");
  await expect(card(page, "6 New Nook")).toContainText("₩420,000 was ₩350,000");
  await expect(accept(page)).toHaveCount(1);
  await tap(page);
  await expect(card(page, "6 New Nook")).toContainText("Yours");
  await page.getByRole("link", { name: /^My jobs/ }).click();
  await service.change(await service.read(changed), "cancel"); // at any time before or after the page has read its jobs
  await expect(page.getByRole("alert").filter({ hasText: "Canceled by the office: 6 New Nook" })).toBeVisible();
  await expect(page.getByRole("article")).toHaveCount(0);
  expect(await page.evaluate(() => "neverReloaded" in window)).toBe(true);
});

test("a tap on old terms wins nothing, and must be repeated", async ({ openOffer, service }) => {
  const { page, job } = await openOffer("7 Old Terms");
  await expect(accept(page)).toBeVisible();
  await cut(page, "**/v1/me/offers*");
  await service.patch(job, { fee: { amount: 10000, currency: "KRW" } });
  await tap(page);
  await expect(card(page, "7 Old Terms")).toContainText("The terms have changed");
  expect((await service.read(job)).status).toBe("PENDING");
  await expect(page.getByText(/^Cut off from the service/)).toBeVisible();
  await page.unroute("**/v1/me/offers*");
  await expect(page.getByText("Live")).toBeVisible();
  await expect(card(page, "7 Old Terms")).toContainText("₩10,000 was ₩350,000");
  await page.getByRole("button", { name: "Accept the new terms" }).press("Enter");
  await expect(card(page, "7 Old Terms")).toContainText("Yours");
});

test("a later opening counts down by the service's clock, not by the phone's", { tag: "@slow" }, async ({ openOffer, service, region }) => {
  const { page } = await openOffer("8 Open Now");
  await page.clock.install({ time: Date.now() - 3600_000 });
  await page.reload();
  await expect(card(page, "8 Open Now")).toContainText(/Ends in (10:00|[1-9]:\d\d)/);
  const sent = count(page, "/accept");
  const opens = Date.now() + 600_000;
  const job = await service.dispatch(region, {
    site_address: "9 Later", opens_at: new Date(opens).toISOString(), expires_at: new Date(opens + 600_000).toISOString(),
    work_starts_at: new Date(opens + 96 * 3600_000).toISOString(), work_ends_at: new Date(opens + 99 * 3600_000).toISOString(),
  });
  const later = card(page, "9 Later");
  await later.getByRole("button", { name: /^Opens in (10:00|[1-9]:\d\d)/ }).press("Enter");
  await expect(accept(later)).toHaveCount(0);
  expect(sent()).toBe(0);
  service.move(job.id, "opens_at", 0);
  await page.clock.fastForward("10:00");
  await idle(page); // the poll that is due tells it the true time, and the opening as it is now
  await tap(later);
  await expect(later).toContainText("Yours");
});

test("an ineligible driver sees the reason", async ({ openDriver, service, region }) => {
  const [driver] = await service.drivers(1, region);
  await service.dispatch(region, { site_address: "10 First" });
  await service.dispatch(region, { site_address: "11 Overlaps" });
  const page = await openDriver(driver!.token);
  await tap(card(page, "10 First"));
  await expect(card(page, "10 First")).toContainText("Yours");
  await tap(card(page, "11 Overlaps"));
  await expect(card(page, "11 Overlaps")).toContainText("You have other work then");
  await cut(page, "**/v1/me/offers*");
  await service.call("PATCH", `/v1/admin/drivers/${driver!.id}`, { on_duty: false });
  await tap(card(page, "11 Overlaps"));
  await expect(card(page, "11 Overlaps")).toContainText("You are off duty.");
});

test("a driver declines, and gives a job back, with a reason", async ({ openOffer, service }) => {
  const { page, job } = await openOffer("12 Back Street");
  const offer = card(page, "12 Back Street");
  await offer.getByRole("button", { name: "Decline" }).click();
  await page.getByLabel("The fee is too low").check();
  await page.getByRole("dialog").getByRole("button", { name: "Decline" }).click();
  await expect(offer).toContainText("Declined");
  await idle(page); // a list may have been faster than the answer, which ends what is known of a tap
  const { items } = await service.call("GET", `/v1/admin/dispatches/${job.id}/offers`);
  expect(items[0]).toMatchObject({ offer_status: "DECLINED", decline_reason: "FEE_TOO_LOW" });

  await tap(offer);
  await expect(offer).toContainText("Yours");
  await page.getByRole("link", { name: "To my jobs" }).click();
  await offer.getByRole("button", { name: "Withdraw" }).click();
  await page.getByRole("button", { name: "Back" }).click();
  await expect(offer).toContainText("Accepted");
  await offer.getByRole("button", { name: "Withdraw" }).click();
  await page.getByLabel("I am ill").check();
  await page.getByRole("dialog").getByRole("button", { name: "Withdraw" }).click();
  await expect(page.getByText("No jobs.")).toBeVisible();
  await idle(page);
  const events = await service.events(job);
  expect(events).toContainEqual(expect.objectContaining({ type: "dispatch.withdrawn", reason_code: "ILL" }));
  await page.getByRole("link", { name: /^Offers/ }).click();
  await tap(offer);
  await expect(offer).toContainText("Yours");
});

test("there are no offers off duty, and an unsaved change is not shown as saved", async ({ openOffer, service }) => {
  const { page, driver } = await openOffer("13 Duty Drive");
  const duty = page.getByRole("switch", { name: "On duty" });
  await expect(duty).toBeChecked();
  await expect(card(page, "13 Duty Drive")).toBeVisible();
  await page.route("**/v1/me/duty", (route) => route.abort());
  await duty.click();
  await expect(page.getByText("Not known yet whether that was saved")).toBeVisible();
  await expect(card(page, "13 Duty Drive")).toBeVisible();
  await page.unroute("**/v1/me/duty");
  await expect(page.getByText("You are off duty. Go on duty to get offers.")).toBeVisible();
  expect((await service.call("GET", `/v1/admin/drivers/${driver.id}`)).on_duty).toBe(false);
  await duty.click();
  await expect(card(page, "13 Duty Drive")).toBeVisible();
});

test("an offer is reported as seen once, when it is on the screen", { tag: "@slow" }, async ({ openDriver, service, region }) => {
  const [driver] = await service.drivers(1, region);
  const ids: string[] = [];
  for (let n = 0; n < 6; n++) ids.push((await service.dispatch(region, { site_address: `${n} Seen Square` })).id);
  const page = await openDriver(driver!.token);
  const told: string[] = [];
  page.on("request", (r) => { if (r.url().endsWith("/seen")) told.push(r.url().split("/").at(-2)!); });
  await page.route("**/seen", (route) => route.abort(), { times: 1 });
  await page.reload();
  await expect(page.getByRole("article")).toHaveCount(6);
  const seen = async () => (await Promise.all(ids.map((id) => service.call("GET", `/v1/admin/dispatches/${id}/offers`))))
    .map((o) => Boolean(o.items[0]?.seen_at));
  await expect.poll(async () => (await seen())[5]).toBe(true);
  expect((await seen())[0]).toBe(false);
  for (const article of await page.getByRole("article").all()) await article.scrollIntoViewIfNeeded();
  await expect.poll(seen).toEqual([true, true, true, true, true, true]);
  // The page has stored that too, or would report it again. A list that was read before a report may have come after it: it reads again.
  await expect.poll(() => page.evaluate(() => {
    document.dispatchEvent(new Event("visibilitychange"));
    return JSON.parse(sessionStorage.getItem("firsttap.driver")!).known.offers.map((o: { offer_status: string }) => o.offer_status);
  })).toEqual(ids.map(() => "SEEN"));
  const before = told.length;
  await page.reload();
  await expect(page.getByRole("article")).toHaveCount(6);
  await service.dispatch(region, { site_address: "A New One" });
  await expect(page.getByRole("article")).toHaveCount(7);
  await card(page, "A New One").scrollIntoViewIfNeeded();
  await expect.poll(() => told.length).toBe(before + 1);
});

test.describe("in Korean", () => {
  test.use({ locale: "ko-KR" });
  test("the page is in Korean, and in English by choice", async ({ openDriver, service, region }) => {
    const [driver] = await service.drivers(1, region);
    await service.dispatch(region, { site_address: "14 한국로", work_starts_at: "2031-05-06T00:00:00Z", work_ends_at: "2031-05-06T03:00:00Z" });
    const page = await openDriver(driver!.token);
    const offer = card(page, "14 한국로");
    await expect(page.locator("html")).toHaveAttribute("lang", "ko");
    await expect(offer.getByRole("button", { name: "수락" })).toBeVisible();
    await expect(offer).toContainText("5월 6일");
    await expect(offer).toContainText("₩350,000");
    await page.getByRole("button", { name: "English" }).click();
    await expect(page.locator("html")).toHaveAttribute("lang", "en");
    await expect(offer.getByRole("button", { name: "Accept" })).toBeVisible();
    await page.reload();
    await expect(offer.getByRole("button", { name: "Accept" })).toBeVisible();
    await expect(offer).toContainText("May 6");
  });
});

test.describe("on a phone", () => {
  test.use({ viewport: { width: 390, height: 844 } });
  test("the page is accessible", { tag: "@slow" }, async ({ open, openDriver, service, region }) => {
    const signIn = await open("/driver/");
    await expect(signIn.getByRole("button", { name: "Sign in" })).toBeVisible();
    await accessible(signIn);
    const drivers = await service.drivers(2, region);
    const sites = ["15 Open", "16 Won", "17 Lost"];
    const hours = 3600_000;
    const jobs = await Promise.all(sites.map((site, i) => {
      const starts = Date.now() + 24 * (i + 1) * hours;
      return service.dispatch(region, { site_address: site, work_starts_at: new Date(starts).toISOString(), work_ends_at: new Date(starts + hours).toISOString() });
    }));
    const page = await openDriver(drivers[0]!.token);
    await expect(accept(page)).toHaveCount(3);
    await cut(page, "**/v1/me/offers*");
    await service.accept(jobs[2].id, drivers[1]!.token);
    await tap(card(page, "16 Won"));
    await expect(card(page, "16 Won")).toContainText("Yours");
    await expect(page.getByText("Cut off from the service.")).toBeVisible();
    await accessible(page);
    expect(await page.evaluate(() => document.documentElement.scrollWidth)).toBeLessThanOrEqual(390);
    await page.getByRole("link", { name: "To my jobs" }).click();
    await card(page, "16 Won").getByRole("button", { name: "Withdraw" }).click();
    await expect(page.getByRole("dialog")).toBeVisible();
    await accessible(page);
  });
});
