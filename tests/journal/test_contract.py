"""What every journal keeps, whatever its database."""

from __future__ import annotations

import math
import threading
from enum import StrEnum
from types import MappingProxyType
from typing import Any

import pytest

from windlass.journal import BadEntry, Entry, Fenced, Journal, JournalCorrupt, JournalError, Record, open_journal
from windlass.journal.sql.schema import PAGE

from .journals import entry, is_increasing_by_one, lead, seqs, tamper, write


class Colour(StrEnum):
    RED = "red"


def test_it_is_a_journal(journal):
    assert isinstance(journal, Journal)


class TestAppending:
    def test_entries_come_back_as_they_were_written_under_their_numbers(self, journal):
        epoch = lead(journal).epoch
        assert (
            journal.append([entry("a", "seen", 1.5, x=1), entry("b", "decided", 2.25, y=[None, True])], epoch=epoch)
            == 2
        )
        assert list(journal.read()) == [
            Record(1, epoch, "seen", "a", 1.5, {"x": 1}),
            Record(2, epoch, "decided", "b", 2.25, {"y": [None, True]}),
        ]

    def test_numbers_continue_without_a_gap_after_reopening_and_a_change_of_leader(self, address):
        for holder in ("a", "b", "c"):
            with open_journal(address) as journal:
                lease = lead(journal, holder)
                journal.append([entry(), entry()], epoch=lease.epoch)
                journal.release(lease)
        with open_journal(address) as journal:
            assert [(record.seq, record.epoch) for record in journal.read()] == [
                (1, 1), (2, 1), (3, 2), (4, 2), (5, 3), (6, 3),
            ]  # fmt: skip

    def test_any_json_survives(self, journal):
        data: dict[str, Any] = {
            "text": 'naïve \0 \ud800 😀 " \\ \u2028',
            "numbers": [0, -1, 2**80, 0.1, -0.0, 1e308, 5e-324],
            "nested": {"": {"a": [[], {}]}},
            "none": None,
        }
        journal.append([Entry("kind é", "subject 😀", 0.1, data)], epoch=0)
        [record] = journal.read()
        assert record.data == data
        assert math.copysign(1, record.data["numbers"][4]) == -1
        assert (record.kind, record.subject, record.at) == ("kind é", "subject 😀", 0.1)

    def test_mappings_tuples_and_enumerations_become_what_json_has(self, journal):
        journal.append([entry(m=MappingProxyType({"k": (1, 2)}), colour=Colour.RED)], epoch=0)
        [record] = journal.read()
        assert record.data == {"m": {"k": [1, 2]}, "colour": "red"}
        assert type(record.data["colour"]) is str

    @pytest.mark.parametrize(
        ("data", "output"),
        [
            (
                {"price": {"usd": math.nan}},
                "data of entry 1 (decided of slice-1).price.usd is nan: only finite numbers",
            ),
            ({"all": [1.0, -math.inf]}, ".all[1] is -inf: only finite numbers"),
            ({"when": {1: 2}}, ".when has the key 1: only text can be a key"),
            ({"what": {1, 2}}, ".what is a set: only text, numbers"),
            ({"raw": b"x"}, ".raw is a bytes"),
            ({"big": 10**5000}, "cannot be written as JSON"),
        ],
    )
    def test_what_json_cannot_hold_is_refused_with_its_place_and_nothing_is_written(self, journal, data, output):
        with pytest.raises(BadEntry) as caught:
            journal.append([entry(), Entry("decided", "slice-1", 0.0, data)], epoch=0)
        assert output in str(caught.value)
        assert journal.last_seq() == 0

    @pytest.mark.parametrize(
        "odd",
        [
            Entry("k", "s", math.nan, {}),
            Entry("k", "s", 10**400, {}),
            Entry("k", "nul\0", 0.0, {}),
            Entry("half \ud800", "s", 0.0, {}),
            Entry("k", 7, 0.0, {}),  # type: ignore[arg-type]
            Entry("k", "s", 0.0, [1]),  # type: ignore[arg-type]
            Entry("k", "s", "soon", {}),  # type: ignore[arg-type]
        ],
    )
    def test_an_odd_entry_is_refused(self, journal, odd):
        with pytest.raises(BadEntry):
            journal.append([odd], epoch=0)
        assert journal.last_seq() == 0

    def test_data_that_contains_itself_is_refused(self, journal):
        loop: dict = {}
        loop["self"] = loop
        with pytest.raises(BadEntry, match="contains itself"):
            journal.append([Entry("k", "s", 0.0, loop)], epoch=0)

    def test_no_entries_write_nothing_and_still_check_the_epoch(self, journal):
        last = write(journal, 3)
        lease = lead(journal, "controller")
        assert journal.append([], epoch=lease.epoch) == last
        with pytest.raises(Fenced):
            journal.append([], epoch=lease.epoch - 1)

    def test_threads_that_append_at_once_get_numbers_of_their_own(self, journal):
        given: list[int] = []

        def work() -> None:
            given.extend(journal.append([entry()], epoch=0) for _ in range(25))

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert is_increasing_by_one(sorted(given))
        assert is_increasing_by_one(seqs(journal))
        assert len(given) == 100

    def test_a_reader_next_to_the_writer_never_sees_a_gap_or_half_a_batch(self, address):
        with open_journal(address) as writer, open_journal(address) as reader:
            done = threading.Event()

            def work() -> None:
                for _ in range(60):
                    writer.append([entry()] * 5, epoch=0)
                done.set()

            thread = threading.Thread(target=work)
            thread.start()
            seen = 0
            while not done.is_set() or seen < 300:
                last = reader.last_seq()
                assert last % 5 == 0
                assert seqs(reader, after=seen, upto=last) == list(range(seen + 1, last + 1))
                seen = last
            thread.join()
            assert seen == 300


