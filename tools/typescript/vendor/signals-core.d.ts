// What the dashboard uses of signals.

export interface Signal<T> { value: T; peek(): T }
export interface ReadonlySignal<T> { readonly value: T; peek(): T }
export function signal<T>(initial: T): Signal<T>;
export function computed<T>(make: () => T): ReadonlySignal<T>;
export function effect(run: () => void | (() => void)): () => void;
export function batch<T>(run: () => T): T;
