import { expect, test } from "../fixtures.ts";

test("a key opens the console, and no script can read it", async ({ open, service }) => {
  const page = await open("/console/");
  await page.getByLabel("API key").fill("not a key");
  await page.getByRole("button", { name: "Sign in" }).click();
  await expect(page.getByRole("alert")).toContainText("No such key");
  await page.getByLabel("API key").fill(service.adminKey);
  await page.keyboard.press("Enter");
  await expect(page.getByRole("button", { name: "Sign out" })).toBeVisible();
  expect(await page.evaluate(() => document.cookie)).toBe("");
  const [cookie] = await page.context().cookies();
  expect(cookie).toMatchObject({ httpOnly: true, sameSite: "Strict" });
  expect(decodeURIComponent(cookie!.value)).not.toContain(service.adminKey);
});
