// The why panel explains the state of a machine, a job or a group, now or at the time of the page.

import { h } from "./vendor/preact.js";
import { useEffect, useRef, useState } from "./vendor/preact-hooks.js";
import { get } from "./api.js";
import { clock, colourOf, IN_FLIGHT, needsText, plural, span, timeOfDay, usd, withoutName, withoutWait } from "./format.js";
import { paste } from "./paste.js";
import { Code, Command, CopyCommand, Empty, Failure, Link, Unblock, Why } from "./parts.js";
import { addressOf, at, change, instant, outcome, seq, status, view } from "./store.js";

/** The states in which a machine can be drained. */
const DRAINABLE = new Set([...IN_FLIGHT, "ready"]);
const RECALLABLE = new Set([...DRAINABLE, "cordoned", "draining"]);

/** @param {{over: boolean}} props */
export function WhyPanel({ over }) {
  const name = view.value.params.get("why");
  const [answer, setAnswer] = useState(/** @type {(import("./types.js").Why & {moment: number | null}) | null} */ (null));
  const [failure, setFailure] = useState(/** @type {string | null} */ (null));
  const panel = useRef(/** @type {HTMLElement | null} */ (null));
  const moment = at.value, version = seq.value;
  useEffect(() => {
    if (!name) return undefined;
    const stop = new AbortController();
    // The same name is requested at most once a second.
    const wait = answer?.name === name && answer.moment === moment ? 1000 : 0;
    const timer = setTimeout(async () => {
      try {
        const found = await get("/why", { name, at: moment }, stop.signal);
        setAnswer({ ...found, moment });
        setFailure(null);
      } catch (error) {
        if (!stop.signal.aborted) setFailure(error instanceof Error ? error.message : String(error));
      }
    }, wait);
    return () => { clearTimeout(timer); if (wait === 0) stop.abort(); };
  }, [name, moment, version]);
  useEffect(() => {
    if (!name) return undefined;
    const before = document.activeElement;
    panel.current?.focus();
    return () => {
      // The focus stays where the user has put it meanwhile, such as in the search.
      const active = document.activeElement, free = !active || active === document.body || active.closest(".why-panel") !== null;
      if (free && before instanceof HTMLElement && before.isConnected) before.focus();
    };
  }, [name]);
  useEffect(() => { setFailure(null); outcome.value = null; }, [name]);
  if (!name) return null;
  const known = answer?.name === name ? answer : null;
  const kind = known?.slice ? "slice" : known?.demand ? "demand" : known?.group ? "group" : known?.family ? "family" : known?.job ? "job" : "";
  return h("aside", { class: `panel why-panel${over ? " over" : ""}`, ref: panel, tabIndex: -1, "aria-label": `Why ${name}`, "data-testid": "why-panel", "data-subject": name, "data-kind": kind },
    h("header", null, h("h2", null, "Why ", h("span", { class: "mono" }, name)), h("span", { class: "cap", "data-testid": "why-at" }, known ? `as of ${clock(known.at)}` : ""),
      h("button", { type: "button", class: "btn", "data-testid": "why-close", "aria-label": "Close", onClick: () => change({ why: null }) }, "×")),
    h(Failure, { text: failure }),
    known?.slice && h(SliceAnswer, { one: known.slice }),
    known?.demand && h(DemandAnswer, { one: known.demand }),
    known?.group && h(GroupAnswer, { one: known.group }),
    known?.family && h(FamilyAnswer, { one: known.family }),
    known?.job && h(JobAnswer, { job: known.job, alone: kind === "job" }),
    known && !kind && h(Empty, null, "Nothing is known under this name."),
    known && h(Actions, { name, kind, answer: known }));
}

