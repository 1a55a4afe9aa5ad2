"""Addresses, files and versions: what is opened, what is refused, and the messages for users."""

from __future__ import annotations

import os
import sqlite3
import stat
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path

import pytest

from windlass.journal import (
    Journal,
    JournalBusy,
    JournalCorrupt,
    JournalError,
    JournalUnavailable,
    JournalVersion,
    open_journal,
)
from windlass.journal import sqlite as sqlite_module
from windlass.journal.sqlite import SqliteJournal

from .journals import entry, held, mounted, remount, seqs, tamper, write


def versioned(address: str, *more: tuple[str, ...]) -> Journal:
    """Opens it as a later Windlass would that has more migrations."""
    if address.startswith("postgresql:"):
        from windlass.journal import postgres

        return postgres.PostgresJournal(address, migrations=(*postgres.MIGRATIONS, *more))
    return SqliteJournal(address, migrations=(*sqlite_module.MIGRATIONS, *more))


NOW = len(sqlite_module.MIGRATIONS)
"""The version of the tables that this Windlass writes; both databases have the same number."""
NOTES = (
    "CREATE TABLE windlass_notes (seq INTEGER)",
    "INSERT INTO windlass_notes SELECT last_seq FROM windlass_journal",
)


class TestVersions:
    def test_an_older_journal_is_migrated_with_all_that_is_in_it(self, address):
        with open_journal(address) as journal:
            write(journal, 3)
            journal.save_state(2, {"a": 1})
        for _ in range(2):
            with versioned(address, NOTES) as journal:
                assert journal.health().schema_version == NOW + 1
                assert seqs(journal) == [1, 2, 3]
                assert journal.latest_state() == (2, {"a": 1})
                assert held(journal).epoch == 1

    def test_a_newer_journal_is_refused_with_both_versions_and_a_remedy(self, address):
        versioned(address, NOTES, ()).close()
        with pytest.raises(JournalVersion, match=rf"has version {NOW + 2} .* knows version {NOW}: .* Install"):
            open_journal(address)

    def test_a_migration_that_fails_changes_nothing(self, address):
        with open_journal(address) as journal:
            write(journal, 3)
        with pytest.raises(JournalError):
            versioned(address, (*NOTES, "SELECT nonsense FROM nowhere"))
        with open_journal(address) as journal:
            assert seqs(journal) == [1, 2, 3]
        with versioned(address, NOTES) as journal:
            assert journal.health().schema_version == NOW + 1

    def test_a_controller_whose_journal_is_migrated_under_it_stops_writing(self, address):
        with open_journal(address) as journal:
            write(journal, 1)
            versioned(address, NOTES).close()
            with pytest.raises(JournalVersion):
                journal.append([entry()], epoch=1)
            assert journal.last_seq() == 1


