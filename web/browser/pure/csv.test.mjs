import { expect } from "@playwright/test";
import { test } from "node:test";
import { cell, csv, isoTime, readAll, stamp } from "../../static/console/csv.js";
import { setZone } from "../../static/assets/zone.js";

test("a cell is quoted where RFC 4180 asks for it", () => {
  const cells = { "plain 강남구": "plain 강남구", "a,b": '"a,b"', 'say "hi"': '"say ""hi"""', "two\r\nlines": '"two\r\nlines"', "a;b": '"a;b"', " space": '" space"', "": "" };
  for (const [value, want] of Object.entries(cells)) expect(cell(value), JSON.stringify(value)).toBe(want);
  expect([cell(null), cell(undefined), cell(0), cell(-33.9), cell(true)]).toEqual(["", "", "0", "-33.9", "true"]);
});

test("a text that a spreadsheet would run as a formula is harmless", () => {
  for (const begins of ["=", "+", "-", "@", "＝", "＋", "－", "＠"]) expect(cell(`${begins}1+1`)).toBe(`'${begins}1+1`);
  for (const begins of ["\t", "\r", "\n"]) expect(cell(`${begins}=1+1`)).toBe(`"'${begins}'=1+1"`);
  for (const splits of [";", ",", "\t", "\r", "\n", "\r\n", ";;"]) {
    for (const begins of ["=", "+", "-", "@", "＝"]) expect(cell(`x${splits}${begins}cmd|'/C calc'!A0`)).toBe(`"x${splits}'${begins}cmd|'/C calc'!A0"`);
  }
  expect(cell('x;"=1+1')).toBe(`"x;'""=1+1"`); // which is split into x and ""=1+1, and that is run
  expect(cell("=1;=2;x")).toBe(`"'=1;'=2;x"`);
  expect(cell("Gate 3, -1F; a-b=c @ 2+2")).toBe('"Gate 3, -1F; a-b=c @ 2+2"');
  expect(cell('=HYPERLINK("http://evil.example","Kim")')).toBe(`"'=HYPERLINK(""http://evil.example"",""Kim"")"`);
  expect(cell("-2")).toBe("'-2"); // a text that looks like a number is a text
  expect(cell("1=1")).toBe("1=1");
});

test("a phone number can be read by the next program, and what is none is harmless", () => {
  expect(cell("+821012345678", "phone")).toBe("+821012345678");
  expect(cell("+821012345678")).toBe("'+821012345678");
  for (const not of ["+82 10", "+1-1", "=1", "+821012345678;=1", "+82\n", "-1", "@x"]) expect(cell(not, "phone")).toMatch(/^"?'/);
  expect(csv(["Name", "Phone"], [["+1", "+1"]], [undefined, "phone"]).join("")).toBe("\ufeffName,Phone\r\n'+1,+1\r\n");
});

test("a file has a mark for Excel, a line of titles, and a line for each row", () => {
  const parts = csv(["이름", "Note"], [["김민준", "a,b"], ["=x", null]]);
  expect(parts.join("")).toBe('\ufeff이름,Note\r\n김민준,"a,b"\r\n\'=x,\r\n');
  expect([...new TextEncoder().encode(parts.join(""))].slice(0, 3)).toEqual([0xef, 0xbb, 0xbf]);
});

test("a time has the offset of its own day", () => {
  const at = "2026-11-26T12:03:27.123Z";
  for (const [zone, want] of Object.entries({
    "Asia/Seoul": "2026-11-26T21:03:27.123+09:00", "America/St_Johns": "2026-11-26T08:33:27.123-03:30", "Europe/London": "2026-11-26T12:03:27.123+00:00",
  })) {
    setZone(zone);
    expect(isoTime(at)).toBe(want);
  }
  expect(isoTime("2026-07-26T12:00:00.000Z")).toBe("2026-07-26T13:00:00.000+01:00");
  setZone(undefined);
  expect(isoTime(null)).toBe("");
  expect(Date.parse(isoTime(at))).toBe(Date.parse(at)); // in this machine's zone
  expect(stamp(Date.parse(at))).toMatch(/^2026112\d-\d{6}$/);
});

/** Returns a list of n numbers, in pages, and what was asked for. */
function pages(n) {
  const asked = [];
  const page = async (query) => {
    const parameters = new URLSearchParams(query);
    asked.push(query);
    const from = Number(parameters.get("cursor") ?? 0), to = Math.min(n, from + Number(parameters.get("limit")));
    return { items: Array.from({ length: to - from }, (_, i) => from + i), next_cursor: to < n ? String(to) : null };
  };
  return { page, asked };
}

test("every page is read, up to a bound, and what is left out is known", async () => {
  const all = pages(450);
  const seen = [];
  const read = await readAll(all.page, { most: 1000, size: 200, onRead: (looked) => seen.push(looked) });
  expect([read.items.length, read.looked, read.more, seen]).toEqual([450, 450, false, [200, 400, 450]]);
  expect(all.asked).toEqual(["limit=200", "limit=200&cursor=200", "limit=200&cursor=400"]);

  const cut = pages(450);
  expect(await readAll(cut.page, { most: 300, size: 200 })).toMatchObject({ looked: 300, more: true });
  expect(cut.asked).toEqual(["limit=200", "limit=100&cursor=200"]);
  expect(await readAll(pages(300).page, { most: 300, size: 200 })).toMatchObject({ looked: 300, more: false });
  expect(await readAll(pages(450).page, { most: 300, size: 200, keep: (n) => n % 100 === 0 })).toEqual({ items: [0, 100, 200], looked: 300, more: true });
  await expect(readAll(async () => { throw new Error("cut"); }, { most: 300, size: 200 })).rejects.toThrow("cut");
});
