// The dashboard: the bar at the top, the page of the address, and the panels over every page.

import { h, render } from "./vendor/preact.js";
import { useEffect, useRef, useState } from "./vendor/preact-hooks.js";
import "./vendor/signals.js";
import { get, UNREACHABLE } from "./api.js";
import { theme } from "./charts.js";
import { clock, span } from "./format.js";
import { helpShown, Help, listen, timeAsked, TimeDialog } from "./keys.js";
import { Alarms } from "./alarms.js";
import { Failure, Link, Loading } from "./parts.js";
import { addressOf, asked, at, change, connection, liveState, load, me, now, order, outcome, problem, seq, status, toasts, toLogin, view } from "./store.js";
import { follow } from "./stream.js";
import { WhyPanel } from "./why.js";
import { Cost } from "./pages/cost.js";
import { Decisions } from "./pages/decisions.js";
import { Demands } from "./pages/demand.js";
import { Groups } from "./pages/groups.js";
import { Login } from "./pages/login.js";
import { Overview } from "./pages/overview.js";
import { Slices } from "./pages/slices.js";
import { WhatIf } from "./pages/whatif.js";

/** @type {[string, string, string, () => any][]} path, name, label, page */
const PAGES = [
  ["/", "overview", "Overview", Overview], ["/groups", "groups", "Groups", Groups], ["/slices", "slices", "Machines", Slices], ["/demand", "demand", "Jobs", Demands],
  ["/decisions", "decisions", "Decisions", Decisions], ["/cost", "cost", "Cost", Cost], ["/what-if", "whatif", "What if", WhatIf],
];

const Logo = () => h("svg", { width: 20, height: 20, viewBox: "0 0 20 20", fill: "none", stroke: "currentColor", "stroke-width": "2", "stroke-linecap": "round", "aria-hidden": "true" },
  h("circle", { cx: 9, cy: 10, r: "5.2" }), h("path", { d: "M9 10h8.4M17.4 10v-4M3.8 10H1.6" }), h("circle", { cx: 9, cy: 10, r: 1, fill: "currentColor", stroke: "none" }));

function toggleTheme() {
  const next = theme.value === "dark" ? "light" : "dark";
  document.documentElement.dataset.theme = next;
  theme.value = next;
  try { localStorage.setItem("windlass-theme", next); } catch { /* storage may be forbidden */ }
}

function Search() {
  const [text, setText] = useState("");
  const [place, setPlace] = useState(0);
  const field = useRef(/** @type {HTMLInputElement | null} */ (null));
  const known = status.value, words = text.trim().toLowerCase();
  const names = !words || !known ? [] : [...known.families.map((one) => [one.name, "family"]), ...known.groups.map((one) => [one.name, "group"]), ...known.demands.map((one) => [one.id, "job"]), ...known.slices.map((one) => [one.id, "machine"])]
    .filter(([name]) => name.toLowerCase().includes(words)).slice(0, 8);
  const open = (/** @type {string} */ name) => { setText(""); field.current?.blur(); change({ why: name }); };
  const onKeyDown = (/** @type {KeyboardEvent} */ event) => {
    if (event.key === "Escape") { setText(""); field.current?.blur(); }
    if (event.key === "ArrowDown" || event.key === "ArrowUp") { event.preventDefault(); setPlace((before) => Math.max(0, Math.min(names.length - 1, before + (event.key === "ArrowDown" ? 1 : -1)))); }
    if (event.key === "Enter" && words) open(names[place]?.[0] ?? text.trim());
    event.stopPropagation();
  };
  return h("div", { class: "search", role: "search" },
    h("svg", { width: 13, height: 13, viewBox: "0 0 16 16", fill: "none", stroke: "currentColor", "stroke-width": "1.7", "aria-hidden": "true" }, h("circle", { cx: 7, cy: 7, r: "4.5" }), h("path", { d: "m10.5 10.5 4 4" })),
    h("input", { ref: field, id: "search", type: "text", placeholder: "Job, machine or group", "aria-label": "Find a job, machine or group", "data-testid": "search", value: text, onKeyDown, onInput: (/** @type {Event} */ event) => { setText(/** @type {HTMLInputElement} */ (event.currentTarget).value); setPlace(0); } }),
    h("kbd", { "aria-hidden": "true" }, "/"),
    names.length > 0 && h("ul", { class: "found", role: "listbox", "aria-label": "Names" }, names.map(([name, kind], index) => h("li", { key: name, role: "option", "aria-selected": index === place ? "true" : "false" },
      h("a", { href: addressOf(view.value.path, { why: name }), tabIndex: -1, onMouseDown: (/** @type {Event} */ event) => { event.preventDefault(); open(name); } }, h("span", { title: name }, name), h("span", { class: "grow" }), h("span", { class: "cap" }, kind))))));
}

