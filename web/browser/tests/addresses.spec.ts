import { card, column, soon } from "../board.ts";
import { type Page, expect, hold, tabTo, test } from "../fixtures.ts";
import { languages, textsOf } from "../language.ts";
import { past } from "../supply.ts";

const hash = (page: Page) => new URL(page.url()).hash;

for (const { lang, locale, tag } of languages) {
  test.describe(lang, { tag }, () => {
    test.use({ locale });

    test("each page's filters are in its address, which a reload, the history and another browser show alike", { tag: "@slow" }, async ({ openConsole, service, region }) => {
      const t = await textsOf("console", lang);
      past(service, [[1, "", 3, 2], [1, region, 3, 2], [1, `${region}-2`, 3, 2]]);
      const d = await service.dispatch(region, { vehicle_class: "16m" });
      await service.patch(d, { site_address: "2 New-ro" });
      const page = await openConsole("#/board");
      await page.getByRole("combobox", { name: t.region }).selectOption(region);
      await page.getByRole("combobox", { name: t.board.vehicle }).selectOption("16m");
      await page.getByLabel(t.search).fill("new");
      const board = `#/board?region=${region}&class=16m&q=new`;
      await expect.poll(() => hash(page)).toBe(board);

      await page.getByRole("link", { name: t.page.supply }).click();
      const where = page.getByRole("combobox", { name: t.region }), time = page.getByRole("combobox", { name: t.supply.time });
      await expect(time).toHaveValue("24"); // the last day
      await expect(page.getByRole("heading", { name: t.supply.last(t.supply.ranges[24]) })).toBeVisible();
      await where.selectOption(region);
      await time.selectOption("168");
      const supply = `#/supply?region=${region}&hours=168`;
      await expect.poll(() => hash(page)).toBe(supply);
      await page.reload();
      await expect(where).toHaveValue(region);
      await expect(time).toHaveValue("168");
      await expect(page.getByRole("heading", { name: t.supply.last(t.supply.ranges[168]) })).toBeVisible();

      await page.getByRole("link", { name: t.page.notifications }).click();
      const tab = (name: string) => page.getByRole("tab", { name: new RegExp(`^${t.pushes.tabs[name]}`) });
      await tab("SENT").click();
      await expect.poll(() => hash(page)).toBe("#/notifications/SENT");
      await page.getByRole("link", { name: t.page.notifications }).click();
      await expect(tab("PENDING")).toHaveAttribute("aria-selected", "true");
      await page.goBack();
      await expect(tab("SENT")).toHaveAttribute("aria-selected", "true");

      await page.goBack();
      await expect(where).toHaveValue(region);
      await expect.poll(() => hash(page)).toBe(supply);
      await page.goBack();
      await expect(page.getByLabel(t.search)).toHaveValue("new");
      await expect.poll(() => hash(page)).toBe(board);
      await expect(card(page, t.board.columns.PENDING, "2 New-ro")).toBeVisible();
      await page.goForward();
      await expect(time).toHaveValue("168");

      await page.evaluate((id) => { location.hash = `#/dispatches/${id}`; }, d.id);
      await page.getByRole("combobox", { name: t.dispatch.round }).selectOption("1");
      await expect.poll(() => hash(page)).toBe(`#/dispatches/${d.id}?round=1`);
      await page.reload();
      await expect(page.getByRole("combobox", { name: t.dispatch.round })).toHaveValue("1");
      await expect(page.getByText(t.lists.nobodyTold(1))).toBeVisible();

      const other = await openConsole(board, await service.key("viewer"));
      await expect(other.getByRole("combobox", { name: t.region })).toHaveValue(region);
      await expect(other.getByRole("combobox", { name: t.board.vehicle })).toHaveValue("16m");
      await expect(card(other, t.board.columns.PENDING, "2 New-ro")).toBeVisible();
      const strange = await openConsole("#/supply?hours=5");
      await expect(strange.getByRole("combobox", { name: t.supply.time })).toHaveValue("24");
    });

    test("the focus returns to the card after a dispatch is closed, or near it", { tag: "@slow" }, async ({ openConsole, service, region }) => {
      const t = await textsOf("console", lang);
      const [driver] = await service.drivers(1, region);
      const [a, b, c] = await Promise.all([1, 2, 3].map((n) => service.dispatch(region, { site_address: `${n} Focus-ro`, expires_at: soon(300_000 + n * 100_000) })));
      const page = await openConsole(`#/board?region=${region}`);
      const in_ = (status: string, n: number) => card(page, t.board.columns[status], `${n} Focus-ro`);
      const closed = page.getByRole("link", { name: t.dispatch.toBoard });
      /** Opens the focused card by the keyboard. */
      const enter = async (n: number) => {
        await page.keyboard.press("Enter");
        await expect(page.getByRole("heading", { level: 1, name: `${n} Focus-ro` })).toBeVisible();
      };
      await in_("PENDING", 1).focus();
      await page.keyboard.press("ArrowDown");
      await expect(in_("PENDING", 2)).toBeFocused();
      await enter(2);
      await tabTo(closed);
      await page.keyboard.press("Enter");
      await expect(in_("PENDING", 2)).toBeFocused();
      await expect.poll(() => hash(page)).toBe(`#/board?region=${region}`);

      await enter(2);
      await service.accept(b.id, driver!.token);
      await page.goBack();
      await expect(in_("ACCEPTED", 2)).toBeFocused(); // it has moved

      await in_("PENDING", 1).focus();
      await enter(1);
      await service.patch(a, { region: `${region}-2` });
      await page.goBack();
      await expect(in_("PENDING", 3)).toBeFocused(); // the next one
      await expect(in_("PENDING", 1)).toHaveCount(0);

      await enter(3);
      await service.patch(c, { region: `${region}-2` });
      await page.goBack();
      await expect(column(page, t.board.columns.PENDING)).toBeFocused(); // its column, which is empty

      await in_("ACCEPTED", 2).focus();
      await enter(2);
      const release = await hold(page, /\/v1\/admin\/dispatches\?/);
      await page.goBack();
      await expect(page.locator("#main")).toBeFocused(); // the page has put the focus there
      await page.getByLabel(t.search).focus();
      release();
      await expect(in_("ACCEPTED", 2)).toBeVisible();
      await expect(page.getByLabel(t.search)).toBeFocused(); // where the reader has put it
    });

    test("the focus returns to a card that only a search finds", { tag: "@slow" }, async ({ openConsole, service, region }) => {
      const t = await textsOf("console", lang);
      await service.change(await service.dispatch(region, { site_address: "1 Needle-ro" }), "cancel");
      await Promise.all(Array.from({ length: 25 }, async () => service.change(await service.dispatch(region), "cancel")));
      const page = await openConsole(`#/board?region=${region}&q=needle`);
      const found = card(page, t.board.columns.CANCELED, "1 Needle-ro");
      await found.focus();
      await page.keyboard.press("Enter");
      await expect(page.getByRole("heading", { level: 1, name: "1 Needle-ro" })).toBeVisible();
      await page.goBack();
      await expect(found).toBeFocused();
    });
  });
}

// The test changes the address between the page's first content and its first paint.
test("a filter that is opened while the board appears is shown", { tag: "@slow" }, async ({ openConsole }) => {
  const page = await openConsole("#/board");
  await page.addInitScript(() => {
    new MutationObserver((_, watch) => {
      if (!document.querySelector(".board")) return;
      watch.disconnect();
      location.hash = "#/board?q=Next-ro";
    }).observe(document, { childList: true, subtree: true });
  });
  await page.reload();
  await expect(page.getByLabel("Search")).toHaveValue("Next-ro");
});
