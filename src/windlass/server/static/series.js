// Documents that are requested again after new passes, at a limited rate.

import { useEffect, useRef, useState } from "./vendor/preact-hooks.js";
import { get, Problem } from "./api.js";
import { knownUntil } from "./store.js";

/** Milliseconds between two requests for the same document. */
const EVERY = 2000;
/** Milliseconds after which a request that failed is repeated. */
const RETRY = 3000;

/**
 * A document, kept while a newer one is loaded.
 * @template {keyof import("./types.js").Documents} P
 * @param {P} path @param {Record<string, any>} params @param {number} version requested again when it changes @param {number} [every]
 * @returns {[import("./types.js").Documents[P] | null, string | null]}
 */
export function useDocument(path, params, version, every = EVERY) {
  const [answer, setAnswer] = useState(/** @type {import("./types.js").Documents[P] | null} */ (null));
  const [failure, setFailure] = useState(/** @type {string | null} */ (null));
  const [turn, setTurn] = useState(0);
  const repeat = useRef(0);
  const asked = useRef({ key: "", when: 0, busy: false, again: false });
  const key = JSON.stringify([path, params]);
  useEffect(() => {
    const same = asked.current.key === key;
    const pause = same ? Math.max(0, asked.current.when + every - Date.now()) : 0;
    const timer = setTimeout(async () => {
      if (same && asked.current.busy) { asked.current.again = true; return; } // one request at a time
      asked.current = { key, when: Date.now(), busy: true, again: false };
      try {
        const found = await get(path, params);
        if (asked.current.key !== key) return;
        setAnswer(found);
        setFailure(null);
      } catch (error) {
        if (asked.current.key !== key) return;
        setFailure(error instanceof Error ? error.message : String(error));
        const refused = error instanceof Problem && error.status < 500; // it would be refused again
        if (!refused) repeat.current = setTimeout(() => setTurn((before) => before + 1), RETRY);
      } finally {
        if (asked.current.key === key) {
          asked.current.busy = false;
          if (asked.current.again) setTurn((before) => before + 1);
        }
      }
    }, pause);
    return () => { clearTimeout(timer); clearTimeout(repeat.current); };
  }, [key, version, turn]);
  return [answer, failure];
}

/** @param {{since: number | null, points: number}} asked @param {number} version */
export function useSeries({ since, points }, version) {
  const [answer] = useDocument("/series", { since, until: knownUntil.value, points }, version);
  return answer;
}