class TestAddresses:
    def test_a_path_and_an_address_lead_to_the_same_file(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        with open_journal("some/where/journal.db") as journal:
            write(journal, 1)
        for address in (
            Path("some/where/journal.db"),
            "sqlite:///some/where/journal.db",
            f"sqlite:///{tmp_path}/some/where/journal.db",
        ):
            with open_journal(address) as journal:
                assert journal.last_seq() == 1

    def test_a_file_and_its_log_are_for_their_owner_alone(self, tmp_path):
        before = os.umask(0)
        try:
            with open_journal(tmp_path / "deep" / "journal.db") as journal:
                write(journal, 1)
                files = sorted((tmp_path / "deep").iterdir())
                assert [path.name for path in files] == ["journal.db", "journal.db-shm", "journal.db-wal"]
                assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}
                assert stat.S_IMODE((tmp_path / "deep").stat().st_mode) == 0o700
        finally:
            os.umask(before)

    def test_one_in_memory_is_gone_when_it_is_closed(self):
        with open_journal(":memory:") as journal:
            write(journal, 3)
            assert seqs(journal) == [1, 2, 3]
            assert journal.health().ok
        with open_journal("sqlite:///:memory:") as journal:
            assert journal.last_seq() == 0

    @pytest.mark.parametrize(
        "address", ["mysql://host/db", "sqlite://x.db", "sqlite:x.db", "", "sqlite:///x.db?mode=ro"]
    )
    def test_an_address_that_is_none_is_refused(self, address, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        with pytest.raises(JournalError):
            open_journal(address)
        assert list(tmp_path.iterdir()) == []

    def test_without_psycopg_the_remedy_is_reported(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "psycopg", None)
        monkeypatch.delitem(sys.modules, "windlass.journal.postgres", raising=False)
        with pytest.raises(JournalError, match=r"pip install '\.\[postgres\]'"):
            open_journal("postgresql://localhost/x")

    def test_importing_the_journal_does_not_import_psycopg(self):
        code = "import sys, windlass.journal; sys.exit('psycopg' in sys.modules)"
        assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0

    def test_what_is_not_durable_survives_the_end_of_its_program(self, tmp_path):
        file = tmp_path / "journal.db"
        program = (
            "import os, signal, sys\n"
            "from windlass.journal import Entry, open_journal\n"
            "journal = open_journal(sys.argv[1], durable=False)\n"
            "journal.append([Entry('note', 'a', 1.0, {})], epoch=None)\n"
            "os.kill(os.getpid(), signal.SIGKILL)\n"
        )
        subprocess.run([sys.executable, "-c", program, str(file)], check=False)
        with open_journal(file, create=False) as journal:
            assert [record.subject for record in journal.read()] == ["a"]


class TestFilesThatCannotBeUsed:
    def test_text_is_not_a_journal(self, tmp_path):
        path = tmp_path / "journal.db"
        path.write_text("dear diary\n" * 100)
        with pytest.raises(JournalCorrupt, match=r"not a journal.*backup"):
            open_journal(path)
        assert path.read_text() == "dear diary\n" * 100

    def test_a_database_of_another_program_is_left_alone(self, tmp_path):
        path = tmp_path / "other.db"
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("CREATE TABLE songs (title TEXT)")
        with pytest.raises(JournalError, match="has the table 'songs'"):
            open_journal(path)

    def test_a_directory_is_not_a_journal(self, tmp_path):
        with pytest.raises(JournalError, match="not a file"):
            open_journal(tmp_path)

    def test_a_file_in_place_of_the_directory_is_reported(self, tmp_path):
        (tmp_path / "file").write_text("")
        with pytest.raises(JournalError, match="cannot be made"):
            open_journal(tmp_path / "file" / "journal.db")

    def test_pages_that_were_overwritten_are_found(self, tmp_path):
        path = tmp_path / "journal.db"
        with open_journal(path) as journal:
            write(journal, 200)
        content = bytearray(path.read_bytes())
        for page in range(8, len(content) // 4096):
            content[page * 4096 : page * 4096 + 64] = b"\xff" * 64
        path.write_bytes(content)
        with open_journal(path) as journal:
            assert not journal.health().ok
            with pytest.raises(JournalCorrupt, match="backup"):
                list(journal.read())

    def test_a_disk_that_can_only_be_read_is_reported_at_the_start(self, tmp_path):
        with mounted(tmp_path / "disk", "2m") as disk:
            with open_journal(disk / "journal.db") as journal:
                write(journal, 1)
            remount(disk, "ro")
            with pytest.raises(JournalError, match="right to write"):
                open_journal(disk / "journal.db")
            with pytest.raises(JournalError, match="cannot be made: Read-only"):
                open_journal(disk / "other.db")

    def test_a_disk_that_becomes_read_only_is_reported_and_nothing_is_lost(self, tmp_path):
        with mounted(tmp_path / "disk", "2m") as disk:
            with open_journal(disk / "journal.db") as journal:
                write(journal, 1)
                # Descriptors that are open for writing forbid it, so the journal is opened anew between the two.
            remount(disk, "ro")
            with pytest.raises(JournalError, match="right to write"):
                open_journal(disk / "journal.db")
            remount(disk, "rw")
            with open_journal(disk / "journal.db") as journal:
                assert journal.append([entry()], epoch=1) == 2

    def test_a_file_that_was_moved_away_is_not_written_on(self, tmp_path):
        path = tmp_path / "journal.db"
        with open_journal(path) as journal:
            write(journal, 2)
            path.rename(tmp_path / "moved.db")
            with pytest.raises(JournalError, match="moved, deleted or replaced"):
                journal.append([entry()], epoch=1)
            (tmp_path / "moved.db").rename(path)
            assert journal.append([entry()], epoch=1) == 3

    def test_a_writer_that_does_not_end_is_reported(self, tmp_path):
        path = tmp_path / "journal.db"
        with SqliteJournal(path, patience=0.01) as journal, closing(sqlite3.connect(path)) as other:
            write(journal, 1)
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(JournalBusy, match="locked by another process"):
                journal.append([entry()], epoch=1)
            assert seqs(journal) == [1]
            other.rollback()
            assert journal.append([entry()], epoch=1) == 2

    def test_deleted_records_give_their_space_back(self, tmp_path):
        with open_journal(tmp_path / "journal.db") as journal:
            journal.append([entry(text="x" * 1000)] * 2000, epoch=0)
            journal.save_state(1999, {})
            journal.save_state(2000, {})
            tamper(str(tmp_path / "journal.db"), "PRAGMA wal_checkpoint(TRUNCATE)")
            before = journal.health().size
            journal.compact(1e9)
            tamper(str(tmp_path / "journal.db"), "PRAGMA wal_checkpoint(TRUNCATE)")
            assert journal.health().size < before / 10


class TestServersThatCannotBeUsed:
    @pytest.fixture(autouse=True)
    def _psycopg(self):
        pytest.importorskip("psycopg", reason="psycopg is not installed: pip install '.[postgres]'")

    def test_a_server_that_is_not_there_is_reported_without_the_password(self, tmp_path):
        with pytest.raises(JournalUnavailable, match="Check the server") as caught:
            open_journal(f"postgresql://me:secret%40x@/db?host={tmp_path}")
        assert "secret" not in str(caught.value)

    def test_an_address_that_cannot_be_read_is_reported_without_the_password(self):
        with pytest.raises(JournalError, match="cannot be read") as caught:
            open_journal("postgresql://me:secret@h:b:a:d/db?=x")
        assert "secret" not in str(caught.value)

    def test_a_writer_that_does_not_end_is_reported(self, postgres_address):
        import psycopg

        from windlass.journal.postgres import PostgresJournal

        address = postgres_address()
        with PostgresJournal(address, patience=0.05) as journal, psycopg.connect(address) as other:
            write(journal, 1)
            other.execute("SELECT * FROM windlass_journal FOR UPDATE")
            with pytest.raises(JournalBusy):
                journal.append([entry()], epoch=1)
            assert seqs(journal) == [1]
            other.rollback()
            assert journal.append([entry()], epoch=1) == 2

    def test_a_controller_that_waited_while_another_made_the_tables_uses_them(self, postgres_address):
        import psycopg

        from windlass.journal import postgres

        address = postgres_address()
        opened: list[Journal] = []
        with psycopg.connect(address, autocommit=True) as other:
            other.execute("SELECT pg_advisory_lock(%s)", (postgres.SETUP_LOCK,))
            thread = threading.Thread(target=lambda: opened.append(open_journal(address)))
            thread.start()
            waiting = "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
            while thread.is_alive() and not other.execute(waiting).fetchall():
                pass
            assert thread.is_alive()
            for statement in postgres.MIGRATIONS[0]:
                other.execute(statement.encode())
            other.execute("SELECT pg_advisory_unlock(%s)", (postgres.SETUP_LOCK,))
            thread.join()
        with opened[0] as journal:
            assert write(journal, 1) == 1

    def test_a_server_that_only_reads_is_reported(self, postgres_address):
        import psycopg

        address = postgres_address()
        with open_journal(address) as journal:
            write(journal, 1)
        with psycopg.connect(address, autocommit=True) as admin:
            admin.execute("CREATE ROLE reader LOGIN")
            schema = admin.execute("SELECT current_schema()").fetchone()
            assert schema
            admin.execute(f"GRANT USAGE ON SCHEMA {schema[0]} TO reader".encode())
            admin.execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA {schema[0]} TO reader".encode())
        with open_journal(address.replace("windlass@", "reader@"), create=False) as journal:
            assert seqs(journal) == [1]
            with pytest.raises(JournalError, match="does not let this user in"):
                journal.append([entry()], epoch=1)

    def test_a_server_that_forgets_on_power_cuts_is_unhealthy(self, postgres_server, postgres_address):
        import psycopg

        def set_fsync(value: str) -> None:
            with psycopg.connect(postgres_server.url(), autocommit=True) as admin:
                admin.execute(f"ALTER SYSTEM SET fsync = {value}".encode())
                admin.execute("SELECT pg_reload_conf()")

        set_fsync("off")
        try:
            for _ in range(1000):  # the server takes its new settings a moment later
                with open_journal(postgres_address()) as journal:
                    health = journal.health()
                if not health.ok:
                    break
            assert "fsync = off" in health.problems[0]
        finally:
            set_fsync("on")

    def test_a_server_that_does_not_wait_for_the_disk_is_made_to(self, postgres_address):
        import psycopg

        address = f"{postgres_address()}%20-csynchronous_commit%3Doff"
        with open_journal(address) as journal, psycopg.connect(address) as other:
            assert other.execute("SHOW synchronous_commit").fetchall() == [("off",)]
            with journal._transaction(write=False) as session:  # type: ignore[attr-defined]
                assert session.rows("SHOW synchronous_commit") == [("on",)]