/** @param {{name: string, kind: string, answer: import("./types.js").Why}} props */
function Actions({ name, kind, answer }) {
  const slice = answer.slice, group = answer.group, done = outcome.value;
  const drained = slice && (slice.now.code === "MANUAL" || /asked to drain/.test(slice.now.why));
  return h("div", { class: "b" },
    done && done.subject === name && h("div", { class: "outcome", "data-testid": "command-outcome", "data-what": done.what, "data-heard": String(done.heard), role: "status", style: { marginBottom: "10px" } }, done.text),
    h("div", { class: "actions" },
      slice && drained && RECALLABLE.has(slice.state) ? h(Command, { what: "undrain", subject: name })
        : slice && h(Command, { what: "drain", subject: name, primary: true, disabled: !DRAINABLE.has(slice.state) }),
      group && !slice && (group.frozen_by ? h(Command, { what: "resume", subject: name, primary: true }) : h(Command, { what: "freeze", subject: name })),
      answer.family && (answer.family.frozen_by ? h(Command, { what: "resume", subject: name, primary: true }) : h(Command, { what: "freeze", subject: name })),
      h(Link, { class: "btn plain", to: addressOf("/decisions", { subject: name }) }, "Events of it"),
      h(CopyCommand, { line: `windlass why ${name}${at.value === null ? "" : ` --at ${at.value}`}` })));
}

/** A reason as a sentence; the name of a group at its start is not changed. @param {string} why */
function sentence(why) {
  if (!why) return "";
  const named = status.value?.groups.some((group) => why.startsWith(`${group.name} `) || why.startsWith(`${group.name}:`));
  return `${named ? why[0] : why[0].toUpperCase()}${why.slice(1)}.`;
}

/** @param {{one: import("./types.js").SliceWhy}} props */
function SliceAnswer({ one }) {
  const lost = one.life.some((step) => step.state === "lost");
  const gone = one.state === "terminated";
  const until = one.now.until ? ` until ${timeOfDay(one.now.until)} (${span(one.now.until - instant.value)})` : "";
  const passed = Object.entries(one.started.passed_over ?? {});
  return h("div", null,
    h("div", { class: "b" },
      h("div", { class: "cap" }, h(Why, { name: one.group, class: "link" }), ` · ${one.provider} · ${usd(one.hourly_cost)}/h`),
      h("div", { class: "t", "data-testid": "why-headline" }, sentence(one.now.why)),
      h("div", { class: "under" }, h(Code, { code: one.now.code, "data-testid": "why-code", "data-code": one.now.code ?? "" }), h("span", { class: "cap" }, `${one.state} since ${clock(one.since)}${until}`)),
      one.tasks > 0 && h("div", { class: "cap", style: { marginTop: "6px" } }, `${plural(one.tasks, "task")} ${one.tasks === 1 ? "runs" : "run"} there: the machine is not ended before ${one.tasks === 1 ? "it ends" : "they end"}.`)),
    h("div", { class: "b" }, h("h3", null, "Started for"),
      h("div", null, h(Code, { code: one.started.code }), " ", one.started.why),
      passed.length > 0 && h("div", { class: "cap", style: { marginTop: "6px" } }, `passed over: ${passed.map(([name, reason]) => `${name} (${reason.code})`).join(", ")}`)),
    h("div", { class: "b" }, h("h3", null, "Its life"),
      h("ol", { class: "steps", "data-testid": "why-life" }, one.life.map((step) =>
        h("li", { key: `${step.at}${step.state}`, "data-testid": "why-life-step", "data-state": step.state },
          h("i", { class: "dot", style: { background: step.state === "ready" ? "var(--s-busy)" : colourOf(step.state) } }),
          h("time", null, timeOfDay(step.at)), h("span", null, h("b", null, step.state), " ", h("span", { class: "dim" }, step.why)))))),
    h("div", { class: "b" }, h("h3", null, "Who said that it was empty"),
      h("div", { "data-testid": "why-certificate" }, one.certificate
        ? `The workload, at ${timeOfDay(one.certificate.at)} (cordon number ${one.certificate.fence}): nothing ran there.`
        : lost ? "No one: it was dead, so no acknowledgement was needed."
          : gone || one.state === "terminating" ? "It never joined the workload or was dead, so no acknowledgement was needed." : "No one yet: it is not ended before the workload says that it is empty.")));
}

