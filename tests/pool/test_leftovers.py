"""What a killed program left on the disk is removed by the next pool."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from windlass.pool.transport.temp_dirs import OWNER, own_directory, sweep


def test_the_directory_of_a_program_that_is_gone_is_removed_and_no_other(tmp_path):
    program = (
        "import sys, pathlib\n"
        "from windlass.pool.transport.temp_dirs import own_directory\n"
        "print(own_directory(pathlib.Path(sys.argv[1])))\n"
    )
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, check=True)
    dead = Path(done.stdout.strip())
    assert (dead / OWNER).exists()
    foreign = tmp_path / "windlass-pool-without-an-owner"
    foreign.mkdir()
    link = tmp_path / "windlass-pool-link"
    link.symlink_to(dead)
    mine = own_directory(tmp_path)
    assert not dead.exists()
    assert {path.name for path in tmp_path.iterdir()} == {mine.name, foreign.name, link.name}
    assert sweep(tmp_path) == []


def test_what_a_node_wrote_after_the_directory_was_removed_is_removed_too(tmp_path):
    remainder = tmp_path / "windlass-pool-remainder"
    (remainder / "nodes" / ".ended" / "2026-11-17").mkdir(parents=True)
    kept = tmp_path / "windlass-pool-of-somebody"
    (kept / "nodes" / "node-1").mkdir(parents=True)
    assert sweep(tmp_path) == [remainder]
    assert list(tmp_path.iterdir()) == [kept]
