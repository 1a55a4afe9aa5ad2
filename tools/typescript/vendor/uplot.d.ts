// What the dashboard uses of uPlot.

type Path = (...args: unknown[]) => unknown;
declare class uPlot {
  constructor(options: Record<string, unknown>, data: (number | null)[][], where: HTMLElement);
  static paths: { stepped(options: { align: 1 | -1 }): Path };
  readonly over: HTMLElement;
  posToVal(position: number, scale: string): number;
  setData(data: (number | null)[][]): void;
  setSize(size: { width: number; height: number }): void;
  destroy(): void;
}
export default uPlot;
