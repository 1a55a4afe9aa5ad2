"""``import windlass`` costs next to nothing, and everything it promises is there."""

from __future__ import annotations

import subprocess
import sys

import pytest

import windlass
from tests.measuring import cpu_seconds


def test_importing_windlass_loads_neither_numpy_nor_yaml_nor_the_command_line():
    program = "import sys, windlass; print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert not set(done.stdout.split()) & {"numpy", "yaml", "click", "rich", "asyncio", "dataclasses"}


@pytest.mark.alone
def test_importing_windlass_takes_well_under_a_fifth_of_a_second():
    assert cpu_seconds([sys.executable, "-c", "import windlass"]) < 0.1


@pytest.mark.parametrize("name", windlass.__all__)
def test_everything_that_is_exported_is_there(name):
    assert getattr(windlass, name) is not None
    assert name in dir(windlass)


def test_what_is_not_exported_is_an_ordinary_attribute_error():
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = windlass.nothing