function Top() {
  const bar = useRef(/** @type {HTMLElement | null} */ (null)), path = view.value.path;
  useEffect(() => { bar.current?.querySelector("[aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" }); }, [path]);
  const known = status.value, leader = known?.leader, state = liveState.value, who = me.value;
  const words = { live: "live", reconnecting: `reconnecting since ${clock(connection.value.since)}`, stale: connection.value.state === "live" ? `as of ${clock(known?.as_of ?? 0)}` : `no connection since ${clock(connection.value.since)}`, past: "the past" };
  return h("header", { class: "top" },
    h(Link, { class: "brand", to: addressOf("/") }, h(Logo, null), "windlass"),
    h("nav", { ref: bar, "aria-label": "Pages" }, PAGES.map(([path, name, label]) => h(Link, { key: name, to: addressOf(path), "data-testid": `nav-${name}`, "aria-current": path === view.value.path ? "page" : undefined }, label))),
    h("span", { class: "grow" }), h(Search, null),
    h("span", { class: "chip leader", "data-testid": "leader", title: leader?.alive ? `leader ${leader.holder}, epoch ${leader.epoch}` : "" }, leader ? (leader.alive ? leader.holder : "no controller runs") : ""),
    h("span", { class: "chip live", "data-testid": "live-state", "data-state": state }, h("i", { class: "dot" }), h("span", null, words[/** @type {keyof typeof words} */ (state)])),
    h("span", { class: "chip", "data-testid": "role", "data-role": who?.role ?? "", title: who?.name ?? "" }, who?.role ?? ""),
    h("button", { type: "button", class: "btn", "data-testid": "theme-toggle", "aria-label": theme.value === "dark" ? "Light colours" : "Dark colours", onClick: toggleTheme }, "◐"));
}

function Band() {
  if (at.value === null) return null;
  return h("div", { class: "band", "data-testid": "as-of" }, h("span", null, `As of ${clock(at.value)}, ${span(now.value - at.value)} ago. This page does not show the current state.`),
    h("button", { type: "button", class: "btn", "data-testid": "go-live", onClick: () => change({ at: null }) }, "Go live"));
}

function Confirm() {
  const box = useRef(/** @type {HTMLDialogElement | null} */ (null));
  const question = asked.value;
  useEffect(() => {
    if (question) box.current?.showModal();
    else box.current?.close();
  }, [question]);
  if (!question) return null;
  const yes = () => { const { what, subject } = question; asked.value = null; void order(what, subject); };
  return h("dialog", { ref: box, "data-testid": "confirm-dialog", "aria-label": "Confirm", onClose: () => { asked.value = null; } },
    h("p", { "data-testid": "confirm-text" }, question.text),
    h("div", { class: "actions" },
      h("button", { type: "button", class: "btn", "data-testid": "confirm-no", onClick: () => { asked.value = null; } }, "Cancel"),
      h("button", { type: "button", class: "btn primary", "data-testid": "confirm-yes", autofocus: true, onClick: yes }, `${question.what[0].toUpperCase()}${question.what.slice(1)}`)));
}

/** The outcome of an order that was given outside of a why panel. */
function Outcome() {
  const done = outcome.value;
  if (!done || view.value.params.get("why") === done.subject) return null;
  return h("div", { class: "outcome", role: "status", "data-testid": "command-outcome", "data-what": done.what, "data-heard": String(done.heard), style: { margin: "14px 0px" } }, done.text);
}

function App() {
  useEffect(() => listen(), []);
  const path = view.value.path;
  useEffect(() => { document.title = `Windlass${path === "/" ? "" : ` · ${PAGES.find(([one]) => one === path)?.[2] ?? ""}`}`; }, [path]);
  if (path === "/login") return h("div", { "data-testid": "app", "data-seq": 0 }, h(Login, null));
  const page = PAGES.find(([one]) => one === path), beside = path === "/slices", why = view.value.params.get("why");
  const lost = at.value === null && connection.value.state === "stale" ? `The server has not answered since ${clock(connection.value.since)}. What is shown is from then; the page tries again every few seconds.` : null;
  const failure = problem.value ?? lost, old = failure !== null && status.value !== null;
  return h("div", { "data-testid": "app", "data-seq": seq.value },
    h(Top, null), h(Band, null),
    h("main", { class: old ? "stale-data" : "" },
      h(Failure, { text: failure }),
      status.value && path !== "/" && h(Alarms, { above: true }),
      h(Outcome, null),
      !status.value ? (problem.value ? null : h(Loading, null)) : page
        ? h("div", { class: beside && why ? "split" : "split alone", }, h("div", { style: { minWidth: "0px" } }, h(page[3], null)), beside && why && h(WhyPanel, { over: false }))
        : h("section", { "data-testid": "error", class: "nothing" }, "There is no such page. ", h(Link, { to: addressOf("/"), class: "link" }, "Overview")),
      status.value && h("footer", { class: "keys" }, [["/", "find"], ["g s", "machines"], ["j k", "next, previous"], ["w", "why"], ["t", "go to a time"], ["?", "all keys"]].map(([keys, text]) => h("span", { key: text }, keys.split(" ").map((key) => [h("kbd", { key }, key), " "]), text)), h("span", { class: "grow" }), h("span", null, `journal record ${seq.value}`))),
    !beside && why && status.value && h(WhyPanel, { over: true }),
    h(Confirm, null), helpShown.value && h(Help, null), timeAsked.value && h(TimeDialog, null),
    h("div", { class: "toasts", role: "status" }, toasts.value.map((one) => h("div", { class: "toast", key: one.id, "data-testid": "toast" }, one.text))));
}

async function start() {
  render(h(App, null), /** @type {HTMLElement} */ (document.getElementById("root")));
  /** @type {Promise<boolean> | null} */
  let begun = null;
  if (location.pathname !== "/login") {
    begun = load(); // at the same time as whoami: the page needs both
    try {
      me.value = await get("/whoami");
    } catch (error) {
      if (/** @type {any} */ (error).status === 401) toLogin();
      else { problem.value = UNREACHABLE; setTimeout(() => location.reload(), 3000); }
    }
  }
  follow(begun);
}

void start();
