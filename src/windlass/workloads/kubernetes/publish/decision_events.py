"""This module chooses the events of a pass: machines bought and for which pods, pods that wait, changes of nodes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from windlass.core.model.lifecycle import State
from windlass.core.model.plan import Plan, Waiting
from windlass.core.model.reasons import Code, Reason, plural
from windlass.workloads.kubernetes.mirror import ClusterMirror
from windlass.workloads.kubernetes.translate.demand import WaitingPods
from windlass.workloads.kubernetes.translate.pods import MirroredPod
from windlass.workloads.protocol import DecidedSlice, DecisionReport

from .events import EventRecorder, Subject

MOST_PODS: Final = 200
"""The most pods of one demand that get an event: ten thousand equal pods do not need an event each."""


class DecisionEvents:
    """Sends events for what has changed since the last decision."""

    def __init__(self, events: EventRecorder, mirror: ClusterMirror) -> None:
        self._events, self._mirror = events, mirror
        self._before: Mapping[str, DecidedSlice] | None = None

    def send(self, decision: DecisionReport, waiting: WaitingPods) -> None:
        plan = decision.plan
        if plan is not None:
            self._report_launches(plan, waiting)
            for item in plan.waiting:
                self._report_waiting(item, waiting)
        for key, why in waiting.not_understood.items():
            namespace, _, name = key.partition("/")
            known = self._mirror.pods.store.get(key)
            about = Subject("Pod", name, namespace, known.uid if known is not None else "")
            self._events.send(about, "NotTriggerScaleUp", f"{Code.UNKNOWN_INPUT}: {why}", only_if_new=True)
        self._report_slices(decision)
        for slice_id, why in decision.refused:
            decided = decision.slices.get(slice_id) or (self._before or {}).get(slice_id)
            if decided is not None:
                about = self._provisioner(decided.group)
                code = decision.refusal_codes.get(slice_id, decided.reason.code)
                self._events.send(about, "ProviderError", f"{code}: {slice_id}: {why}")
        self._before = decision.slices

    def _report_launches(self, plan: Plan, waiting: WaitingPods) -> None:
        for launch in plan.launches:
            about = self._provisioner(launch.group)
            text = f"{launch.reason.code}: bought {plural(launch.count, 'machine')}: {launch.reason.why}"
            self._events.send(about, "ScaledUp", text)
        if not plan.launches:
            return
        bought = plan.group_of_new
        triggered: dict[str, dict[str, int]] = {}
        for one in plan.placements:
            if (group := bought.get(one.on)) is not None:
                counts = triggered.setdefault(one.demand, {})
                counts[group] = counts.get(group, 0) + one.count
        for demand, counts in triggered.items():
            total = sum(counts.values())
            groups = ", ".join(f"{group}: {plural(plan.launch.get(group, 0), 'machine')}" for group in sorted(counts))
            for pod in waiting.pods.get(demand, ())[: min(total, MOST_PODS)]:
                self._events.send(_pod(pod), "TriggeredScaleUp", f"{Code.DEMAND}: pod triggered scale-up of {groups}")

    def _report_waiting(self, item: Waiting, waiting: WaitingPods) -> None:
        text = _waiting_text(item)
        pods = waiting.pods.get(item.demand, ())
        for pod in pods[-item.count :][:MOST_PODS]:
            self._events.send(_pod(pod), "NotTriggerScaleUp", text, only_if_new=True)

    def _report_slices(self, decision: DecisionReport) -> None:
        before = self._before
        if before is None:
            return
        plan = decision.plan
        reasons = {one.slice: one.reason for one in (*plan.mark, *plan.unmark)} if plan is not None else {}
        ended: dict[str, list[str]] = {}
        for name, now in decision.slices.items():
            was = before.get(name)
            if was is None:
                continue
            if was.marked_until is None and now.marked_until is not None and now.state == State.READY:
                self._on_nodes(name, "ScaleDownMarked", reasons.get(name, now.reason))
            elif was.marked_until is not None and now.marked_until is None and was.state == State.READY == now.state:
                self._on_nodes(name, "ScaleDownUnmarked", reasons.get(name, now.reason))
            if now.state != was.state:
                if now.state == State.TERMINATING:
                    self._on_nodes(name, "ScaleDown", now.reason)
                elif now.state == State.READY and was.state in (State.CORDONED, State.DRAINING):
                    kind = "ScaleDownBlocked" if now.reason.code == Code.DRAIN_ABORTED else "ScaleDownUnmarked"
                    self._on_nodes(name, kind, now.reason)
        for name, was in before.items():
            if name not in decision.slices and was.state == State.TERMINATING:
                ended.setdefault(was.group, []).append(name)
        for group, names in ended.items():
            text = f"{before[names[0]].reason.code}: released {plural(len(names), 'machine')}"
            self._events.send(self._provisioner(group), "ScaledDown", text)

    def _on_nodes(self, slice_id: str, kind: str, reason: Reason) -> None:
        for node in self._mirror.nodes_of(slice_id).values():
            self._events.send(Subject("Node", node.name, uid=node.uid), kind, reason)

    def _provisioner(self, name: str) -> Subject:
        known = self._mirror.provisioners.store.get(name)
        return Subject("NodeProvisioner", name, uid=known.metadata.uid if known is not None else "")


def _waiting_text(item: Waiting) -> str:
    """Return the reason for which pods wait, then the reason of each provisioner; no sentence twice."""
    text = f"{item.reason.code}: {item.reason.why}"
    if not item.groups:
        return f"{text}. There is no NodeProvisioner"
    if len(item.groups) == 1 and set(item.groups.values()) == {item.reason}:
        (name,) = item.groups
        return text if name in item.reason.why else f"{item.reason.code}: {name}: {item.reason.why}"
    reasons = {name: why.why.removeprefix(f"{name}: ") for name, why in sorted(item.groups.items())}
    groups = "; ".join(f"{name}: {item.groups[name].code} {why}" for name, why in reasons.items())
    more = item.reason.why
    for name, why in reasons.items():
        more = more.replace(f"{name}: {why}", "").replace(why, "")
    return f"{text}. {groups}" if more.strip("; ") else f"{item.reason.code}: {groups}"


def _pod(pod: MirroredPod) -> Subject:
    return Subject("Pod", pod.name, pod.namespace, pod.uid)
