// Charts over time: uPlot with steps, in the colours of the theme. A click goes to that time.

import { h } from "./vendor/preact.js";
import { useEffect, useRef } from "./vendor/preact-hooks.js";
import { signal } from "./vendor/signals-core.js";
import uPlot from "./vendor/uplot.js";
import { minuteOfDay, timeOfDay } from "./format.js";
import { change, knownUntil } from "./store.js";

export const theme = signal(document.documentElement.dataset.theme ?? "light");

/** A colour as the canvas takes it: `--name`, or `--name/share` for a translucent one. @param {string} name */
function colour(name) {
  const [variable, share] = name.split("/");
  const value = getComputedStyle(document.documentElement).getPropertyValue(variable).trim();
  if (!share) return value;
  const parts = /^#(..)(..)(..)$/.exec(value);
  return parts ? `rgba(${parseInt(parts[1], 16)},${parseInt(parts[2], 16)},${parseInt(parts[3], 16)},${share})` : value;
}

/** @typedef {{values: (number | null)[], stroke?: string, fill?: string, dash?: number[]}} Curve */

/**
 * @param {{times: number[], curves: Curve[], height: number, top: number, label: string}} props
 * `curves`: drawn in order; for stacked areas give sums, the largest first.
 */
export function Chart({ times, curves, height, top, label }) {
  const box = useRef(/** @type {HTMLDivElement | null} */ (null));
  const plot = useRef(/** @type {any} */ (null));
  const shape = JSON.stringify([curves.map((one) => [one.stroke, one.fill, one.dash]), height, theme.value]);
  useEffect(() => {
    const element = box.current;
    if (!element) return undefined;
    const steps = uPlot.paths.stepped({ align: 1 });
    const made = new uPlot({
      width: Math.max(40, element.clientWidth), height, padding: [2, 0, 0, 0], legend: { show: false },
      cursor: { y: false, points: { show: false }, drag: { x: false, y: false, setScale: false } },
      axes: [{ show: false }, { show: false }],
      scales: { x: { time: true, range: (/** @type {any} */ _u, /** @type {number} */ min, /** @type {number} */ max) => [min, max] }, y: { range: () => [0, topOf.current] } },
      series: [{}, ...curves.map((one) => ({ paths: steps, points: { show: false }, width: one.stroke ? 1.5 : 0, stroke: one.stroke ? colour(one.stroke) : undefined, fill: one.fill ? colour(one.fill) : undefined, dash: one.dash }))],
    }, [[], ...curves.map(() => [])], element);
    plot.current = made;
    const travel = (/** @type {MouseEvent} */ event) => {
      const time = made.posToVal(event.offsetX, "x");
      if (Number.isFinite(time)) change({ at: String(Math.round(time * 1000) / 1000) });
    };
    made.over.addEventListener("mouseup", travel);
    const watch = new ResizeObserver(() => made.setSize({ width: Math.max(40, element.clientWidth), height }));
    watch.observe(element);
    return () => { watch.disconnect(); made.destroy(); plot.current = null; };
  }, [shape]);
  const topOf = useRef(top);
  useEffect(() => {
    topOf.current = top > 0 ? top : 1;
    plot.current?.setData([times, ...curves.map((one) => one.values)]);
  }, [times, curves, top, shape]);
  return h("div", { class: "chart", ref: box, role: "img", "aria-label": label, style: { height: `${height}px` } });
}

/** @param {{from: number, to: number}} props */
export function Ticks({ from, to }) {
  const length = to - from, text = length > 7200 ? minuteOfDay : timeOfDay;
  const places = [0, 0.25, 0.5, 0.75];
  return h("div", { class: "ticks cap" },
    places.map((share) => h("span", { key: share, style: { left: `${share * 100}%` } }, text(from + share * length))),
    h("span", { style: { left: "100%" } }, knownUntil.value === null ? "now" : text(to)));
}

/** Sums for a stacked area, the largest first, each with its colour. @param {[number[], string][]} layers from the bottom up @returns {Curve[]} */
export function stacked(layers) {
  /** @type {Curve[]} */
  const found = [];
  let sums = /** @type {number[]} */ ([]);
  for (const [values, fill] of layers) {
    sums = values.map((value, index) => value + (sums[index] ?? 0));
    found.push({ values: sums, fill });
  }
  return found.reverse();
}
