import { expect } from "@playwright/test";
import { readFileSync, readdirSync } from "node:fs";
import { test } from "node:test";
import { holdIn, inWords } from "../../static/console/jobs.js";
import { minorUnits } from "../../static/console/forms.js";
import { ruleIn } from "../../static/console/dialogs.js";
import { writing } from "../../static/assets/writing.js";

const web = new URL("../../static/", import.meta.url);
const dictionary = async (page, lang) => (await import(new URL(`${page}/words_${lang}.js`, web))).words;
const pages = Object.fromEntries(await Promise.all(["console", "driver"].map(async (page) =>
  [page, { en: await dictionary(page, "en"), ko: await dictionary(page, "ko") }])));
const { en, ko } = pages.console;
const english = writing("en", en, ["en-GB"]), korean = writing("ko", ko, ["ko-KR"]);
const { schemas } = JSON.parse(readFileSync(new URL("../../../internal/openapi/openapi.json", import.meta.url), "utf8")).components;

/** Lists a dictionary's texts: [path, kind, the texts in it]. A function's texts are those of its source. */
function flat(value, path = "") {
  if (typeof value === "string") return [[path, "text", value]];
  if (typeof value === "function") return [[path, `function of ${value.length}`, String(value).replace(/^[^=]*=>/, "").replaceAll(/\$\{[^}]*\}/g, "")]];
  return Object.entries(value).flatMap(([k, v]) => flat(v, `${path}.${k}`));
}

// Texts without words: their Korean is their English.
const wordless = /^\.(titleOf|meters|list|units\.(us|ms)|change\.(by|why|was)|race\.tap|terms\.range|board\.shownOf|wrongField|freshness\.withStatus|paging\.count|dispatch\.tell|drivers\.id|terms\.id|keys\.id|webhooks\.id|signals\.ms|jobs\.took|supply\.from|optional|fields\.firebase_uid|preview\.not|lists\.first|export\.idOf)$/;

for (const [page, { en, ko }] of Object.entries(pages)) {
  test(`${page}: both languages have every text, and each is in its language`, () => {
    const keys = (words) => flat(words).map(([path, kind]) => `${path}: ${kind}`).sort();
    expect(keys(ko)).toEqual(keys(en));
    for (const [path, , text] of flat(ko)) if (!wordless.test(path)) expect(text, path).toMatch(/[가-힣]/);
    for (const [path, , text] of flat(en)) expect(text, path).toMatch(/^[^가-힣]+$/);
  });

  test(`${page}: every text is used`, () => {
    const source = [page, "assets"].flatMap((folder) => readdirSync(new URL(folder, web)).filter((f) => f.endsWith(".js") && !/^(words_|preact|uplot)/.test(f))
      .map((f) => readFileSync(new URL(`${folder}/${f}`, web), "utf8"))).join("\n");
    const code = /^[A-Z_]+$|[.]|^\d+$/; // the names that the API gives, by which a text is found
    const named = flat(en).map(([path]) => path.split(".").slice(1)).filter((path) => !path.some((name) => code.test(name)));
    const unused = named.filter((path) => !new RegExp(`\\b${path.at(-1)}\\b`).test(source)).map((path) => path.join("."));
    const byName = /^(fields|roles|keys\.roles|pushResults|paging|making|page|audit\.(fields|actions)|locks\.purposes|jobResults|rules|dispatch\.action|events|pushTypes)\b|^\w+More$/;
    expect(unused.filter((path) => !byName.test(path))).toEqual([]);
  });
}

test("the console has a sentence for each problem code, and words for each state, role, event and action of the API", () => {
  const codes = new Set();
  const find = (node) => {
    if (typeof node !== "object" || node === null) return;
    if (typeof node.code?.const === "string") codes.add(node.code.const);
    Object.values(node).forEach(find);
  };
  find(schemas);
  expect(codes.size).toBeGreaterThan(25);
  const values = {
    codes: [...codes], states: schemas.DispatchStatus.enum, offerStates: schemas.OfferStatus.enum, pushStates: schemas.NotificationStatus.enum,
    runStates: schemas.Run.properties.status.enum, roles: schemas.Role.enum, events: schemas.EventType.enum, pushTypes: schemas.EventType.enum,
    "preview.reasons": schemas.Reason.enum, unfit: [...schemas.Reason.enum, "OTHER"], "audit.actions": schemas.AuditEntry.properties.action.enum, "webhooks.log.states": schemas.DeliveryStatus.enum,
    "webhooks.why": schemas.Webhook.properties.pause_reason.enum.filter(Boolean),
  };
  for (const words of [en, ko]) {
    for (const [path, names] of Object.entries(values)) {
      expect(Object.keys(path.split(".").reduce((at, name) => at[name], words)).sort(), path).toEqual([...names].sort());
    }
    for (const code of codes) expect(words.codes[code], code).toMatch(/\.$/);
    for (const text of Object.values(words.codes)) expect(text).not.toMatch(/[A-Z]{2,}_|If-Match|Retry-After/);
  }
});

test("the driver's page has words for every reason of a refusal", () => {
  for (const words of Object.values(pages.driver)) expect(Object.keys(words.reasons).sort()).toEqual([...schemas.Reason.enum].sort());
});

