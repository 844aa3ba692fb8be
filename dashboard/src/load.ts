/** What a view has asked for: asked again when something has changed, at most once a second. */

import { useSignal, useSignalEffect } from "@preact/signals";
import { useCallback, useEffect, useRef } from "preact/hooks";
import { changes } from "./live";

const LEAST_MS = 1_000;

export interface Loaded<T> {
  /** The last answer; it stays while the next one is asked for, and when that fails. */
  data: T | undefined;
  error: Error | undefined;
  reload: () => void;
}

export function useLoad<T>(load: () => Promise<T>, keys: readonly unknown[], isLive = true): Loaded<T> {
  const data = useSignal<T | undefined>(undefined);
  const error = useSignal<Error | undefined>(undefined);
  const turn = useRef(0);
  const begun = useRef(0);
  const timer = useRef<ReturnType<typeof setTimeout> | undefined>(undefined);
  const loader = useRef(load);
  loader.current = load;

  const run = useCallback(() => {
    clearTimeout(timer.current);
    timer.current = undefined;
    const mine = ++turn.current;
    begun.current = Date.now();
    loader.current().then(
      (found) => {
        if (mine !== turn.current) return; // somebody has asked for something else meanwhile
        data.value = found;
        error.value = undefined;
      },
      (failed: Error) => {
        if (mine === turn.current) error.value = failed;
      },
    );
  }, []);

  useEffect(() => {
    data.value = undefined;
    error.value = undefined;
    run();
    return () => {
      turn.current += 1;
      clearTimeout(timer.current);
      timer.current = undefined;
    };
  }, keys);

  const first = useRef(true);
  useSignalEffect(() => {
    changes.value;
    if (first.current || !isLive) {
      first.current = false;
      return;
    }
    if (timer.current === undefined) timer.current = setTimeout(run, Math.max(0, begun.current + LEAST_MS - Date.now()));
  });

  return { data: data.value, error: error.value, reload: run };
}
