import { expect, test, type Page } from "../fixtures.ts";

const card = (page: Page, site: string) => page.getByRole("article", { name: site });

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
  await tabTo(page, "Accept");
  await page.keyboard.press("Enter");
  await expect(offer).toContainText("Yours");
  await tabTo(page, "To my jobs");
  await page.keyboard.press("Enter");
  await tabTo(page, "Start");
  await page.keyboard.press("Enter");
  await expect(offer).toContainText("In progress");
  await tabTo(page, "Complete");
  await page.keyboard.press("Enter");
  await expect(offer).toContainText("Done");
  expect((await service.call("GET", `/v1/admin/dispatches/${job.id}`)).status).toBe("COMPLETED");
});

// tabTo goes on from where the focus is, as who has no pointer does.
async function tabTo(page: Page, name: string): Promise<void> {
  const wanted = page.getByText(name, { exact: true }).and(page.locator("button, a"));
  await expect(wanted).toBeVisible();
  for (let n = 0; n < 30; n++) {
    if (await wanted.evaluate((e) => e === document.activeElement)) return;
    await page.keyboard.press("Tab");
  }
  throw new Error(`no Tab leads to ${name}`);
}
