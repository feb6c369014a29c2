import { type Page, expect, test } from "../fixtures.ts";

/** Returns the bodies of the page's PATCH requests. */
function patches(page: Page): unknown[] {
  const bodies: unknown[] = [];
  page.on("request", (r) => { if (r.method() === "PATCH") bodies.push(r.postDataJSON()); });
  return bodies;
}

const paste = (page: Page, label: string, text: string) => page.getByLabel(label).evaluate((input: HTMLInputElement, pasted) => {
  const clipboardData = new DataTransfer();
  clipboardData.setData("text/plain", pasted);
  input.focus();
  input.dispatchEvent(new ClipboardEvent("paste", { clipboardData, bubbles: true, cancelable: true }));
}, text);

test("a form sends what was edited, and leaves what it can't show", async ({ openConsole, service, region }) => {
  const [driver] = await service.drivers(1, region, { working_height_m: 41.5, locale: "ko-KR" });
  service.sql(`UPDATE drivers SET name = ?, regions = ?, vehicle_class = '45m ' WHERE id = ?`, [" Kim  Min-jun ", JSON.stringify(["서울，부산", ` ${region}`]), driver!.id]);
  const page = await openConsole(`#/drivers/${driver!.id}`);
  const sent = patches(page);
  await page.getByRole("button", { name: "Edit" }).click();
  await page.getByRole("dialog").getByLabel("Phone").fill("+821099998888");
  await page.getByRole("button", { name: "Save" }).click();
  await expect(page.getByRole("dialog")).toHaveCount(0);
  await page.getByRole("button", { name: "Edit" }).click();
  await page.getByRole("button", { name: "Save" }).click();
  await expect(page.getByRole("dialog")).toHaveCount(0);
  expect(sent).toEqual([{ phone: "+821099998888" }]);

  const d = await service.dispatch(region, { note: "Gate 1\r\n\r\nGate 2 ", site_lat: 37.1234567, site_lng: 1e-7, fee: { amount: 12345, currency: "KWD" } });
  await page.goto(`${service.url}/console/#/dispatches/${d.id}`);
  await page.getByRole("button", { name: "Edit terms…" }).click();
  const dialog = page.getByRole("dialog", { name: "Edit the terms" });
  await dialog.getByLabel("Working height").fill("37,5");
  await dialog.getByRole("button", { name: "Change the terms" }).click();
  await expect(dialog.getByLabel("Working height")).toHaveAccessibleDescription("must be a number like 37.5");
  await dialog.getByLabel("Working height").fill("37.5");
  await dialog.getByLabel("Region").fill("");
  await dialog.getByLabel("Region").fill("r".repeat(64));
  await expect(dialog.getByText(/^Is r+ new\?/)).toBeVisible();
  await dialog.getByLabel("Region").fill(region);
  await dialog.getByRole("button", { name: "Change the terms" }).click();
  await expect(dialog).toHaveCount(0);
  expect(sent.slice(1)).toEqual([{ min_working_height_m: 37.5 }]);
});

test("each region is an item: typed, pasted as a list, or chosen", async ({ openConsole, service, region }) => {
  const page = await openConsole("#/drivers/new");
  const items = page.locator(".chips li bdi");
  await page.getByLabel("Regions").fill("서울，부산");
  await expect(items).toHaveText(["서울", "부산"]);
  await paste(page, "Regions", "대구\n광주、울산\r\n");
  await expect(items).toHaveText(["서울", "부산", "대구", "광주", "울산"]);
  await page.getByRole("button", { name: "Remove 대구" }).click();
  await page.getByLabel("Regions").fill("세종");
  await page.getByLabel("Regions").evaluate((input) => { // the key that ends a composition of Hangul
    input.dispatchEvent(new KeyboardEvent("keydown", { key: "Enter", isComposing: true, bubbles: true, cancelable: true }));
  });
  await expect(items).toHaveCount(4);
  await page.getByLabel("Regions").press("Enter");
  await expect(items).toHaveCount(5);
  await expect(page.getByRole("heading", { name: "New driver" })).toBeVisible(); // Enter has sent nothing
  await paste(page, "Name", "Lee\nSeo-yeon\n");
  await expect(page.getByLabel("Name")).toHaveValue("Lee Seo-yeon");
  await page.getByLabel("Phone").fill("+821087654322");
  await page.getByLabel("Vehicle class").fill("28m");
  await page.reload();
  await page.getByLabel("Regions").fill(region);
  await page.getByRole("button", { name: "Add driver" }).click();
  await expect(page.getByRole("heading", { name: "Lee Seo-yeon" })).toBeVisible();
  const { items: made } = await service.call("GET", `/v1/admin/drivers?region=${region}`);
  expect(made[0].regions).toEqual(["서울", "부산", "광주", "울산", "세종", region]);
});

test("a driver whose stored name shows nothing can be opened, and a right-to-left override does not turn the row", async ({ openConsole, service, region }) => {
  const drivers = await service.drivers(2, region);
  service.sql("UPDATE drivers SET name = ? WHERE id = ?", ["\u3164\u200b", drivers[0]!.id], ["\u202eKim", drivers[1]!.id]);
  const page = await openConsole(`#/drivers?region=${region}`);
  await expect(page.getByRole("link", { name: "Kim" }).locator("bdi")).toHaveCount(1);
  await page.getByRole("link", { name: drivers[0]!.id }).click();
  await expect(page.getByRole("heading", { name: drivers[0]!.id })).toBeVisible();
});
