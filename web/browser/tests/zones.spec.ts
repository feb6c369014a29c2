import { expect, test } from "../fixtures.ts";

test.use({ timezoneId: "America/Los_Angeles" });

test("a reader in another zone sees and types the hours of the sites", async ({ openDriver, openConsole, service, region }) => {
  const [driver] = await service.drivers(1, region);
  const year = new Date().getUTCFullYear() + 1;
  const d = await service.dispatch(region, { work_starts_at: `${year}-06-01T00:00:00Z`, work_ends_at: `${year}-06-01T03:00:00Z` });
  const phone = await openDriver(driver!.token);
  await expect(phone.getByText(new RegExp(`1 June? ${year}, 09:00.12:00 GMT\\+9`))).toBeVisible();

  const page = await openConsole(`#/dispatches/${d.id}`);
  await expect(page.getByRole("banner")).toContainText("Times of Asia/Seoul, GMT+9");
  await expect(page.getByText(`${year}-06-01 09:00`)).toBeVisible();
  await page.getByRole("button", { name: "Edit terms…" }).click();
  const starts = page.getByLabel("Work starts (Asia/Seoul, GMT+9)");
  await expect(starts).toHaveValue(new RegExp(`^${year}-06-01T09:00`));
  await starts.fill(`${year}-06-01T10:30:00`);
  await page.getByRole("button", { name: "Change the terms" }).click();
  await expect.poll(async () => (await service.read(d)).work_starts_at).toBe(`${year}-06-01T01:30:00.000Z`);
});
