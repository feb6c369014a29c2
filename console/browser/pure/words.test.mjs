import { expect } from "@playwright/test";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { words } from "../../web/driver/words.js";

const flat = (value, path = "") => {
  if (typeof value === "string") return [[path, "text", value]];
  if (typeof value === "function") return [[path, `function of ${value.length}`, String(value)]];
  return Object.entries(value).flatMap(([k, v]) => flat(v, `${path}.${k}`));
};
const en = flat(words.en), ko = flat(words.ko);

test("both languages of the driver's page have every text", () => {
  const keys = (list) => list.map(([path, kind]) => `${path}: ${kind}`).sort();
  expect(keys(ko)).toEqual(keys(en));
  for (const [path, , text] of ko) expect(text, path).toMatch(path === ".atLeast" ? /이상/ : /[가-힣]/);
  for (const [path, , text] of en) expect(text, path).toMatch(path === ".language" ? /English/ : /^[^가-힣]+$/);
});

test("the driver's page has words for every reason of a refusal", () => {
  const { Reason } = JSON.parse(readFileSync(new URL("../../../openapi/openapi.json", import.meta.url), "utf8")).components.schemas;
  const reasons = en.map(([path]) => path).filter((p) => p.startsWith(".reasons.")).map((p) => p.slice(9));
  expect(reasons.sort()).toEqual([...Reason.enum].sort());
});
