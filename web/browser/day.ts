import type { Service } from "./service.ts";

const sites = ["강남구 테헤란로 152", "마포구 월드컵북로 396", "송파구 올림픽로 300", "영등포구 여의대로 108", "성동구 왕십리로 83", "서초구 반포대로 235", "용산구 한강대로 92", "종로구 세종대로 175"];
const names = ["김민준", "이서연", "박지호", "최수아", "정도윤", "강하은", "조시우", "윤지아", "장준서", "임채원", "한유진", "오건우"];
const iso = (hours: number) => new Date(Date.now() + hours * 3600_000).toISOString();

/** Creates a day's data for the pictures. */
export async function populate(service: Service) {
  const { items: drivers } = await service.call("POST", "/v1/admin/drivers/bulk", {
    issue_tokens: true,
    drivers: names.map((name, i) => ({
      name, phone: `+82101234${1000 + i}`, regions: i % 4 === 3 ? ["incheon", "seoul"] : ["seoul"], vehicle_class: "45m", working_height_m: 45, on_duty: i !== 11, locale: "ko",
    })),
  });
  for (const [i, d] of drivers.slice(0, 6).entries()) {
    await service.call("PUT", `/v1/me/devices/phone-${i}`, { platform: i % 2 ? "ios" : "android", push_token: `push-token-${i}`, app_version: "2.4.1", locale: "ko" }, { token: d.token });
  }
  const make = (i: number, more: object = {}) => service.dispatch("seoul", {
    site_address: `서울 ${sites[i % sites.length]}`, work_starts_at: iso(20 + 4 * i), work_ends_at: iso(23 + 4 * i),
    fee: { amount: 320000 + 15000 * i, currency: "KRW" }, expires_at: iso(0.15 + i / 40), ...more,
  });
  const taken = await make(0, { note: "Gate 2. Outriggers need 6 m." });
  await Promise.allSettled(drivers.slice(0, 11).map((d: any) => service.call("POST", `/v1/dispatches/${taken.id}/seen`, {}, { token: d.token })));
  await service.acceptOnce(taken.id, drivers.slice(0, 11));
  for (const [i, step] of [[1, "accept"], [2, "start"], [3, "complete"]] as const) {
    const d = await make(i);
    await service.accept(d.id, drivers[i + 4].token);
    if (step !== "accept") await service.call("POST", `/v1/dispatches/${d.id}/start`, undefined, { token: drivers[i + 4].token });
    if (step === "complete") await service.call("POST", `/v1/dispatches/${d.id}/complete`, undefined, { token: drivers[i + 4].token });
  }
  for (let i = 4; i < 9; i++) await make(i);
  await make(9, { opens_at: iso(0.1), expires_at: iso(0.6) });
  const over = await make(10);
  await service.change(over, "cancel", { reason_code: "CUSTOMER" });
  return { drivers, taken };
}

/** Returns the points of a day: more drivers and more work in the middle, and the present numbers at the end. */
export function day(): [number, string, number, number][] {
  const wave = (ago: number, minutes: number) => Math.sin((Math.PI * ago) / minutes) ** 2;
  return Array.from({ length: 24 * 60 }, (_, ago) => {
    const duty = Math.round(11 + 16 * wave(ago, 720) + 3 * wave(ago, 95));
    const open = Math.round(5 + 9 * wave(ago, 400) + 5 * wave(ago, 130) + 2 * wave(ago, 23));
    return [["", duty, open], ["seoul", duty, Math.round(open * 0.7)], ["incheon", Math.round(duty * 0.3), Math.round(open * 0.3)]]
      .map(([region, ...n]) => [ago, region, ...n] as [number, string, number, number]);
  }).flat();
}