/** A family of groups: its limits, and each of its offers, the cheapest first. @param {{one: NonNullable<import("./types.js").Why["family"]>}} props */
function FamilyAnswer({ one }) {
  const there = one.groups.reduce((sum, group) => sum + group.counted, 0), can = one.groups.filter((group) => !group.next.code).length;
  const bounds = [`at most ${one.max}`, one.min ? `at least ${one.min}` : "", one.spare ? `${one.spare} spare` : ""].filter(Boolean).join(", ");
  return h("div", null,
    h("div", { class: "b" },
      h("div", { class: "cap" }, `${plural(one.groups.length, "offer")}, ${bounds}`),
      h("div", { class: "t", "data-testid": "why-headline" }, one.frozen_by ? `Frozen by ${one.frozen_by}: nothing of it is launched or released.` : `${plural(there, "machine")}; ${can ? `one more can be had from ${plural(can, "offer")}` : "none of its offers can be had now"}.`)),
    h("div", { class: "b" }, h("h3", null, "Offers, the cheapest first"),
      h("div", { class: "acct", "data-testid": "why-groups" }, one.groups.map((group) => [
        h("span", { key: `${group.name}-why` }, h(Why, { name: group.name, class: "link" }), " ", h("span", { class: "dim" }, `${group.price === null ? "" : `${usd(group.price)}/h, `}${group.counted ? `${plural(group.counted, "machine")}, ${group.busy} busy` : group.next.why}`)),
        h("span", { key: group.name, "data-testid": "blocker", "data-group": group.name, "data-code": group.next.code ?? "" }, h(Code, { code: group.next.code, kind: group.next.code ? undefined : "fine", label: group.next.code ?? "can be had" }))]))));
}

/** The button of a change that is one order: to resume a group, a family or everything. @param {{change: string}} props */
function Resume({ change: text }) {
  const name = /^resume (\S+)$/.exec(text)?.[1];
  return name ? h("div", { class: "actions" }, h(Command, { what: "resume", subject: name === "everything" ? "*" : name })) : null;
}

/** @param {{one: import("./types.js").DemandWhy}} props */
function DemandAnswer({ one }) {
  const main = one.parts[0], groups = Object.entries(one.groups);
  const each = one.needs.map((bundle) => needsText(bundle.needs)).join(" or ");
  const headline = main ? sentence(withoutWait(main.why)) : "It no longer waits: its tasks run, have ended, or were cancelled.";
  return h("div", null,
    h("div", { class: "b" },
      h("div", { class: "cap" }, one.waits ? `${plural(one.tasks, "task")} of ${each}, waiting since ${clock(one.since)} (${span(instant.value - one.since)})` : `waited ${span((one.until ?? instant.value) - one.since)} for ${each}`),
      h("div", { class: "t", "data-testid": "why-headline" }, headline),
      main && h("div", { class: "under" }, h(Code, { code: main.code, kind: main.code ? undefined : "fine", label: main.code ?? "placed", "data-testid": "why-code", "data-code": main.code ?? "" })),
      one.parts.slice(1).map((part) => h("div", { key: part.why, class: "cap", style: { marginTop: "6px" } }, `${plural(part.tasks, "task")}: ${part.why}`))),
    groups.length > 0 && h("div", { class: "b" }, h("h3", null, "What blocks it, group by group"),
      h("div", { class: "acct", "data-testid": "why-groups" }, groups.map(([name, reason]) => [
        h("span", { key: `${name}-why` }, h(Why, { name, class: "link" }), " ", h("span", { class: "dim" }, withoutName(reason.why, name))),
        h("span", { key: name, "data-testid": "blocker", "data-group": name, "data-code": reason.code }, h(Code, { code: reason.code }))]))),
    groups.length > 0 && h("div", { class: "b" }, h("h3", null, "What would help"),
      h("div", { "data-testid": "why-unblocks" }, one.unblocks.length
        ? one.unblocks.map((way) => h("div", { key: way.change }, h(Unblock, { one: way, lead: false }), h(Resume, { change: way.change }), paste(way.set) && h("pre", { class: "paste", tabIndex: 0, "aria-label": "For the configuration file" }, paste(way.set))))
        : "No single change of a limit, a condition or a need places it now.")),
    one.launched.length > 0 && h("div", { class: "b" }, h("h3", null, "Launched for it"),
      h("div", { class: "acct" }, one.launched.slice(-8).map((launch) => [
        h("span", { key: `${launch.at}-what` }, `${plural(launch.slices.length, "machine")} of ${launch.group}: `, launch.slices.slice(0, 3).map((name, index) => [index ? ", " : "", h(Why, { name, class: "link" })])),
        h("span", { key: launch.at, class: "cap" }, timeOfDay(launch.at))]))),
    one.reasons.length > 1 && h("div", { class: "b" }, h("h3", null, "Why it waited, in the order of time"),
      h("ol", { class: "steps" }, one.reasons.slice(-8).map((reason) => h("li", { key: reason.at },
        h("i", { class: "dot", style: { background: "var(--line)" } }), h("time", null, timeOfDay(reason.at)), h("span", null, h(Code, { code: reason.code }), " ", reason.why ?? "waits no more"))))));
}

