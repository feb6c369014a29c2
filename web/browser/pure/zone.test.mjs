import { expect } from "@playwright/test";
import { test } from "node:test";
import { writing } from "../../static/assets/writing.js";
import { abroad, localInput, setZone, typedTime, zoneAt } from "../../static/assets/zone.js";

const within = (zone, check) => {
  setZone(zone);
  try {
    check();
  } finally {
    setZone(undefined);
  }
};

test("what is typed is a time of the sites' zone", () => {
  within("Asia/Seoul", () => {
    expect(localInput("2026-11-22T05:03:27.900Z")).toBe("2026-11-22T14:03:27");
    expect(typedTime("2026-11-22T14:03")).toBe("2026-11-22T05:03:00.000Z");
    expect(zoneAt("2026-11-22T14:03")).toBe("Asia/Seoul, GMT+9");
    for (const nothing of ["", "x", "2026-13-01T00:00"]) expect(typedTime(nothing)).toBe(undefined);
  });
  within("America/New_York", () => {
    expect(typedTime("2027-03-14T02:30")).toBe("2027-03-14T07:30:00.000Z"); // skipped: 03:30
    expect(typedTime("2027-11-07T01:30:05")).toBe("2027-11-07T05:30:05.000Z"); // the first of two
    expect(typedTime("2027-11-07T02:00")).toBe("2027-11-07T07:00:00.000Z");
    expect(zoneAt("2027-07-01T00:00")).toBe("America/New_York, GMT-4");
  });
});

test("a time that is shown in a field is typed back as it was, but for an hour that comes twice", () => {
  for (const zone of ["Asia/Seoul", "America/New_York", "Australia/Lord_Howe", "Pacific/Chatham"]) {
    within(zone, () => {
      for (let at = Date.parse("2026-01-01T00:00:00Z"); at < Date.parse("2028-01-01T00:00:00Z"); at += 1_800_000) {
        const back = Date.parse(typedTime(localInput(at)));
        if (back !== at) expect([back < at, localInput(back)], new Date(at).toISOString()).toEqual([true, localInput(at)]);
      }
    });
  }
});

test("hours name another year, and the zone to a reader of another one", () => {
  const own = Intl.DateTimeFormat().resolvedOptions().timeZone, year = new Date().getFullYear() + 2;
  const span = () => writing("en", {}, ["en-US"]).span(`${year}-06-01T00:00:00Z`, `${year}-06-01T03:00:00Z`);
  within("Asia/Seoul", () => {
    expect(span()).toMatch(new RegExp(`Jun 1, ${year}, 9:00\\sAM\\s–\\s12:00\\sPM`));
    if (abroad()) expect(span()).toMatch(/ GMT\+9$/);
  });
  within(own, () => {
    expect(abroad()).toBe(false);
    expect(span()).not.toMatch(/GMT|UTC/);
  });
});
