// What the dashboard uses of Preact's hooks.

import type { Ref } from "./preact.js";

export type { Ref };
export function useState<T>(initial: T | (() => T)): [T, (next: T | ((before: T) => T)) => void];
export function useEffect(effect: () => void | (() => void), inputs?: readonly unknown[]): void;
export function useMemo<T>(make: () => T, inputs: readonly unknown[]): T;
export function useRef<T>(initial: T): { current: T };
