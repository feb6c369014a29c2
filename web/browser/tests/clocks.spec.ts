import { type Page, expect, ownClock, test } from "../fixtures.ts";
import { lookAway } from "../dispatch.ts";
import { holdSupply, past } from "../supply.ts";

// A page that nobody looks at reads nothing, so only its clock changes what it shows.
test("every clock goes on between two readings", { tag: "@slow" }, async ({ own, openConsole, openDriver }) => {
  past(own, [[1, "", 5, 1]]);
  const [driver] = await own.drivers(1, "seoul");
  await own.call("PUT", "/v1/me/devices/installation", { platform: "android", push_token: "phone" }, { token: driver!.token });
  const d = await own.dispatch("seoul");
  await holdSupply(own);

  const supply = (page: Page) => page.getByRole("row").filter({ has: page.getByRole("rowheader", { name: "supply" }) });
  const clocks: [Page, (page: Page) => ReturnType<Page["locator"]>, RegExp][] = [
    [await openDriver(driver!.token, own), (page) => page.getByRole("timer"), /^\d:\d\d$/],
    [await openConsole(`#/dispatches/${d.id}`, undefined, own), (page) => page.locator(".left"), /^\d:\d\d$/],
    [await openConsole("#/jobs", undefined, own), (page) => supply(page).getByRole("cell").nth(1), /held \d\d:\d\d/],
    [await openConsole("#/locks", undefined, own), (page) => supply(page).getByRole("cell").nth(2), /^\d\d:\d\d/],
    [await openConsole("#/supply", undefined, own), (page) => page.getByRole("definition").filter({ hasText: "ago" }), /\d+ (s|min) ago/],
    [await openConsole("#/notifications/SENT", undefined, own), (page) => page.getByRole("cell", { name: /^\d+ (s|min)$/ }), /\d/],
  ];
  for (const [page, find, now] of clocks) {
    await ownClock(page);
    const clock = find(page).first();
    await expect(clock).toHaveText(now);
    await lookAway(page);
    for (let moves = 0; moves < 3; moves++) { // a reading that began before may change it once
      const before = await clock.innerText();
      await page.clock.fastForward(before.includes(":") ? 2_000 : 120_000);
      await expect(clock, before).not.toHaveText(before, { useInnerText: true });
    }
  }
});