/** A job of the queue: how far it is, and how its failed tasks ended. @param {{job: any, alone: boolean}} props */
function JobAnswer({ job, alone }) {
  const counts = ["running", "waiting", "failed", "cancelled"].filter((name) => job[name]).map((name) => `, ${job[name]} ${name}`).join("");
  const text = `${job.done} of ${plural(job.tasks, "task")} done${counts}`;
  return h("div", null,
    h("div", { class: "b" }, alone ? [h("div", { class: "cap", key: "state" }, `${job.state}, submitted at ${clock(job.submitted)}`), h("div", { class: "t", key: "text", "data-testid": "why-headline" }, `${text}.`)] : [h("h3", { key: "title" }, "Its tasks"), text],
      job.nodes.length > 0 && h("div", { class: "cap", style: { marginTop: "6px" } }, `runs on ${job.nodes.slice(0, 4).join(", ")}${job.nodes.length > 4 ? ` and ${job.nodes.length - 4} more` : ""}`)),
    job.failures.map((/** @type {any} */ one) => h("div", { class: "b", key: one.task }, h("h3", null, `Task ${one.task} failed with exit code ${one.exit_code} on ${one.node}`),
      one.last_lines.length ? h("pre", { class: "paste", tabIndex: 0 }, one.last_lines.join("\n")) : h("div", { class: "cap" }, `it wrote nothing; its log is ${one.log}`))));
}

/** @param {{one: import("./types.js").GroupWhy}} props */
function GroupAnswer({ one }) {
  const counts = one.slices;
  const state = one.max === null ? "It is no longer in the settings: what is left of it is drained." : `${counts.counted} of ${one.max}: ${counts.ready} ready, ${counts.busy} busy, ${counts.coming} coming.`;
  const code = one.frozen_by ? "FROZEN" : one.next?.code ?? null;
  return h("div", null,
    h("div", { class: "b" },
      h("div", { class: "cap" }, [needsText(one.resources), one.provider, one.price !== null && `${usd(one.price)}/h each`].filter(Boolean).join(" · ")),
      h("div", { class: "t", "data-testid": "why-headline" }, one.frozen_by ? `Frozen by ${one.frozen_by}: nothing of it is launched or released. ` : "", state),
      h("div", { class: "under" }, h(Code, { code, kind: code ? undefined : "fine", label: code ?? "can be had", "data-testid": "why-code", "data-code": code ?? "" }), h("span", { class: "cap" }, one.next?.why ?? one.availability.why))),
    h("div", { class: "b" }, h("h3", null, "Limits"),
      h("div", { class: "acct" }, h("span", null, "at most"), h("span", null, one.max ?? "–"), h("span", null, "at least"), h("span", null, one.min ?? "–"), h("span", null, "spare"), h("span", null, one.spare ?? "–"),
        h("span", null, "released"), h("span", null, one.release.join("; ") || "never"))),
    h("div", { class: "b" }, h("h3", null, "Health"),
      h("div", null, `score ${one.health.toFixed(1)} of 1 after ${plural(one.failures.length, "failure")} lately; ${one.boot_seconds === null ? "boot time not known yet" : `boots in about ${span(one.boot_seconds)}`}`)),
    /** @type {const} */ (["launches", "refusals"]).map((key) => one[key].length > 0 && h("div", { class: "b", key }, h("h3", null, key === "launches" ? "Last launches" : "Last refusals"),
      h("ol", { class: "steps" }, one[key].slice().reverse().map((item) => h("li", { key: item.at },
        h("i", { class: "dot", style: { background: key === "launches" ? "var(--s-busy)" : "var(--s-failed)" } }), h("time", null, timeOfDay(item.at)),
        h("span", null, h(Code, { code: item.code }), " ", item.why)))))));
}
