import { accessible, expect, hold, idle, ownClock, test } from "../fixtures.ts";
import { past } from "../supply.ts";

test("the page shows that there are no points; the first count then appears", { tag: "@slow" }, async ({ own, openConsole, region }) => {
  await own.drivers(3, region);
  await own.dispatch(region);
  await own.dispatch(region);
  const page = await openConsole("#/board", await own.key("viewer"), own);
  let none = true; // the schedule may have counted already
  await page.route("**/v1/admin/supply?*", async (route) => {
    const response = await route.fetch();
    const body = await response.json();
    await route.fulfill({ response, json: none ? { ...body, items: [] } : body });
  });
  await page.evaluate(() => { location.hash = "#/supply"; });
  await ownClock(page);
  await expect(page.getByText("No points yet")).toBeVisible();
  await expect(page.getByRole("table", { name: "Regions now" }).getByRole("row").filter({ hasText: region })).toContainText(/3\s*2/);
  past(own, [[0, "", 3, 2]]); // in place of a count from before all of them were there
  none = false;
  await page.clock.fastForward(15_000);
  await expect(page.getByRole("img")).toHaveAccessibleName(/on duty .*at last 3; open .*at last 2; counted/);
  await expect(page.getByText("No points yet")).toHaveCount(0);
  await expect(page.locator("canvas")).toBeVisible();
});

test("the chart and the table by region and time", { tag: "@slow" }, async ({ own, openConsole, region }) => {
  const ago = Array.from({ length: 180 }, (_, i) => 180 - i);
  past(own, [
    ...ago.flatMap((m): [number, string, number, number][] => [[m, "", 12, m === 30 ? 9 : 4], [m, region, 7, m === 30 ? 8 : 3]]),
    // of 7 days the answer has every tenth minute
    ...ago.slice(0, 15).flatMap((m): [number, string, number, number][] => [[3000 + m, "", 40, 41], [3000 + m, region, 20, 21]]),
  ]);
  const page = await openConsole("#/supply", undefined, own);
  const chart = page.getByRole("img");
  await expect(chart).toHaveAccessibleName(/All regions together, the last 24 hours: on duty (12|0 to 12), at last \d+; open (4|0) to 9/);
  await expect(chart.locator("canvas")).toBeVisible();
  await expect.poll(() => inked(page)).toBe(true);

  await page.getByRole("combobox", { name: "Region" }).selectOption(region);
  await expect(chart).toHaveAccessibleName(new RegExp(`^${region}, the last 24 hours: on duty 7, at last 7; open 3 to 8, at last 3`));
  await page.getByRole("combobox", { name: "Time" }).selectOption("1 hour");
  await expect(chart).toHaveAccessibleName(/the last 1 hour: on duty 7, at last 7; open 3 to 8/);
  await page.getByRole("combobox", { name: "Time" }).selectOption("7 days");
  await expect(chart).toHaveAccessibleName(/the last 7 days: on duty 7 to 20, at last 7; open 3 to 21/);
  await page.getByRole("combobox", { name: "Time" }).selectOption("1 hour");

  await page.getByText("The same as a table").focus();
  await page.keyboard.press("Enter");
  const table = page.getByRole("table", { name: "Supply by time" });
  await expect(table.getByRole("row").filter({ has: page.getByRole("cell", { name: "8", exact: true }) })).toHaveCount(1);
  expect(await table.getByRole("row").count()).toBeGreaterThan(55);
  await accessible(page);
  await expect.poll(() => inked(page)).toBe(true);

  await page.setViewportSize({ width: 400, height: 800 });
  await expect.poll(async () => (await chart.locator("canvas").boundingBox())!.width).toBeLessThan(400);
  expect(await page.evaluate(() => document.documentElement.scrollWidth)).toBeLessThanOrEqual(400);
  await expect(page.locator("link[href$='uplot.css']")).toHaveCount(1);
});

test("the numbers of one region are never shown as another's", { tag: "@slow" }, async ({ own, openConsole, region }) => {
  await own.dispatch(region);
  await own.dispatch(`${region}-2`);
  const page = await openConsole("#/supply", undefined, own);
  const open = page.locator("dl.figures div").filter({ hasText: /^Open/ });
  await expect(open).toHaveText("Open2");
  const release = await hold(page, "**/v1/admin/board?region=*");
  await page.getByRole("combobox", { name: "Region" }).selectOption(region);
  await expect(open).toHaveCount(0);
  release();
  await expect(open).toHaveText("Open1");
});

test("earlier points are drawn as they become known", { tag: "@slow" }, async ({ service, openConsole, region }) => {
  past(service, [[2, region, 5, 1]]); // the schedule counts nothing there
  const page = await openConsole("#/supply");
  await ownClock(page);
  await page.getByRole("combobox", { name: "Region" }).selectOption(region);
  await expect(page.locator("canvas")).toBeVisible();
  expect(await inked(page)).toBe(false); // a single point draws no line
  past(service, Array.from({ length: 50 }, (_, i): [number, string, number, number] => [i + 3, region, 5, 1]));
  await page.clock.fastForward(15_000);
  await expect.poll(() => inked(page)).toBe(true);
  await expect(page.getByText("current", { exact: true })).toHaveCount(2);
});

test("a lost connection and its return", { tag: "@slow" }, async ({ own, openConsole, region }) => {
  past(own, [[150, "", 9, 1], [2, "", 5, 1]]);
  const page = await openConsole("#/supply", undefined, own);
  await expect(page.getByRole("img")).toHaveAccessibleName(/on duty/);
  await expect(page.locator("canvas")).toBeVisible(); // its script has been loaded
  await idle(page);
  await page.context().setOffline(true);
  await expect(page.getByText(/^may be old: read at/)).toHaveCount(2);
  await expect(page.locator("canvas")).toBeVisible();
  await own.drivers(2, region);
  await page.context().setOffline(false);
  await expect(page.getByText("current", { exact: true })).toHaveCount(2);
  await expect(page.getByRole("table", { name: "Regions now" }).getByRole("row").filter({ hasText: region })).toContainText(/2\s*0/);
  await expect(page.getByRole("img")).toHaveAccessibleName(/on duty [025] to 9/); // only the last hour was read again; the schedule may have counted, too
});

test("the page's modules are loaded when it is shown, and it says so if they can't be", async ({ openConsole }) => {
  const page = await openConsole("#/board");
  await page.route("**/console/supply.js", (route) => route.abort());
  await page.getByRole("link", { name: "Supply" }).click();
  await expect(page.getByRole("alert").filter({ hasText: "The service can't be reached." })).toBeVisible();
  await page.unroute("**/console/supply.js");
  await page.reload();
  await expect(page.getByRole("heading", { name: "Supply" })).toBeVisible();
});

/** Reports whether the canvas has the color of the line of drivers on duty. */
function inked(page: import("../fixtures.ts").Page): Promise<boolean> {
  return page.locator("canvas").evaluate((canvas: any) => {
    const probe = canvas.ownerDocument.createElement("i");
    probe.style.color = "var(--accent)";
    canvas.parentElement.append(probe);
    const [r, g, b] = getComputedStyle(probe).color.match(/\d+/g)!.map(Number);
    probe.remove();
    const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
    for (let i = 0; i < data.length; i += 4) if (data[i] === r && data[i + 1] === g && data[i + 2] === b && data[i + 3] === 255) return true;
    return false;
  });
}
