import { expect, test } from "vitest";
import { ago, busyNote, bytes, counted, length, number, plural, rate, short, shown } from "./format";

test("lengths of time are said in the two largest units that matter", () => {
  const said = [0.02, 4.24, 42, 185, 7_800, 90_000, 1_000_000].map(length);
  expect(said).toEqual(["20 ms", "4.2 s", "42 s", "3 min 5 s", "2 h 10 min", "1 d 1 h", "11 d"]);
  expect([length(null), length(-3)]).toEqual(["–", "-3 s"]);
});

test("numbers are short where there is little room", () => {
  expect([short(950), short(12_345), short(4_100_000), short(2.5e9)]).toEqual(["950", "12.3k", "4.1M", "2.5G"]);
  expect([number(1_234), rate(0), rate(2.345), rate(1_234)]).toEqual(["1,234", "0", "2.3", "1,234"]);
  expect([bytes(2_048), bytes(5 * 1_048_576), bytes(null)]).toEqual(["2 KiB", "5 MiB", "–"]);
});

test("moments are shown relative to now", () => {
  const now = Date.parse("2026-01-01T12:00:00Z");
  expect(ago("2026-01-01T11:59:00Z", now)).toBe("1 min ago");
  expect(ago("2026-01-01T12:00:30Z", now)).toBe("in 30 s");
  expect([ago("2026-01-01T12:00:00Z", now), ago(null, now)]).toEqual(["now", "–"]);
});

test("a count says whether it is exact", () => {
  expect([counted(10_000, false), counted(7, true), counted(7, false)]).toEqual(["more than 10,000", "7", "at least 7"]);
  expect([plural(1, "job"), plural(2, "job")]).toEqual(["1 job", "2 jobs"]);
});

test("a bulk result says how many jobs another transaction holds", () => {
  expect([busyNote(0), busyNote(1), busyNote(1_200)]).toEqual([
    "",
    " 1 other is held by another transaction; try again later.",
    " 1,200 others are held by another transaction; try again later.",
  ]);
});

test("what looks like a secret is not shown", () => {
  const text = shown({ password: "x", nested: { api_key: "y", monkey: 1 }, keys: [1], token: null });
  expect(JSON.parse(text)).toEqual({ password: "***", nested: { api_key: "***", monkey: 1 }, keys: "***", token: null });
});
