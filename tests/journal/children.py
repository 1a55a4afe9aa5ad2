"""Parts that tests run in processes of their own, to be killed, starved or set against each other."""

from __future__ import annotations

import resource
import sys

from windlass.journal import Entry, Fenced, JournalFull, open_journal


def write_batches(address: str, name: str) -> None:
    """Append batches for ever; say the last number of each as soon as its append has returned."""
    journal = open_journal(address)
    lease = journal.acquire(name, 30.0, 0.0)
    while lease is None:  # the one before us was killed, and its lease does not expire by itself
        lease = journal.acquire(name, 30.0, 1e9)
    print("ready", flush=True)
    batch = 0
    while True:
        size = batch % 7 + 1
        entries = [Entry("batch", name, 0.0, {"batch": batch, "index": i, "size": size}) for i in range(size)]
        last = journal.append(entries, epoch=lease.epoch)
        print(last, flush=True)
        if batch % 5 == 4:
            journal.save_state(last, {"batches": batch + 1}, epoch=lease.epoch)
        batch += 1


def claim(address: str, name: str) -> None:
    """At a sign, acquire the lease; say its epoch, or 0."""
    with open_journal(address) as journal:
        print("ready", flush=True)
        sys.stdin.readline()
        lease = journal.acquire(name, 30.0, 1000.0)
        print(lease.epoch if lease else 0, flush=True)


def fight(address: str, name: str, rounds: str) -> None:
    """Take the lease whenever it is free or expired, write under it until fenced; say how often it was had."""
    had = 0
    with open_journal(address) as journal:
        print("ready", flush=True)
        sys.stdin.readline()
        for now in range(int(rounds)):
            lease = journal.acquire(name, 2.0, float(now))
            if lease is None:
                continue
            had += 1
            try:
                for _ in range(3):
                    journal.append([Entry("claim", name, float(now), {})], epoch=lease.epoch)
            except Fenced:
                pass
    print(had, flush=True)


def open_at_once(address: str) -> None:
    print("ready", flush=True)
    sys.stdin.readline()
    with open_journal(address) as journal:
        print(journal.last_seq(), flush=True)


def outgrow_limit(address: str) -> None:
    """Write until a limit on the size of files says no; lift the limit; write again."""
    with open_journal(address) as journal:
        _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, hard))
        acked = 0
        try:
            while True:
                acked = journal.append([Entry("big", "slice-1", 0.0, {"text": "x" * 5000})] * 3, epoch=0)
        except JournalFull:
            print(acked, flush=True)
        print(journal.last_seq(), flush=True)
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        print(journal.append([Entry("big", "slice-1", 0.0, {})], epoch=0), flush=True)


if __name__ == "__main__":
    PARTS = {part.__name__: part for part in (write_batches, claim, fight, open_at_once, outgrow_limit)}
    PARTS[sys.argv[1]](*sys.argv[2:])
