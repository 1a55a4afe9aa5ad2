"""The checker catches a planted bug for each invariant, in a controller, a cloud or a workload."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.sim.small import GPU, QUICK, broken, job, script, settings
from windlass.control import controller as controller_module
from windlass.control.act import actuator
from windlass.control.act.actuator import Actuator
from windlass.control.controller import Controller, Pass
from windlass.control.leadership import Leading
from windlass.control.reconcile import cycle, transitions
from windlass.control.record.controller_state import ControllerState
from windlass.control.record.state_reader import recovered_with_checkpoint
from windlass.control.settings import GroupSettings, Interval, Policy, Settings
from windlass.control.state import fleet as fleet_module
from windlass.control.state.diff import updated
from windlass.control.state.fleet import SliceRecord
from windlass.core.model.lifecycle import State
from windlass.core.model.reasons import Code, Reason
from windlass.core.model.snapshot import Cluster, Gang, ScaleDown
from windlass.core.planner import plan
from windlass.journal.memory import MemoryJournal
from windlass.sim.faults.catalogue import Fault
from windlass.sim.run.simulation import Simulation, simulate
from windlass.sim.workload.workload import SimulatedWorkload


def rewrite(controller: Controller, change) -> None:
    """Change every record that the controller remembers."""
    fleet = controller.controller_state.fleet
    slices = {name: change(record) for name, record in fleet.slices.items()}
    kept = {name: record for name, record in slices.items() if record is not None}
    controller.controller_state = replace(controller.controller_state, fleet=replace(fleet, slices=kept))


def planted_planner(monkeypatch, planner) -> None:
    """Let every controller plan with another planner."""
    monkeypatch.setattr(controller_module, "plan", lambda snapshot, memo=None: planner(snapshot))


class Planted(Controller):
    """A controller whose memory is tampered with after every pass."""

    def tamper(self) -> None:
        raise NotImplementedError

    async def tick(self) -> Pass:
        made = await super().tick()
        self.tamper()
        return made


class EndsWithoutAsking(Planted):
    """Ends what is busy, with a certificate that nobody gave."""

    def tamper(self) -> None:
        def end(record: SliceRecord) -> SliceRecord:
            if record.state == State.READY and any(node.busy for node in record.nodes):
                return replace(record, state=State.TERMINATING, fence=7, certificate=7, since=self.now())
            return record

        rewrite(self, end)


class EndsWithoutACertificate(Planted):
    def tamper(self) -> None:
        for record in self.controller_state.fleet.slices.values():
            if record.state == State.READY and record.nodes and not any(node.busy for node in record.nodes):
                terminate = self.providers[record.provider].terminate(record.id, self.leading.epoch)
                with pytest.raises(StopIteration):
                    terminate.send(None)
                return


class Forgets(Planted):
    def tamper(self) -> None:
        rewrite(self, lambda record: None if record.state == State.READY else record)


class Overlooks(Planted):
    """Takes nothing over that it did not buy."""

    def tamper(self) -> None:
        rewrite(self, lambda record: record if record.asked_at is not None or record.attempts else None)


class BuysTwice(Controller):
    """Asks every provider for each slice."""

    def start(self) -> None:
        everyone = list(self.providers.values())

        class All:
            def __init__(self, provider) -> None:
                self.list, self.terminate = provider.list, provider.terminate
                self.offerings, self.close, self.bind = provider.offerings, provider.close, provider.bind

            async def launch(self, order, epoch) -> None:
                for provider in everyone:
                    await provider.launch(order, epoch)

        self.providers = {name: All(provider) for name, provider in self.providers.items()}
        super().start()


class LosesIdleClocks(Planted):
    def tamper(self) -> None:
        def late(record: SliceRecord) -> SliceRecord:
            nodes = tuple(
                node if node.idle_since is None else replace(node, idle_since=self.now()) for node in record.nodes
            )
            return replace(record, nodes=nodes)

        rewrite(self, late)


class JumpsAhead(Planted):
    """From booting straight to draining."""

    def tamper(self) -> None:
        rewrite(self, lambda one: replace(one, state=State.QUEUED) if one.state == State.READY else one)


class ReleasesBlindly(Planted):
    """Cordons although a source is unknown."""

    unknown = False

    async def tick(self) -> Pass:
        made = await super().tick()
        self.unknown = bool(made.fold.unknown)
        self.tamper()
        return made

    def tamper(self) -> None:
        if self.unknown:
            rewrite(self, lambda one: replace(one, state=State.CORDONED) if one.state == State.READY else one)


class GivesNoReason(Planted):
    def tamper(self) -> None:
        rewrite(self, lambda one: replace(one, reason=Reason(Code.BOOTING, "")))


class PadsTheBill(Planted):
    def tamper(self) -> None:
        padded = {name: replace(one, idle=one.idle + 1) for name, one in self.controller_state.account.items()}
        self.controller_state = replace(self.controller_state, account=padded)


class Raises(Planted):
    def tamper(self) -> None:
        if self.controller_state.fleet.slices:
            raise KeyError("planted")


class Dawdles(Planted):
    async def tick(self) -> Pass:
        import asyncio

        await asyncio.sleep(20)
        return await super().tick()


class Undercuts(Planted):
    def tamper(self) -> None:
        rewrite(self, lambda one: replace(one, state=State.CORDONED) if one.state == State.READY else one)


@pytest.mark.parametrize(
    ("bug", "invariant"),
    [
        (EndsWithoutAsking, "S1"),
        (EndsWithoutACertificate, "S1"),
        (Forgets, "S4"),
        (LosesIdleClocks, "S9"),
        (JumpsAhead, "S10"),
        (GivesNoReason, "S13"),
        (PadsTheBill, "S14"),
        (Raises, "L3"),
        (Dawdles, "L3"),
    ],
)
def test_a_controller_with_a_bug_is_caught(bug, invariant):
    assert invariant in broken(simulate(script(), controller=bug))


def test_a_controller_that_releases_while_a_source_is_unknown_is_caught():
    blind = script(faults=(Fault("list-fails", start=900),), hours=0.5)
    assert "S6" in broken(simulate(blind, controller=ReleasesBlindly))


def test_a_controller_that_undercuts_min_is_caught():
    assert "S2" in broken(simulate(script(settings=settings(replace(GPU, min=1))), controller=Undercuts))


def test_a_controller_that_ignores_max_is_caught(monkeypatch):
    def greedy(snapshot):
        generous = tuple(replace(group, max=99) for group in snapshot.groups)
        return honest(replace(snapshot, groups=generous))

    honest = plan
    planted_planner(monkeypatch, greedy)
    assert "S3" in broken(simulate(script(job("a", 12)), stop_at_breach=False))


@pytest.mark.parametrize(
    ("limit", "output"),
    [(Cluster(max_nodes=1), "the limit is 1"), (Cluster(max_hourly_cost=3 * 10**9), "the ceiling is")],
)
def test_a_controller_that_ignores_a_limit_of_the_cluster_is_caught(monkeypatch, limit, output):
    honest = plan
    planted_planner(monkeypatch, lambda snapshot: honest(replace(snapshot, cluster=Cluster())))
    run = simulate(script(settings=settings(cluster=limit)), stop_at_breach=False)
    assert any(breach.invariant == "S3" and output in breach.text for breach in run.breaches)


def test_a_controller_that_overlooks_what_the_list_shows_is_caught():
    run = simulate(script(faults=(Fault("hand-created", 4.0),)), controller=Overlooks, stop_at_breach=False)
    assert any(breach.invariant == "S4" and "in no record for" in breach.text for breach in run.breaches)


def test_a_controller_that_buys_a_slice_from_two_providers_is_caught():
    two = Settings((GroupSettings(GPU, "cloud"), GroupSettings(replace(GPU, name="other"), "sky")), Cluster(), QUICK)
    run = simulate(script(settings=two), controller=BuysTwice, stop_at_breach=False)
    assert any(breach.invariant == "S5" and "is there 2 times" in breach.text for breach in run.breaches)


def test_a_plan_that_depends_on_the_order_of_its_input_is_caught(monkeypatch):
    honest = plan

    def moody(snapshot):
        made = honest(snapshot)
        return made if not made.launches else replace(made, launches=made.launches * 2)

    planted_planner(monkeypatch, moody)
    assert "S11" in broken(simulate(script(job("a", 1)), stop_at_breach=False))


def test_a_controller_that_protects_nothing_is_caught(monkeypatch):
    honest = plan

    def careless(snapshot):
        return honest(replace(snapshot, groups=tuple(replace(one, protected=frozenset()) for one in snapshot.groups)))

    planted_planner(monkeypatch, careless)
    guarded = settings(replace(GPU, protected=frozenset({"gpu-lfls-1"})))
    assert "S2" in broken(simulate(script(settings=guarded), stop_at_breach=False))


def test_a_controller_that_swaps_for_ever_is_caught(monkeypatch):
    """It gives back what stands idle and buys it again at once."""
    honest = plan

    def restless(snapshot):
        minded = tuple(replace(group, min=1) for group in snapshot.groups)
        return honest(replace(snapshot, groups=minded if int(snapshot.now) // 600 % 2 else snapshot.groups))

    planted_planner(monkeypatch, restless)
    monkeypatch.setattr("windlass.sim.run.simulation.CAP", 20_000.0)
    assert "S8" in broken(simulate(script(job("a")), stop_at_breach=False))


def test_a_controller_that_never_releases_is_caught(monkeypatch):
    honest = plan
    planted_planner(monkeypatch, lambda snapshot: replace(honest(snapshot), drain=()))
    assert "L2" in broken(simulate(script(job("a")), stop_at_breach=False))


def test_a_controller_that_never_launches_is_caught(monkeypatch):
    honest = plan
    planted_planner(monkeypatch, lambda snapshot: replace(honest(snapshot), launches=()))
    assert "L1" in broken(simulate(script(job("a")), stop_at_breach=False))


def test_a_controller_that_holds_slices_for_a_gang_past_its_deadline_is_caught(monkeypatch):
    honest = plan

    def clinging(snapshot):
        made, held = honest(snapshot), Reason(Code.GANG_HELD, "held for gang late, which cannot start yet")
        return replace(made, stays=tuple(replace(one, reason=held) for one in made.keep), _busy=tuple)

    planted_planner(monkeypatch, clinging)
    assert "S7" in broken(simulate(script(job("a")), stop_at_breach=False))


def test_a_workload_that_tears_a_gang_apart_is_caught(monkeypatch):
    honest = SimulatedWorkload._begin

    def torn(self, item, slice_id):
        honest(self, replace(item, count=1) if item.count > 1 else item, slice_id)

    monkeypatch.setattr(SimulatedWorkload, "_begin", torn)
    assert "S7" in broken(simulate(script(job("a", 2, gang=Gang.SAME_NODE))))


def test_a_provider_that_keeps_both_of_two_twins_is_caught(monkeypatch):
    monkeypatch.setattr("windlass.sim.cloud.provider.SimulatedProvider._end_twins", lambda self: None)
    assert "S5" in broken(simulate(script(faults=(Fault("created-twice"),))))


def test_a_memory_that_is_another_after_a_restart_is_caught(monkeypatch):
    honest = recovered_with_checkpoint

    def vague(journal) -> tuple[ControllerState, int]:
        found, checkpoint = honest(journal)
        return replace(found, fleet=replace(found.fleet, provider_health={})), checkpoint

    monkeypatch.setattr(controller_module, "recovered_with_checkpoint", vague)
    assert "S12" in broken(simulate(script(faults=(Fault("killed", 0.05),))))


def test_what_has_no_bug_breaks_nothing():
    assert simulate(script()).breaches == ()


def test_a_fleet_that_keeps_back_what_it_has_changed_is_caught_when_it_is_read_again(monkeypatch):
    def registering_less(before, changed, gone):
        first, rest = dict([*changed.items()][:1]), dict([*changed.items()][1:])
        after = updated(before, rest, gone)
        after.update(first)
        return after

    killed = script(faults=(Fault("killed", rate=0.02),))
    assert broken(simulate(killed)) == set()
    monkeypatch.setattr(fleet_module, "updated", registering_less)
    assert "S12" in broken(simulate(killed, stop_at_breach=False))


# -- what the clouds themselves know -------------------------------------------------------------------------------


def test_a_controller_that_counts_a_clock_jump_as_absence_is_caught(monkeypatch):
    """A list that loses a page for a moment, and a clock that is set forward in that moment."""
    honest = fleet_module.by_clock

    def counting(fleet, jump, step=0.0, unobserved=0.0):
        moved_on = honest(fleet, jump, step, unobserved)
        kept = {
            name: replace(record, absent_since=fleet.slices[name].absent_since)
            for name, record in moved_on.slices.items()
        }
        return replace(moved_on, slices=kept)

    stormy = script(
        job("a", 8, 0, 7000),
        settings=settings(policy=Policy(evaluation_interval=Interval(0.2, 5), vanish_timeout=90)),
        faults=(Fault("page-lost", 0.2, seconds=40), Fault("clock-jumps", 10, seconds=600)),
        hours=2,
    )
    assert broken(simulate(stormy)) == set()
    monkeypatch.setattr(cycle, "by_clock", counting)
    run = simulate(stormy, stop_at_breach=False)
    assert any(breach.invariant == "S4" and "was given up as gone" in breach.text for breach in run.breaches)


def test_a_controller_that_takes_no_answer_for_a_refusal_is_caught(monkeypatch):
    honest = actuator._refusal
    lost = script(job("a", 4), job("b", 4, 600), faults=(Fault("launch-lost", 0.8),))
    assert broken(simulate(lost)) == set()
    monkeypatch.setattr(actuator, "_refusal", lambda name, error: replace(honest(name, error), certain=True))
    run = simulate(lost, stop_at_breach=False)
    assert any(breach.invariant == "S5" and "counts as refused" in breach.text for breach in run.breaches)


def test_a_controller_that_asks_again_under_another_id_is_caught(monkeypatch):
    honest = Actuator._launch

    async def forgetful(self, record, configured):
        again = self._tried.get(("launch", record.id, record.attempts), 0) or record.attempts > 1
        await honest(self, replace(record, id=f"{record.id}-again") if again else record, configured)

    faults = (Fault("launch-lost", 0.8), Fault("new-missing", seconds=120))
    lost = script(job("a", 4), job("b", 4, 600), faults=faults)
    assert broken(simulate(lost)) == set()
    monkeypatch.setattr(Actuator, "_launch", forgetful)
    run = simulate(lost, stop_at_breach=False)
    assert any(breach.invariant == "S5" and "no record asks for it" in breach.text for breach in run.breaches)


def test_a_lease_that_never_runs_out_is_caught(monkeypatch):
    honest = MemoryJournal.acquire

    def eternal(self, holder, ttl, now):
        held = self.lease()
        return honest(self, holder, ttl, now) if held is None or held.holder == holder else None

    rivals = script(faults=(Fault("two-leaders", 2.0),))
    assert broken(simulate(rivals)) == set()
    monkeypatch.setattr(MemoryJournal, "acquire", eternal)
    assert "S12" in broken(simulate(rivals))


@pytest.mark.parametrize("jumping", [False, True])
def test_a_bill_that_is_not_the_lives_of_the_machines_is_caught(monkeypatch, jumping):
    """A slice goes on costing while it is missing; the accounts and the records agree with each other."""
    honest = transitions._with_observation

    def paying(record, sight, group, policy, now, *, listed):
        seen = honest(record, sight, group, policy, now, listed=listed)
        if record.billed_since is not None and seen.billed_since is None and record.state is not State.TERMINATED:
            return replace(seen, billed_since=record.billed_since, bill_from=None)
        return seen

    slow = settings(policy=replace(QUICK, vanish_timeout=500, unhealthy_timeout=900))
    faults = (Fault("clock-jumps", 2.0, seconds=600),) if jumping else ()
    world = script(settings=slow, faults=faults)
    assert broken(simulate(world)) == set()
    monkeypatch.setattr(transitions, "_with_observation", paying)
    run = simulate(world, stop_at_breach=False)
    assert any(breach.invariant == "S14" and "its machine lived" in breach.text for breach in run.breaches)


def test_a_bill_with_the_steps_of_the_clock_in_it_is_caught_although_the_controller_records_none(monkeypatch):
    honest = fleet_module.by_clock
    jumpy = script(faults=(Fault("clock-jumps", 4.0, seconds=600),))
    assert broken(simulate(jumpy)) == set()
    monkeypatch.setattr(cycle, "by_clock", lambda fleet, jump, step, unobserved: honest(fleet, jump, 0.0, unobserved))
    assert "S14" in broken(simulate(jumpy, stop_at_breach=False))


@pytest.mark.parametrize("told", ["the launch of", "a write to the journal"])
def test_a_controller_that_ignores_the_end_of_its_own_lease_is_caught(monkeypatch, told):
    """It stands still for longer than its lease lasts, and goes on as if nothing had happened."""
    stormy = script(
        *(job(f"job-{number}", 4, number * 400, 60) for number in range(24)),
        settings=settings(replace(GPU, scale_down=ScaleDown(idle_timeout=30))),
        faults=(Fault("stopped", 3.0, seconds=1200),),
        hours=3,
    )
    assert broken(simulate(stormy)) == set()
    if told == "a write to the journal":
        monkeypatch.setattr(Leading, "is_due", property(lambda self: False))
        monkeypatch.setattr(Leading, "renews_in", property(lambda self: 60.0))
    monkeypatch.setattr(Leading, "leads", lambda self: True)
    assert any(breach.invariant == "S12" and told in breach.text for breach in simulate(stormy).breaches)


def test_a_controller_that_goes_on_after_a_provider_has_refused_it_for_a_newer_one_is_caught(monkeypatch):
    """Its calls are held up until another controller has taken over, so the provider refuses them."""
    rivals = script(faults=(Fault("overtaken", 4.0),), hours=2)
    honest = Simulation(rivals)
    assert broken(honest.run()) == set()
    assert any(cloud.refused_epochs for cloud in honest.clouds.values())
    monkeypatch.setattr(Actuator, "overtaken", property(lambda self: "", lambda self, error: None))
    assert any(
        breach.invariant == "S12" and "which cloud has refused" in breach.text for breach in simulate(rivals).breaches
    )


def test_a_bill_with_a_step_of_the_clock_between_two_leaders_in_it_is_caught(monkeypatch):
    """Each new leader has a clock that is right, after one whose clock was off."""
    faults = (Fault("clock-jumps", 3.0, seconds=600), Fault("killed", 0.02))
    killed = script(job("a", 4, 0, 7000), faults=faults, hours=2, seed=0)
    assert broken(simulate(killed)) == set()
    monkeypatch.setattr(cycle.Inputs, "step", property(lambda self: 0.0 if self.mark else self.jump))
    assert "S14" in broken(simulate(killed, stop_at_breach=False))


@pytest.mark.parametrize("times", [("started_at",), ("ended_at",)])
def test_a_bill_without_a_time_that_the_cloud_reports_is_caught(monkeypatch, times):
    world = script(faults=(Fault("new-missing", seconds=60), Fault("stopped", 20.0, seconds=600)))
    world = replace(world, reports_times=True, confirms_ends=True)
    assert broken(simulate(world)) == set()
    honest = transitions._Folding._sight

    def forgetful(self, record):
        seen = honest(self, record)
        if "ended_at" in times:
            return seen._replace(ended_at=None)
        return seen._replace(instance=None if seen.instance is None else replace(seen.instance, started_at=None))

    monkeypatch.setattr(transitions._Folding, "_sight", forgetful)
    assert "S14" in broken(simulate(world))


def test_a_bill_without_the_time_in_which_a_list_lost_a_machine_is_caught(monkeypatch):
    """Idle machines are missing for a minute at a time, and are given up and adopted again."""
    lossy = script(
        job("a", 4, 0, 60),
        settings=settings(
            replace(GPU, scale_down=ScaleDown(idle_timeout=3000)),
            policy=replace(QUICK, vanish_timeout=5, unhealthy_timeout=10),
        ),
        faults=(Fault("page-lost", 0.3, seconds=60),),
        hours=2,
    )
    assert broken(simulate(lossy)) == set()
    monkeypatch.setattr(transitions._Folding, "_bill_before", lambda *_: {"seen": True})
    assert "S14" in broken(simulate(lossy, stop_at_breach=False))
