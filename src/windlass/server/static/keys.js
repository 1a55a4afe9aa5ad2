// Keyboard shortcuts: every page can be used without a mouse.

import { h } from "./vendor/preact.js";
import { useEffect, useRef, useState } from "./vendor/preact-hooks.js";
import { signal } from "./vendor/signals-core.js";
import { addressOf, asked, at, change, go, now, view } from "./store.js";

export const helpShown = signal(false);
export const timeAsked = signal(false);

const PAGES = /** @type {Record<string, string>} */ ({ o: "/", g: "/groups", s: "/slices", d: "/demand", l: "/decisions", c: "/cost", w: "/what-if" });
const KEYS = [
  ["/", "find a job, machine or group"], ["g o", "overview"], ["g g", "groups"], ["g s", "machines"], ["g d", "jobs"], ["g l", "decisions"], ["g c", "cost"], ["g w", "what if"],
  ["j", "next row"], ["k", "previous row"], ["enter", "why of the row"], ["w", "why of the row"], ["esc", "close"], ["t", "go to a time"], ["l", "live again"], ["?", "all keys"],
];

let after = 0;

const rows = () => /** @type {HTMLElement[]} */ ([...document.querySelectorAll("main [data-row]")]);

/** The row that had the focus last. A row may leave the page, and the focus with it: the keys then go on from here. */
let last = /** @type {{name: string | null, place: number}} */ ({ name: null, place: -1 });
addEventListener("focusin", (event) => {
  const row = /** @type {HTMLElement} */ (event.target).closest?.("main [data-row]");
  last = row ? { name: row.getAttribute("data-row"), place: rows().indexOf(/** @type {HTMLElement} */ (row)) } : { name: null, place: -1 };
});

/** The name of the row that has the focus, or had it until it left the page. */
function focused() {
  const active = document.activeElement;
  return active === document.body ? last.name : active?.closest("[data-row]")?.getAttribute("data-row");
}

/** @param {number} step */
function move(step) {
  const all = rows(), active = document.activeElement, here = all.indexOf(/** @type {HTMLElement} */ (active?.closest("[data-row]")));
  const lost = here < 0 && active === document.body && last.place >= 0, place = lost ? last.place - (step > 0 ? 1 : 0) : here;
  const next = all[place < 0 && !lost ? (step > 0 ? 0 : all.length - 1) : Math.max(0, Math.min(all.length - 1, place + step))];
  next?.focus();
  next?.scrollIntoView({ block: "nearest" });
}

/** @param {KeyboardEvent} event */
function pressed(event) {
  if (event.metaKey || event.ctrlKey || event.altKey || view.value.path === "/login") return;
  const target = /** @type {HTMLElement} */ (event.target);
  const typing = /^(INPUT|SELECT|TEXTAREA)$/.test(target.tagName);
  if (event.key === "Escape") {
    if (typing) target.blur();
    else if (helpShown.value || timeAsked.value || asked.value) { helpShown.value = false; timeAsked.value = false; asked.value = null; }
    else if (view.value.params.get("why")) change({ why: null });
    return;
  }
  if (typing || document.querySelector("dialog[open]")) return;
  if (Date.now() - after < 1500 && PAGES[event.key]) {
    after = 0;
    event.preventDefault();
    go(addressOf(PAGES[event.key]));
    return;
  }
  const row = focused();
  /** @type {Record<string, () => void>} */
  const actions = {
    "/": () => document.getElementById("search")?.focus(), g: () => { after = Date.now(); }, j: () => move(1), k: () => move(-1),
    w: () => { if (row) change({ why: row }); }, t: () => { timeAsked.value = true; }, l: () => { if (at.value !== null) change({ at: null }); }, "?": () => { helpShown.value = true; },
  };
  const isControl = target.tagName === "BUTTON" || target.tagName === "A";
  if (event.key === "Enter" && row && !isControl) { event.preventDefault(); change({ why: row }); return; }
  const action = actions[event.key];
  if (action) { event.preventDefault(); action(); }
}

export function listen() {
  addEventListener("keydown", pressed);
  return () => removeEventListener("keydown", pressed);
}

/** @param {import("./vendor/preact-hooks.js").Ref<HTMLDialogElement>} box */
function useModal(box) {
  useEffect(() => { box.current?.showModal(); }, []);
}

export function Help() {
  const box = useRef(/** @type {HTMLDialogElement | null} */ (null));
  useModal(box);
  return h("dialog", { ref: box, "aria-label": "Keys", onClose: () => { helpShown.value = false; } }, h("h2", null, "Keys"),
    h("div", { class: "keys-list" }, KEYS.map(([keys, text]) => [h("span", { key: keys }, keys.split(" ").map((key) => [h("kbd", { key }, key), " "])), h("span", { key: `${keys} text` }, text)])),
    h("div", { class: "actions" }, h("button", { type: "button", class: "btn", onClick: () => { helpShown.value = false; } }, "Close")));
}

/** A time as people write it: 14:02, 14:02:30, 2026-03-01 14:02, 10m ago, or seconds since 1970. @param {string} text */
export function readTime(text) {
  const ago = /^\s*(\d+(?:\.\d+)?)\s*(s|m|min|h|d)\s*(?:ago)?\s*$/.exec(text);
  if (ago) return now.value - Number(ago[1]) * (/** @type {Record<string, number>} */ ({ s: 1, m: 60, min: 60, h: 3600, d: 86400 }))[ago[2]];
  const time = /^\s*(\d{1,2}):(\d\d)(?::(\d\d))?\s*$/.exec(text);
  if (time) {
    const day = new Date();
    day.setHours(Number(time[1]), Number(time[2]), Number(time[3] ?? 0), 0);
    const found = day.getTime() / 1000;
    return found > now.value ? found - 86400 : found;
  }
  if (/^\s*\d{9,}(\.\d+)?\s*$/.test(text)) return Number(text);
  const date = new Date(text.trim().replace(" ", "T"));
  return Number.isNaN(date.getTime()) ? null : date.getTime() / 1000;
}

export function TimeDialog() {
  const box = useRef(/** @type {HTMLDialogElement | null} */ (null));
  const [text, setText] = useState("");
  const [wrong, setWrong] = useState(false);
  useModal(box);
  const travel = (/** @type {Event} */ event) => {
    event.preventDefault();
    const found = readTime(text);
    if (found === null) { setWrong(true); return; }
    timeAsked.value = false;
    change({ at: String(Math.round(found * 1000) / 1000) });
  };
  return h("dialog", { ref: box, "aria-label": "Go to a time", onClose: () => { timeAsked.value = false; } }, h("form", { onSubmit: travel },
    h("p", null, "Go to a time: 14:02, 2026-03-01 14:02 or 10m ago"),
    h("input", { class: "field", "aria-label": "Time", autofocus: true, value: text, onInput: (/** @type {Event} */ event) => { setText(/** @type {HTMLInputElement} */ (event.currentTarget).value); setWrong(false); } }),
    wrong && h("p", { class: "warn" }, "Not a valid time. Write 14:02 or 10m ago."),
    h("div", { class: "actions" }, h("button", { type: "button", class: "btn", onClick: () => { timeAsked.value = false; } }, "Cancel"), h("button", { type: "submit", class: "btn primary" }, "Go"))));
}
