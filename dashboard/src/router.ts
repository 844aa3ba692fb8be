/** Addresses of views: every view, with its filters, is an address that can be shared. */

import { signal } from "@preact/signals";

/** Where the server is: empty, or the path under which it is mounted in another app, as the page says itself. */
export const BASE = document.querySelector<HTMLMetaElement>('meta[name="forebay-base"]')?.content ?? "";
export const ROOT = `${BASE}/dashboard`;

export interface Place {
  /** The parts of the path behind the root: `["jobs", "01J…"]`. */
  parts: string[];
  query: URLSearchParams;
}

/** A part of an address as it is meant; one that means nothing stays as it is. */
function decoded(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

export function placeOf(path: string, search: string): Place {
  const parts = path.slice(ROOT.length).split("/").filter(Boolean).map(decoded);
  return { parts, query: new URLSearchParams(search) };
}

export const place = signal<Place>(placeOf(location.pathname, location.search));

export function addressOf(parts: string[], query: Record<string, string | undefined> = {}): string {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) if (value) search.set(name, value);
  const text = search.toString();
  return `${ROOT}/${parts.map(encodeURIComponent).join("/")}${text ? `?${text}` : ""}`;
}

export function go(address: string, replace = false): void {
  history[replace ? "replaceState" : "pushState"](null, "", address);
  place.value = placeOf(location.pathname, location.search);
  if (!replace) scrollTo(0, 0);
}

export function follow(event: MouseEvent): void {
  const link = (event.target as Element | null)?.closest?.("a[href]");
  if (!(link instanceof HTMLAnchorElement) || link.target || link.origin !== location.origin) return;
  if (event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey) return;
  if (!link.pathname.startsWith(`${ROOT}/`) && link.pathname !== ROOT) return;
  event.preventDefault();
  go(link.pathname + link.search);
}

export function listen(): void {
  addEventListener("popstate", () => {
    place.value = placeOf(location.pathname, location.search);
  });
  document.addEventListener("click", follow);
}
