/** Preferences of the user, stored in the browser. */

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

const system = matchMedia("(prefers-color-scheme: dark)");

/** Dark or light: as chosen, or as the system has it. */
function paint(): void {
  const { theme } = settings.value;
  document.documentElement.dataset["theme"] = theme === "system" ? (system.matches ? "dark" : "light") : theme;
}

system.addEventListener("change", paint);
effect(paint);
