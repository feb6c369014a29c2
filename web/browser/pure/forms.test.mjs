import { expect } from "@playwright/test";
import { test } from "node:test";
import { minorUnits, typedNumber, withTyped } from "../../static/console/forms.js";
import { shown } from "../../static/console/names.js";

test("a typed or pasted list of regions is one region an item", () => {
  for (const list of ["서울,부산", "서울，부산", "서울、부산", "서울; 부산", "서울；부산", "서울\n부산\n", "서울\r\n부산", "서울\t부산", "서울|부산", " 서울 , , 부산 ,"]) {
    expect(withTyped([], list), JSON.stringify(list)).toEqual(["서울", "부산"]);
  }
  expect(withTyped(["서울"], "부산, 서울")).toEqual(["서울", "부산"]);
  expect(withTyped(["서울，부산"], "")).toEqual(["서울，부산"]); // a stored one stays as it is
  expect(withTyped([], "종로·중구")).toEqual(["종로·중구"]); // one name
  expect(withTyped([], " \n,")).toEqual([]);
});

test("a comma that stands for a point is refused, and not taken for a hundredfold", () => {
  for (const [text, currency, want] of [["350,000", "KRW", 350000], ["1,234,567.89", "USD", 123456789], ["350 000", "KRW", 350000], ["0.10", "USD", 10]]) {
    expect(minorUnits(text, currency), text).toBe(want);
  }
  for (const text of ["350,00", "1,5", ",5", "3,5000", "35,0000", "1,234,56", "350,000,", "1.234.567", "1e3", "-5", ""]) expect(minorUnits(text, "USD"), text).toBe(NaN);
  expect(minorUnits("1.500", "KWD")).toBe(1500);
  expect([typedNumber("37,5"), typedNumber(" 37.5 "), typedNumber("1e-7"), typedNumber("0x10"), typedNumber("")]).toEqual([NaN, 37.5, 1e-7, NaN, undefined]);
});

test("a text of which nothing shows is its id", () => {
  for (const text of ["\u3164", "\u200b", "\ufeff", "\u2800", "\u00a0 ", "\u202e", "\u115f\u1160", "\uffa0", "\u0301", "", null]) expect(shown(text, "drv_1")).toBe("drv_1");
  for (const text of ["김", "\ufffd\ufffd\ufffd", "\u202eabc", "é", "🚚", "?", "ㅋ"]) expect(shown(text, "drv_1")).toBe(text);
});
