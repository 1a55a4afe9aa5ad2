// What the dashboard uses of Preact.

export type Child = VNode<any> | string | number | bigint | boolean | null | undefined | Child[];
export interface VNode<P = unknown> { type: unknown; props: P; key: unknown }
export type Component<P> = (props: P) => Child;
export interface Ref<T> { current: T | null }

type Handler<E extends Event> = (event: E & { currentTarget: EventTarget }) => void;
interface Attributes {
  key?: string | number;
  ref?: Ref<any>;
  class?: string;
  style?: Record<string, string | number | undefined>;
  onClick?: Handler<MouseEvent>;
  onMouseDown?: Handler<MouseEvent>;
  onKeyDown?: Handler<KeyboardEvent>;
  onInput?: Handler<Event>;
  onChange?: Handler<Event>;
  onSubmit?: Handler<Event>;
  onClose?: Handler<Event>;
  [name: string]: unknown;
}

export function h(type: keyof HTMLElementTagNameMap | keyof SVGElementTagNameMap, props: Attributes | null, ...children: Child[]): VNode;
export function h<P extends object>(type: Component<P>, props: (NoInfer<Omit<P, "children">> & { key?: string | number }) | null, ...children: Child[]): VNode<P>;
export function render(what: VNode, where: Element): void;
export const Fragment: Component<{ children?: Child }>;
