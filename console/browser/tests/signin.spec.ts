import { Service, expect, test } from "../fixtures.ts";

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

test("who can't be reached can't sign anybody in or out, which is said as it is", async ({ open }) => {
  const service = await new Service().start();
  try {
    const page = await open("/console/", service);
    await service.stop("SIGKILL");
    await page.getByLabel("API key").fill(service.adminKey);
    await page.getByRole("button", { name: "Sign in" }).click();
    await expect(page.getByRole("alert")).toHaveText("The service can't be reached.");
    await service.start();
    await page.getByRole("button", { name: "Sign in" }).click();
    await page.getByLabel("Search").fill("gate"); // with nothing in the address, the board is at its beginning
    await expect(page).toHaveURL(`${service.url}/console/#/?q=gate`);
    await page.reload();
    await expect(page.getByLabel("Search")).toHaveValue("gate");
    await service.stop("SIGKILL");
    await page.getByRole("button", { name: "Sign out" }).click();
    await expect(page.getByRole("alert")).toHaveText("The service can't be reached. You may still be signed in.");
  } finally {
    await service.close();
  }
});
