/** What a view has asked for: asked again when something has changed, at most once a second and one at a time.
 * An answer that takes longer than a second is shown when it comes, and then the next is asked for. */

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
  const isAsking = useRef(false);
  const isAskedAgain = useRef(false);
  const timer = useRef<ReturnType<typeof setTimeout> | undefined>(undefined);
  const loader = useRef(load);
  loader.current = load;

  const run = useCallback(() => {
    clearTimeout(timer.current);
    timer.current = undefined;
    if (isAsking.current) {
      isAskedAgain.current = true;
      return;
    }
    const mine = turn.current;
    const isOurs = () => mine === turn.current; // no newer request has begun
    isAsking.current = true;
    begun.current = Date.now();
    loader
      .current()
      .then(
        (found) => {
          if (!isOurs()) return;
          data.value = found;
          error.value = undefined;
        },
        (failed: Error) => {
          if (isOurs()) error.value = failed;
        },
      )
      .finally(() => {
        if (!isOurs()) return;
        isAsking.current = false;
        if (isAskedAgain.current) later();
      });
  }, []);

  const later = useCallback(() => {
    isAskedAgain.current = false;
    if (timer.current === undefined) timer.current = setTimeout(run, Math.max(0, begun.current + LEAST_MS - Date.now()));
  }, []);

  useEffect(() => {
    data.value = undefined;
    error.value = undefined;
    run();
    return () => {
      turn.current += 1;
      isAsking.current = false;
      isAskedAgain.current = false;
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
    if (isAsking.current) isAskedAgain.current = true;
    else later();
  });

  return { data: data.value, error: error.value, reload: run };
}
