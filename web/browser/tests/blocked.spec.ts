import { accessible, expect, test } from "../fixtures.ts";

// Nothing listens at this Redis address.
test.use({ settings: { FIRSTTAP_JOB_LOCK: "redis", FIRSTTAP_REDIS_URL: "redis://127.0.0.1:1" } });

test("a blocked job stands out, with its reason, and the holders of locks are unknown", { tag: "@slow" }, async ({ openConsole, own }) => {
  const page = await openConsole("#/jobs", undefined, own);
  await expect(page.getByRole("alert").filter({ hasText: "Blocked:" })).toContainText("expire-offers");
  await expect(page.getByRole("row").filter({ hasText: "Blocked since" }).first()).toContainText(/:\d\d on .*refused/);
  await expect(page.getByText("The lock's holder is unknown:").first()).toBeVisible();
  await accessible(page);
  await page.getByRole("link", { name: "Locks" }).click();
  await expect(page.getByText("nothing read yet")).toBeVisible();
  await expect(page.getByText("Nothing is held.")).toHaveCount(0);
});