test("numbers are counted in each language", () => {
  expect([0, 1, 2, 1200].map(en.paging.entries)).toEqual(["No entries", "1 entry", "2 entries", "1,200 entries"]);
  expect([0, 1, 1200].map(ko.paging.entries)).toEqual(["기록 0건", "기록 1건", "기록 1,200건"]);
  expect([[1, 1], [11, 2]].map((n) => en.race.tapped(...n))).toEqual(["1 tap by 1 driver.", "11 taps by 2 drivers."]);
  expect(ko.race.tapped(11, 2)).toBe("기사 2명이 11회 수락을 시도했습니다.");
  expect([1, 3].map(en.preview.busy)).toEqual(["1 could, but has other work then.", "3 could, but have other work then."]);
  expect([[0, 3], [2, 3], [3, 3]].map((n) => en.preview.reachable(...n).split(" ")[0])).toEqual(["None", "2", "All"]);
  expect([[0, 3], [2, 3], [3, 3]].map((n) => ko.preview.reachable(...n))).toEqual(["가능한 기사 중 푸시를 보낼 수 있는 기사가 없습니다.",
    "가능한 기사 중 2명에게 푸시를 보낼 수 있습니다.", "가능한 기사 모두에게 푸시를 보낼 수 있습니다."]);
  expect([1, 5].map(en.schedule.every.minute)).toEqual(["every minute", "every 5 minutes"]);
});

test("money, times and durations are written in each language", () => {
  const at = new Date(2026, 10, 22, 14, 3, 27).toISOString(), later = new Date(2026, 10, 22, 17, 3).toISOString();
  const won = { amount: 350000, currency: "KRW" };
  expect([english, korean].map((l) => l.money(won))).toEqual(["₩350,000", "₩350,000"]);
  expect(english.money({ amount: 35050, currency: "USD" })).toBe("US$350.50");
  expect([english, korean].map((l) => l.when(at))).toEqual(["2026-11-22 14:03", "2026. 11. 22. 14:03"]);
  expect([english, korean].map((l) => l.whenExactly(at))).toEqual(["2026-11-22 14:03:27", "2026. 11. 22. 14:03:27"]);
  expect([english, korean].map((l) => [l.clock(at), l.clockShort(at), l.date(at)])).toEqual([["14:03:27", "14:03", "22 Nov"], ["14:03:27", "14:03", "11월 22일"]]);
  const night = new Date(2026, 10, 22, 1, 3, 27).toISOString(), american = writing("en", en, ["en-US"]);
  expect([english, american, korean].map((l) => l.second(night).replace(/^(오전|AM)\s/, "").replace(/\sAM$/, ""))).toEqual(["01:03:27", "1:03:27", "1:03:27"]);
  expect(english.minute(night)).toBe("22 Nov 2026, 01:03");
  expect(english.when(null)).toBe("–");
  expect(english.fromTo(at, later)).toMatch(/^22 Nov, 14:03\s*–\s*17:03$/);
  expect(korean.fromTo(at, later)).toMatch(/^11월 22일 14:03\s*~\s*17:03$/);
  const spans = [840, 1240, 3_400_000, 125_000_000, 11_160_000_000];
  expect(spans.map(english.duration)).toEqual(["840 µs", "1.24 ms", "3.4 s", "2:05 min", "3.1 h"]);
  expect(spans.map(korean.duration)).toEqual(["840 µs", "1.24 ms", "3.4초", "2분 05초", "3.1시간"]);
  const ago = [12, 5000, 180_000, 7_200_000, 3 * 86_400_000];
  expect(ago.map(english.roughly)).toEqual(["12 ms", "5 s", "3 min", "2 h", "3 d"]);
  expect(ago.map(korean.roughly)).toEqual(["12 ms", "5초", "3분", "2시간", "3일"]);
  expect(minorUnits("350,000", "KRW")).toBe(350000);
});

test("schedules are said in each language", () => {
  const schedules = ["*/5 * * * * *", "0 * * * * *", "0 30 * * * *", "0 0 * * * *", "0 0 4 * * *", "0 0 4 * * 1", "@every 1m30s", "after 1m30s", "0 0 4 1 * *"];
  expect(schedules.map((s) => inWords(s, en))).toEqual(["every 5 seconds", "every minute", "every hour, 30 min past", "every hour", "every day at 04:00",
    "Mondays at 04:00", "every 1 min 30 s", "1 min 30 s after its last run", "0 0 4 1 * *"]);
  expect(schedules.map((s) => inWords(s, ko))).toEqual(["5초마다", "매분", "매시 30분", "매시 정각", "매일 04:00", "매주 월요일 04:00", "1분 30초마다", "이전 실행 1분 30초 후",
    "0 0 4 1 * *"]);
});

test("how long a job's lock is held is said in each language", () => {
  const holds = [[null, 55_000, 50_000], [null, 15_000, 0], [10_000, 120_000, 0]].map(([lock_lease_ms, lock_at_most_ms, lock_at_least_ms]) =>
    ({ lock_lease_ms, lock_at_most_ms, lock_at_least_ms }));
  expect(holds.map((job) => holdIn(job, en, english.roughly))).toEqual(["lock for 50 s to 55 s", "lock for 15 s at most",
    "lock for 2 min at most, renewed for 10 s at a time"]);
  expect(holds.map((job) => holdIn(job, ko, korean.roughly))).toEqual(["잠금 50초~55초", "잠금 최대 15초", "잠금 최대 2분, 10초씩 갱신"]);
});

test("what the service says about a field is said in each language", () => {
  const said = ["is required", "is required with site_lat", "must be at least 2 characters", "must be at most 90", "must be after work_starts_at", "is not valid (x)"];
  expect(said.map((s) => ruleIn(en, s))).toEqual(["is required", "is required with “Latitude”", "must be at least 2 characters", "must be at most 90",
    "must be after “Work starts”", "is not right"]);
  expect(said.map((s) => ruleIn(ko, s))).toEqual(["필수 입력입니다", "‘위도’ 값이 있으면 필수입니다", "2자 이상이어야 합니다", "90 이하여야 합니다",
    "‘작업 시작’보다 뒤여야 합니다", "올바르지 않습니다"]);
});
