"""Controllers as real processes under SIGKILL and SIGSTOP: every task runs once, nothing is left, the bill is right.

    python -m tests.control.process_proof --events 200 --journal sqlite

Two controllers run on one journal, one leads and one stands by. At random moments one of the two is killed and started
again, or stopped for longer than its lease lasts, or one is killed while the other is stopped. Meanwhile jobs arrive,
and machines are bought and released. The lifetime of each machine is measured independently of the controllers, from
the provider's directory.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.control.clusters import CONFIG, RealCluster
from tests.journal.servers import PostgresServer, server_binaries
from tests.providers.local_processes import marked
from windlass.control.record.state_reader import recovered

PRICE = 3600.0
"""Dollars an hour: a dollar a second, so that the bill is a number of seconds."""
LEASE = 1.2
LONG_LIVES = CONFIG.replace("price: 0.5", f"price: {PRICE:g}").replace("idle_timeout: 1s", "idle_timeout: 20s")


@dataclass(frozen=True, slots=True)
class Proof:
    """The result of a run."""

    journal: str
    kills: int
    stops: int
    seconds: float
    tasks: int
    ran: int
    """Tasks that ran, each time counted."""
    lost: int
    doubled: int
    machines: int
    machine_seconds: float
    billed_seconds: float
    left_over: int
    """Processes and machines that are still there at the end."""
    leaders: int

    @property
    def bill_error(self) -> float:
        return abs(self.billed_seconds - self.machine_seconds) / max(self.machine_seconds, 1e-9)


class Lifetimes:
    """Watches the provider's directory: when each machine appears, and when it is gone."""

    def __init__(self, machines: Path) -> None:
        self._machines = machines
        self._stop = threading.Event()
        self.seen: dict[str, list[float]] = {}
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self._stop.wait(0.02):
            try:
                here = [path.name for path in self._machines.iterdir() if not path.name.startswith(".")]
            except FileNotFoundError:
                continue
            now = time.time()
            for name in here:
                self.seen.setdefault(name, [now, now])[1] = now

    def total(self) -> float:
        self._stop.set()
        self._thread.join()
        return sum(last - first for first, last in self.seen.values())


class Chaos:
    """Kills and stops two controllers at random."""

    def __init__(self, cluster: RealCluster, seed: int) -> None:
        self.cluster, self.dice = cluster, random.Random(seed)
        self.running = {name: cluster.start(name) for name in ("one", "two")}
        self.kills = self.stops = 0
        self._burst_at = 0.0

    def event(self) -> None:
        """Kill a controller, stop one, or both. Jobs are submitted before: a stopped one may hold the queue's lock."""
        if time.monotonic() >= self._burst_at:
            self._burst_at = time.monotonic() + 45
            self.cluster.submit(6)
        name, other = self.dice.sample(sorted(self.running), 2)
        kind = self.dice.choice(("kill", "stop", "both", "both"))
        if kind == "kill":
            self._kill(name)
        else:
            self.running[name].send_signal(signal.SIGSTOP)
            over = time.monotonic() + LEASE + 0.5
            if kind == "both":
                time.sleep(self.dice.uniform(0.0, LEASE))
                self._kill(other)
            time.sleep(max(0.0, over - time.monotonic()))
            self.running[name].send_signal(signal.SIGCONT)
            self.stops += 1
        time.sleep(self.dice.uniform(0.05, 0.6))

    def _kill(self, name: str) -> None:
        self.running[name].kill()
        self.running[name].wait()
        self.running[name] = self.cluster.start(name)
        self.kills += 1

    def calm(self) -> None:
        """One controller brings everything to its end."""
        cluster = self.cluster
        self.running["two"].send_signal(signal.SIGTERM)
        self.running["two"].wait()
        cluster.eventually(lambda: len(set(cluster.ran())) >= cluster.submitted, within=300)
        cluster.eventually(lambda: not cluster.slices_left(), within=300)
        self.running["one"].send_signal(signal.SIGTERM)
        self.running["one"].wait()


def prove(directory: Path, events: int, *, location: str = "", seed: int = 1, until: float = float("inf")) -> Proof:
    """Run ``events`` kills and stops, or as many as fit before the instant ``until``. ``location``: of the journal."""
    config = LONG_LIVES.replace("location: journal.db", f"location: {json.dumps(location)}") if location else LONG_LIVES
    cluster = RealCluster(directory, lease=f"{LEASE:g}s", config=config, location=location)
    begun = time.monotonic()
    try:
        chaos, lifetimes = Chaos(cluster, seed), Lifetimes(cluster.machines)
        cluster.eventually(lambda: "leading as" in cluster.log("one") + cluster.log("two"), within=120)
        while chaos.kills + chaos.stops < events and time.time() < until:
            chaos.event()
        chaos.calm()
        ran = cluster.ran()
        state = recovered(cluster.journal)
        return Proof(
            journal="postgresql" if location else "sqlite",
            kills=chaos.kills,
            stops=chaos.stops,
            seconds=round(time.monotonic() - begun, 1),
            tasks=cluster.submitted,
            ran=len(ran),
            lost=cluster.submitted - len(set(ran)),
            doubled=len(ran) - len(set(ran)),
            machines=len(lifetimes.seen),
            machine_seconds=round(lifetimes.total(), 1),
            billed_seconds=round(sum(account.dollars() for account in state.account.values()), 1),
            left_over=len(cluster.machines_left()) + len(marked(cluster.machines)),
            leaders=cluster.journal.health().epoch,
        )
    finally:
        cluster.close()


@contextmanager
def journal_at(kind: str) -> Iterator[str]:
    """The location of a journal of a kind; empty for a file in the cluster's own directory."""
    if kind == "sqlite":
        yield ""
        return
    binaries = server_binaries()
    if binaries is None:
        raise SystemExit("no PostgreSQL server is installed: apt-get install postgresql")
    server = PostgresServer(binaries)
    try:
        yield server.url()
    finally:
        server.remove()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--events", type=int, default=200)
    parser.add_argument("--journal", choices=("sqlite", "postgres"), default="sqlite")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=float("inf"), help="stop the events after so long")
    asked = parser.parse_args()
    with journal_at(asked.journal) as location, tempfile.TemporaryDirectory(prefix="windlass-proof-") as directory:
        until = time.time() + asked.minutes * 60
        proof = prove(Path(directory), asked.events, location=location, seed=asked.seed, until=until)
    print(json.dumps({**asdict(proof), "bill_error": round(proof.bill_error, 4)}, indent=2))
    return 0 if not (proof.lost or proof.doubled or proof.left_over) and proof.bill_error <= 0.01 else 1


if __name__ == "__main__":
    sys.exit(main())
