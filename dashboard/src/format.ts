/** Numbers, times and lengths of time as people read them. */

const whole = new Intl.NumberFormat("en-US");
const clock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const day = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short" });
const full = new Intl.DateTimeFormat("en-GB", {
  year: "numeric", month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", second: "2-digit", timeZoneName: "short",
});

export function number(value: number): string {
  return whole.format(value);
}

/** A number in little room: 950, 12.3k, 4.1M. */
export function short(value: number): string {
  if (Math.abs(value) < 10_000) return whole.format(value);
  const [by, sign] = Math.abs(value) < 1_000_000 ? [1_000, "k"] : Math.abs(value) < 1e9 ? [1e6, "M"] : [1e9, "G"];
  const small = value / (by as number);
  return `${small.toFixed(Math.abs(small) < 100 ? 1 : 0)}${sign}`;
}

export function rate(value: number): string {
  if (value === 0) return "0";
  return value < 10 ? value.toFixed(1) : short(Math.round(value));
}

/** A length of time: 320 ms, 4.2 s, 3 min 5 s, 2 h 10 min, 4 d. */
export function length(seconds: number | null | undefined): string {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 0) return `-${length(-seconds)}`;
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 60) return `${seconds < 10 && seconds % 1 ? seconds.toFixed(1) : Math.round(seconds)} s`;
  const parts: [number, string, string, number][] = [
    [3_600, "min", "s", 60],
    [86_400, "h", "min", 60],
    [Infinity, "d", "h", 24],
  ];
  const units = [60, 3_600, 86_400];
  const at = parts.findIndex(([limit]) => seconds < limit);
  const unit = units[at]!;
  const [, big, small, split] = parts[at]!;
  const first = Math.floor(seconds / unit);
  const rest = Math.floor(((seconds % unit) / unit) * split);
  return rest && first < 10 ? `${first} ${big} ${rest} ${small}` : `${first} ${big}`;
}

/** How long ago, or in how long, against a moment in milliseconds. */
export function ago(at: string | null | undefined, now: number): string {
  if (!at) return "–";
  const seconds = (now - Date.parse(at)) / 1000;
  if (Math.abs(seconds) < 1) return "now";
  return seconds > 0 ? `${length(Math.floor(seconds))} ago` : `in ${length(Math.ceil(-seconds))}`;
}

/** The time of today, the day before that. */
export function moment(at: string | null | undefined, now = Date.now()): string {
  if (!at) return "–";
  const date = new Date(at);
  const time = clock.format(date);
  return date.toDateString() === new Date(now).toDateString() ? time : `${day.format(date)} ${time}`;
}

export function exact(at: string | null | undefined): string {
  return at ? full.format(new Date(at)) : "";
}

export function bytes(value: number | null | undefined): string {
  if (value === null || value === undefined) return "–";
  return value < 1_048_576 ? `${Math.round(value / 1024)} KiB` : `${(value / 1_048_576).toFixed(0)} MiB`;
}

/** A share of one. */
export function percent(value: number | null | undefined): string {
  return value === null || value === undefined ? "–" : `${Math.round(value * 100)} %`;
}

export function plural(count: number, one: string, many = `${one}s`): string {
  return `${number(count)} ${count === 1 ? one : many}`;
}

/** The end of a bulk result: how many jobs were left alone because another transaction holds them. */
export function busyNote(busy: number): string {
  if (!busy) return "";
  return ` ${plural(busy, "other")} ${busy === 1 ? "is" : "are"} held by another transaction; try again later.`;
}

const EXACT_UP_TO = 10_000;

/** A count that may be cut off: exact up to 10,000, and as far as was scanned. */
export function counted(count: number, isExact: boolean | null | undefined): string {
  if (isExact !== false) return number(count);
  return `${count < EXACT_UP_TO ? "at least" : "more than"} ${number(count)}`;
}

const SECRET = /passw|passphrase|secret|token|authorization|credential|(api|access|private|secret)[_-]?key|^keys?$/i;

/** JSON for people, with what looks like a secret left out of sight. */
export function shown(value: unknown): string {
  return JSON.stringify(value, (name, one: unknown) => (name && one !== null && SECRET.test(name) ? "***" : one), 2) ?? "";
}