class TestWishesOfAnOperator:
    """Entries of one who does not lead: appended without an epoch."""

    def test_orders_are_stored_under_the_current_epoch_and_never_fenced(self, journal):
        assert journal.append([entry("g", "freeze")], epoch=None) == 1
        first, second = lead(journal), lead(journal)
        assert journal.append([entry("g", "resume"), entry("s-1", "drain")], epoch=None) == 3
        with pytest.raises(Fenced):
            journal.append([entry()], epoch=first.epoch)
        journal.release(second)
        assert journal.append([entry("g", "freeze")], epoch=None) == 4
        assert [(one.seq, one.epoch, one.kind) for one in journal.read()] == [
            (1, 0, "freeze"), (2, second.epoch, "resume"), (3, second.epoch, "drain"), (4, second.epoch, "freeze"),
        ]  # fmt: skip
        assert journal.health().ok

    def test_they_change_nothing_of_the_lease(self, journal):
        lease = lead(journal)
        journal.append([entry()], epoch=None)
        assert journal.lease() == lease
        assert journal.append([entry()], epoch=lease.epoch) == 2

    def test_no_wishes_write_nothing(self, journal):
        last = write(journal, 3)
        assert journal.append([], epoch=None) == last
        assert journal.last_seq() == last

    def test_all_of_a_call_are_written_or_none(self, journal):
        with pytest.raises(BadEntry):
            journal.append([entry(), entry(price=math.nan)], epoch=None)
        assert journal.last_seq() == 0

    def test_an_order_must_be_marked_as_one(self, journal):
        with pytest.raises(TypeError, match="epoch"):
            journal.append([entry()])
        assert journal.last_seq() == 0

    def test_next_to_a_leader_that_appends_nothing_is_lost_and_numbers_have_no_gap(self, address):
        with open_journal(address) as leader, open_journal(address) as operator:
            epoch = lead(leader).epoch
            given: dict[str, list[int]] = {"leader": [], "operator": []}

            def work(journal: Journal, name: str, size: int, under: int | None) -> None:
                for number in range(40):
                    batch = [entry(name, "batch", number=number) for _ in range(size)]
                    given[name].append(journal.append(batch, epoch=under))

            threads = [
                threading.Thread(target=work, args=(leader, "leader", 5, epoch)),
                threading.Thread(target=work, args=(operator, "operator", 2, None)),
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert is_increasing_by_one(seqs(leader))
            for name, size in (("leader", 5), ("operator", 2)):
                mine = list(leader.read(subject=name))
                assert [one.data["number"] for one in mine] == [number for number in range(40) for _ in range(size)]
                assert [one.seq for one in mine] == [
                    last - back for last in given[name] for back in reversed(range(size))
                ]
                assert {one.epoch for one in mine} == {epoch}

    def test_an_order_during_a_change_of_leader_is_stored_and_the_old_leader_stays_out(self, address):
        with open_journal(address) as controllers, open_journal(address) as operator:
            done = threading.Event()

            def wish() -> None:
                for number in range(60):
                    operator.append([entry("operator", number=number)], epoch=None)
                done.set()

            thread = threading.Thread(target=wish)
            thread.start()
            kept, old = 0, lead(controllers)
            while not done.is_set():
                new = lead(controllers)
                with pytest.raises(Fenced):
                    controllers.append([entry("controller")], epoch=old.epoch)
                controllers.append([entry("controller")], epoch=new.epoch)
                kept, old = kept + 1, new
            thread.join()
            records = list(controllers.read())
            assert is_increasing_by_one([one.seq for one in records])
            assert [one.data["number"] for one in records if one.subject == "operator"] == list(range(60))
            assert sum(one.subject == "controller" for one in records) == kept
            assert [one.epoch for one in records] == sorted(one.epoch for one in records)


class TestReading:
    @pytest.fixture
    def filled(self, journal):
        """Number i is of kind k(i mod 3), about s(i mod 5), at the time i."""
        rows = [entry(f"s{i % 5}", f"k{i % 3}", float(i), i=i) for i in range(1, 31)]
        journal.append(rows, epoch=0)
        return journal

    @pytest.mark.parametrize(
        ("arguments", "chosen"),
        [
            ({}, lambda i: True),
            ({"after": 10}, lambda i: i > 10),
            ({"after": -5}, lambda i: True),
            ({"after": 10, "upto": 12}, lambda i: 10 < i <= 12),
            ({"upto": 0}, lambda i: False),
            ({"upto": 10**30}, lambda i: True),
            ({"after": 10**30}, lambda i: False),
            ({"kinds": ["k1"]}, lambda i: i % 3 == 1),
            ({"kinds": {"k1", "k2", "none"}}, lambda i: i % 3 in (1, 2)),
            ({"kinds": []}, lambda i: False),
            ({"subject": "s2"}, lambda i: i % 5 == 2),
            ({"subject": ""}, lambda i: False),
            ({"subject": "s2", "kinds": ("k0", "k1")}, lambda i: i % 5 == 2 and i % 3 in (0, 1)),
            ({"since": 7.0}, lambda i: i >= 7),
            ({"until": 7.0}, lambda i: i < 7),
            ({"since": 7.0, "until": 9.0}, lambda i: 7 <= i < 9),
            ({"since": 70.0}, lambda i: False),
            ({"since": 9.0, "until": 7.0}, lambda i: False),
            ({"since": 7, "kinds": ["k1", "k2"], "after": 9, "upto": 20}, lambda i: 9 < i <= 20 and i % 3),
            ({"since": 7, "subject": "s1", "kinds": []}, lambda i: False),
        ],
    )
    @pytest.mark.parametrize("limit", [None, 0, 2, 1000])
    @pytest.mark.parametrize("newest_first", [False, True])
    def test_it_gives_what_was_asked_for_in_order(self, filled, arguments, chosen, limit, newest_first):
        expected = [i for i in range(1, 31) if chosen(i)]
        if newest_first:
            expected.reverse()
        assert seqs(filled, **arguments, limit=limit, newest_first=newest_first) == expected[:limit]

    @pytest.mark.parametrize("newest_first", [False, True])
    def test_long_journals_are_read_page_by_page(self, journal, newest_first):
        count = 2 * PAGE + 1
        journal.append([entry(kind=f"k{i % 2}", at=float(i)) for i in range(1, count + 1)], epoch=0)
        numbers = list(range(1, count + 1))
        if newest_first:
            numbers.reverse()
        for arguments in ({}, {"kinds": ["k0", "k1"]}, {"since": 0.0}, {"subject": "slice-1"}):
            assert seqs(journal, newest_first=newest_first, **arguments) == numbers
        assert seqs(journal, newest_first=newest_first, limit=PAGE + 1) == numbers[: PAGE + 1]

    def test_times_that_jumped_back_are_found(self, journal):
        journal.append([entry(at=at) for at in (10.0, 11.0, 3.0, 12.0, 4.0)], epoch=0)
        assert seqs(journal, since=3.0, until=5.0) == [3, 5]
        assert seqs(journal, since=11.0) == [2, 4]

    def test_what_is_written_after_the_call_is_not_in_it(self, journal):
        write(journal, 3)
        reading = journal.read()
        journal.append([entry()], epoch=1)
        assert [record.seq for record in reading] == [1, 2, 3]

    def test_a_reading_that_is_left_half_way_blocks_no_other(self, address):
        with open_journal(address) as one, open_journal(address) as other:
            one.append([entry()] * (PAGE + 10), epoch=0)
            reading = one.read()
            next(reading)
            assert other.append([entry()], epoch=0) == PAGE + 11
            assert one.append([entry()], epoch=0) == PAGE + 12
            assert len(list(reading)) == PAGE + 9

    @pytest.mark.parametrize(
        "arguments", [{"limit": -1}, {"kinds": "decided"}, {"since": math.nan}, {"until": math.nan}, {"subject": "a\0"}]
    )
    def test_a_question_that_makes_no_sense_is_refused_at_once(self, journal, arguments):
        with pytest.raises(ValueError):
            journal.read(**arguments)

    @pytest.mark.parametrize(
        "damage", ["data = '{}'", "data = 'x'", "subject = 'other'", "at = at + 1", "epoch = 7", "checksum = 1"]
    )
    def test_a_damaged_record_is_an_error_with_its_number_and_never_a_wrong_answer(self, journal, address, damage):
        write(journal, 3)
        tamper(address, f"UPDATE windlass_records SET {damage} WHERE seq = 2")
        with pytest.raises(JournalCorrupt, match=r"record 2 of the journal .* backup"):
            list(journal.read())
        assert seqs(journal, upto=1) == [1]
        assert seqs(journal, after=2) == [3]

    def test_the_last_number_is_zero_before_the_first_record(self, journal):
        assert journal.last_seq() == 0
        assert list(journal.read()) == []


class TestSavedStates:
    def test_there_is_none_at_first(self, journal):
        write(journal, 3)
        assert journal.latest_state() is None

    def test_the_newest_is_given_with_its_number_also_after_reopening(self, address):
        with open_journal(address) as journal:
            write(journal, 5)
            journal.save_state(2, {"slices": 1})
            journal.save_state(5, {"slices": {"a": [1, 2.5]}})
            journal.save_state(3, {"slices": 2})
        with open_journal(address) as journal:
            assert journal.latest_state() == (5, {"slices": {"a": [1, 2.5]}})

    def test_a_state_of_nothing_is_a_state(self, journal):
        journal.save_state(0, {})
        assert journal.latest_state() == (0, {})

    def test_a_second_state_for_the_same_number_replaces_the_first(self, journal):
        write(journal, 2)
        journal.save_state(2, {"a": 1})
        journal.save_state(2, {"a": 2})
        assert journal.latest_state() == (2, {"a": 2})

    @pytest.mark.parametrize("damage", ["state = '{}'", "state = ''", "digest = ''"])
    def test_a_damaged_one_is_passed_over_for_the_one_before_it(self, journal, address, damage):
        write(journal, 5)
        journal.save_state(3, {"a": 3})
        journal.save_state(5, {"a": 5})
        tamper(address, f"UPDATE windlass_states SET {damage} WHERE seq = 5")
        assert journal.latest_state() == (3, {"a": 3})
        tamper(address, f"UPDATE windlass_states SET {damage}")
        assert journal.latest_state() is None  # and every record is there to start from the first

    def test_a_state_of_the_future_is_refused(self, journal):
        write(journal, 2)
        with pytest.raises(ValueError, match="record 3 cannot be saved"):
            journal.save_state(3, {})

    def test_nan_is_refused(self, journal):
        with pytest.raises(BadEntry, match=r"state\.cost is nan"):
            journal.save_state(0, {"cost": math.nan})

    def test_an_old_leader_cannot_save_one(self, journal):
        lease = lead(journal)
        lead(journal)
        with pytest.raises(Fenced):
            journal.save_state(0, {"a": 1}, epoch=lease.epoch)
        assert journal.latest_state() is None


class TestCompaction:
    @pytest.fixture
    def old(self, journal):
        """Ten records at the times 1 to 10, about s0 and s1 in turn."""
        journal.append([entry(f"s{i % 2}", f"k{i % 3}", float(i)) for i in range(1, 11)], epoch=0)
        return journal

    def test_nothing_goes_without_two_states_to_start_from(self, old):
        assert old.compact(1e9) == 0
        old.save_state(8, {})
        assert old.compact(1e9) == 0
        assert len(seqs(old)) == 10

    def test_what_is_old_and_covered_by_the_older_of_two_states_goes(self, old):
        old.save_state(6, {"a": 6})
        old.save_state(8, {"a": 8})
        assert old.compact(1e9) == 5
        assert seqs(old) == [6, 7, 8, 9, 10]
        assert old.compact(1e9) == 0

    def test_what_is_needed_to_show_any_instant_from_then_on_stays(self, old):
        for seq in (2, 4, 6, 8):
            old.save_state(seq, {"a": seq})
        assert old.compact(2.0) == 0, "no state is from before that"
        assert old.compact(6.0) == 3
        assert seqs(old) == [4, 5, 6, 7, 8, 9, 10]
        assert old.latest_state(6.0) == old.oldest_state() == (4, {"a": 4})
        assert old.latest_state(7.5) == (6, {"a": 6})
        assert old.latest_state(1e9) == old.latest_state() == (8, {"a": 8})
        assert old.latest_state(4.0) is None, "what was then is not known any more"

    def test_a_state_that_was_made_within_the_time_to_keep_covers_nothing_that_is_older(self, old):
        old.save_state(8, {})
        old.save_state(10, {})
        assert old.compact(5.0) == 0
        assert old.oldest_state() is None

    def test_the_state_before_an_instant_is_passed_over_when_it_is_damaged(self, old, address):
        for seq in (2, 4, 6):
            old.save_state(seq, {"a": seq})
        tamper(address, "UPDATE windlass_states SET digest = '' WHERE seq = 4")
        assert old.latest_state(6.0) == (2, {"a": 2})
        assert old.latest_state(2.5) == (2, {"a": 2})
        assert old.latest_state(2.0) is None

    def test_an_instant_that_is_none_is_refused(self, old):
        with pytest.raises(ValueError, match="before"):
            old.latest_state(math.nan)

    def test_what_is_protected_stays(self, old):
        old.save_state(9, {})
        old.save_state(10, {})
        assert old.compact(1e9, keep_kinds=["k0"], keep_subjects=["s1"]) == 3
        assert seqs(old) == [1, 3, 5, 6, 7, 9, 10]
        assert old.compact(1e9, keep_subjects=lambda subject: subject.endswith("1")) == 1
        assert seqs(old) == [1, 3, 5, 7, 9, 10]

    def test_a_restart_works_from_either_of_the_two_newest_states(self, old, address):
        for seq in (2, 4, 6, 8):
            old.save_state(seq, {"a": seq})
        old.compact(1e9)
        assert old.latest_state() == (8, {"a": 8})
        tamper(address, "UPDATE windlass_states SET digest = '' WHERE seq = 8")
        seq, state = old.latest_state()
        assert (seq, state) == (6, {"a": 6})
        assert is_increasing_by_one(seqs(old, after=seq), first=7)

    def test_the_history_begins_at_the_oldest_checkpoint_once_a_record_is_missing(self, old, address):
        for seq in (2, 4, 6, 8):
            old.save_state(seq, {"a": seq})
        assert old.oldest_state() is None, "every record is there"
        old.compact(0.5)
        assert old.oldest_state() is None, "still: none was old enough"
        old.compact(1e9)
        assert old.oldest_state() == (6, {"a": 6})
        tamper(address, "UPDATE windlass_states SET digest = '' WHERE seq = 6")
        assert old.oldest_state() == (8, {"a": 8})
        tamper(address, "UPDATE windlass_states SET digest = ''")
        with pytest.raises(JournalCorrupt, match="no saved state"):
            old.oldest_state()

    def test_a_damaged_state_covers_nothing(self, old, address):
        for seq in (3, 5, 8):
            old.save_state(seq, {"a": seq})
        tamper(address, "UPDATE windlass_states SET digest = '' WHERE seq = 8")
        assert old.compact(1e9) == 2
        assert old.latest_state() == (5, {"a": 5})

    def test_without_a_checkpoint_to_start_from_it_reports_so_instead_of_starting_empty(self, old, address):
        old.save_state(6, {})
        old.save_state(8, {})
        old.compact(1e9)
        tamper(address, "UPDATE windlass_states SET digest = ''")
        with pytest.raises(JournalCorrupt, match="no saved state"):
            old.latest_state()
        assert not old.health().ok

    def test_a_state_from_before_it_is_refused(self, old):
        old.save_state(6, {})
        old.save_state(8, {})
        old.compact(1e9)
        with pytest.raises(ValueError, match="record 5 cannot be saved"):
            old.save_state(5, {})

    def test_numbers_continue_when_every_record_is_deleted(self, old, address):
        old.append([entry()], epoch=0)
        old.save_state(10, {})
        old.save_state(11, {})
        old.compact(1e9)
        tamper(address, "DELETE FROM windlass_records")
        with open_journal(address) as again:
            assert again.append([entry()], epoch=0) == 12

    def test_it_goes_through_more_than_one_page(self, journal):
        journal.append([entry(f"s{i % 2}", at=1.0) for i in range(3 * PAGE)], epoch=0)
        journal.save_state(3 * PAGE - 1, {})
        journal.save_state(3 * PAGE, {})
        assert journal.compact(2.0, keep_subjects={"s1"}) == 3 * PAGE / 2 - 1
        assert journal.health().ok

    def test_an_old_leader_cannot_do_it(self, old):
        old.save_state(6, {})
        old.save_state(8, {})
        lease = lead(old)
        lead(old)
        with pytest.raises(Fenced):
            old.compact(1e9, epoch=lease.epoch)
        assert len(seqs(old)) == 10

    @pytest.mark.parametrize("arguments", [{"before": math.nan}, {"before": 1.0, "keep_kinds": "decided"}])
    def test_what_makes_no_sense_is_refused(self, old, arguments):
        with pytest.raises(ValueError):
            old.compact(**arguments)


class TestHealth:
    def test_it_reports_what_there_is(self, journal):
        journal.append([entry(at=at) for at in (5.0, 6.0, 7.0)], epoch=0)
        journal.save_state(2, {})
        lead(journal, "me")
        health = journal.health()
        assert health.ok
        assert health.size > 0
        assert (health.records, health.last_seq, health.oldest_seq, health.oldest_at) == (3, 3, 1, 5.0)
        assert (health.epoch, health.holder, health.states, health.schema_version) == (1, "me", 1, 2)

    def test_an_empty_one_is_well(self, journal):
        health = journal.health()
        assert health.ok
        assert (health.records, health.oldest_seq, health.oldest_at, health.holder) == (0, None, None, None)

    @pytest.mark.parametrize(
        ("damage", "output"),
        [
            ("UPDATE windlass_records SET data = '{}' WHERE seq = 2", "record 2"),
            ("DELETE FROM windlass_records WHERE seq = 2", "missing before 3"),
            ("DELETE FROM windlass_records WHERE seq = 4", "missing before 5"),
            ("UPDATE windlass_states SET digest = ''", "1 of 1 saved states"),
        ],
    )
    def test_it_finds_what_is_wrong(self, journal, address, damage, output):
        write(journal, 4)
        journal.save_state(4, {})
        tamper(address, damage)
        health = journal.health()
        assert not health.ok
        assert output in " ".join(health.problems)

    def test_compacted_records_are_not_missing(self, journal):
        write(journal, 6)
        journal.save_state(3, {})
        journal.save_state(5, {})
        journal.compact(1e9, keep_subjects=[])
        health = journal.health()
        assert health.ok
        assert health.oldest_seq == 3


def test_a_closed_journal_says_so(address):
    journal = open_journal(address)
    journal.close()
    journal.close()
    with pytest.raises(JournalError, match="closed"):
        journal.last_seq()


def test_a_missing_journal_is_not_created_for_reading(address):
    with pytest.raises(JournalError, match="there is no journal at"):
        open_journal(address, create=False)
    open_journal(address).close()
    open_journal(address, create=False).close()
