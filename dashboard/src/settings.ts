/** What somebody prefers, kept in their browser. */

import { effect, signal } from "@preact/signals";

export interface Settings {
  theme: "system" | "light" | "dark";
  /** Seconds between two looks while the stream is down. */
  refresh: number;
  /** What charts show. */
  range: "1h" | "24h" | "7d";
  /** What charts say of times. */
  spread: "average" | "p50" | "p95" | "p99";
}

const NAME = "forebay.settings";
const USUAL: Settings = { theme: "system", refresh: 5, range: "1h", spread: "p95" };

function read(): Settings {
  try {
    return { ...USUAL, ...(JSON.parse(localStorage.getItem(NAME) ?? "{}") as Partial<Settings>) };
  } catch {
    return USUAL;
  }
}

export const settings = signal<Settings>(read());

export function prefer(some: Partial<Settings>): void {
  settings.value = { ...settings.value, ...some };
  try {
    localStorage.setItem(NAME, JSON.stringify(settings.value));
  } catch {
    // A browser that keeps nothing forgets this with the page.
  }
}

effect(() => {
  const { theme } = settings.value;
  if (theme === "system") delete document.documentElement.dataset["theme"];
  else document.documentElement.dataset["theme"] = theme;
});
