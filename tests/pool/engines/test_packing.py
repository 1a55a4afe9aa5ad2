"""What travels between the pool and a slot, run in this very process."""

import os
import pickle
import threading

import pytest

from windlass.pool.transport.data_store import DataStore
from windlass.pool.transport.runner import LONGEST_LINE, Runner
from windlass.pool.transport.serialization import (
    CannotSend,
    ResultUnreadable,
    Shared,
    TaskExit,
    length_of,
    pack_arguments,
    pack_batch,
    pack_function,
    pack_result,
    pack_shared,
    result_of,
    unpack_results,
    unpack_value,
)


class Ear:
    def __init__(self):
        self.lines, self.values = [], []

    def on_output(self, item, stream, line):
        self.lines.append((item, stream, line))

    def on_value(self, item, blob):
        self.values.append((item, unpack_value(blob)))


def ran(function, *items, environment=None, limit=1 << 20, runner=None):
    """The results of a batch, and what was heard meanwhile. ``items``: the arguments of each; none if not given."""
    ear, results = Ear(), []
    runner = runner or Runner()
    packed = function if isinstance(function, bytes) else pack_function(function)
    batch = pack_batch(packed, [pack_arguments(args) for args in items or [()]], limit=limit)

    def ended(_, output):
        results.append(pack_result(output))
        return True

    runner.execute(batch, ear, environment or {}, ended)
    return [result_of(output) for output in unpack_results(results)], ear


@pytest.fixture
def store(tmp_path):
    store = DataStore(tmp_path / "disk", memory=tmp_path)
    yield store
    store.close()


def shared(store, value, **about):
    name = store.put(pack_shared(value))
    return Shared(name, store.path(name), **about)


def test_an_argument_that_cannot_be_sent_is_named():
    with pytest.raises(CannotSend, match="argument 2"):
        pack_arguments((1, threading.Lock()))
    with pytest.raises(CannotSend, match="guard"):
        pack_arguments((1,), {"guard": threading.Lock()})


def test_a_function_that_cannot_be_sent_is_named_with_the_reason():
    lock = threading.Lock()

    def careful():
        return lock.locked()

    with pytest.raises(CannotSend, match=r"careful.*lock"):
        pack_function(careful)


def test_an_exception_that_refuses_to_be_pickled_keeps_its_type_and_its_words():
    class Stubborn(Exception):
        def __reduce__(self):
            raise TypeError("never")

    class Worse(Stubborn):
        def __init__(self, lock):
            super().__init__("worse", lock)

    def fail():
        raise Worse(threading.Lock())

    ((result,), _) = ran(fail)
    error = result.error()
    assert type(error).__name__ == "Worse"
    assert "worse" in str(error)
    assert "raise Worse" in str(error.__cause__)


def test_a_function_whose_module_is_missing_says_what_to_look_for():
    blob = pack_function(os.getpid).replace(b"posix", b"posiy")
    ((result,), _) = ran(blob)
    error = result.error()
    assert isinstance(error, ModuleNotFoundError)
    assert "could not be unpacked on the node" in "".join(error.__notes__)


def test_the_frames_of_the_runner_are_not_in_the_traceback():
    def fail():
        raise ValueError("mine")

    ((result,), _) = ran(fail)
    assert "runner.py" not in result.text
    assert "in fail" in result.text


def test_a_value_that_cannot_be_read_here_says_why():
    class Odd:
        def __reduce__(self):
            return int, ("not a number",)

    ((result,), _) = ran(lambda: Odd())
    with pytest.raises(ResultUnreadable, match="not a number"):
        result.value()


def test_the_environment_is_as_before_also_after_a_failure(monkeypatch):
    monkeypatch.setenv("KEPT", "old")
    monkeypatch.delenv("GONE", raising=False)

    def output(number):
        return os.environ["KEPT"], os.environ["GONE"], 1 // number

    results, _ = ran(output, (1,), (0,), environment={"KEPT": "new", "GONE": "here"})
    assert results[0].value() == ("new", "here", 1)
    assert (os.environ["KEPT"], "GONE" in os.environ) == ("old", False)


def test_what_an_item_gave_back_does_not_change_with_what_later_items_do(store):
    log = shared(store, [], keep=True)

    def note(log, word):
        log.append(word)
        return log

    results, _ = ran(note, *[(log, word) for word in "abc"])
    assert [result.value() for result in results] == [["a"], ["a", "b"], ["a", "b", "c"]]


def test_plain_and_other_results_of_a_batch_come_in_its_order():
    def give(number):
        return [number, str(number), {number}, 1 // (number - 3)][number]

    values = [result.error() or result.value() for result in ran(give, *[(number,) for number in range(4)])[0]]
    assert values[:3] == [0, "1", {2}]
    assert isinstance(values[3], ZeroDivisionError)


@pytest.mark.parametrize("value", ["x" * 30, "é" * 180, b"x" * 30, 10**70])
def test_a_limit_holds_for_the_smallest_results_too(value):
    ((result,), _) = ran(lambda: value, limit=20)
    assert result.kind == "too-large"


@pytest.mark.parametrize("value", ["x" * 10_000, 1 << 80_000, b"x" * 10_000], ids=["text", "number", "bytes"])
def test_long_arguments_count_by_their_length(value):
    assert length_of(pack_arguments((value,))) >= 10_000
    assert length_of(pack_arguments((), {"value": value})) >= 10_000


@pytest.mark.parametrize("letter", ["x", "é", "€", "𝄞"])
def test_arguments_are_never_longer_than_they_count(letter):
    for count in range(600):
        arguments = pack_arguments((letter * count,))
        assert len(arguments if isinstance(arguments, bytes) else pickle.dumps(arguments)) <= length_of(arguments)


def test_half_a_line_belongs_to_the_item_that_printed_it():
    def half(number):
        print(number, end="")

    _, ear = ran(half, *[(number,) for number in range(3)])
    assert ear.lines == [(0, "stdout", "0"), (1, "stdout", "1"), (2, "stdout", "2")]


def test_what_is_kept_is_one_object_and_else_each_item_has_its_own(store):
    runner = Runner()

    def count(numbers):
        numbers.append(1)
        return len(numbers)

    def counted(**about):
        counter = shared(store, [], **about)
        return [result.value() for result in ran(count, (counter,), (counter,), runner=runner)[0]]

    assert counted() == [1, 1]
    assert counted(keep=True) == [1, 2]
    assert counted(keep=True) == [3, 4]


class Picky(Exception):
    """Holds what cannot be pickled."""

    def __init__(self, reason):
        super().__init__(reason)
        self.reason, self.lock = reason, threading.Lock()


def test_an_exception_with_state_that_cannot_be_sent_keeps_its_type():
    def fail():
        raise Picky("no")

    ((result,), _) = ran(fail)
    error = result.error()
    assert isinstance(error, Picky)
    assert error.reason == "no"
    assert "lock" in str(error.lock)


class MissingFile(FileNotFoundError):
    """One with an ``__init__`` of its own, as clients of web services have them."""

    def __init__(self, path):
        super().__init__(2, "is missing", path)
        self.lock = threading.Lock()


def test_a_group_of_exceptions_keeps_its_members_although_one_cannot_be_pickled():
    def fail():
        raise ExceptionGroup("both", [ValueError(1), ExceptionGroup("deeper", [Picky("no")])])

    ((result,), _) = ran(fail)
    error = result.error()
    assert isinstance(error, ExceptionGroup)
    first, second = error.exceptions
    assert isinstance(first, ValueError)
    assert isinstance(second.exceptions[0], Picky)
    assert second.exceptions[0].reason == "no"


def test_an_exception_keeps_what_python_keeps_outside_of_its_arguments():
    def decode():
        b"\xff".decode()

    def compile_it():
        compile("x = = 1", "a file", "exec")

    def stop():
        raise StopIteration(4)

    def missing():
        raise MissingFile("a.txt")

    import distributed  # noqa: F401  # it changes how every pickle of a process treats exceptions

    decoded, compiled, stopped, gone = (ran(one)[0][0].error() for one in (decode, compile_it, stop, missing))
    assert "can't decode byte 0xff in position 0" in str(decoded)
    assert (compiled.lineno, compiled.filename) == (1, "a file")
    assert stopped.value == 4
    assert isinstance(gone, MissingFile)
    assert (gone.errno, gone.filename, str(gone)) == (2, "a.txt", "[Errno 2] is missing: 'a.txt'")


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_what_would_end_the_program_here_is_another_exception_for_the_caller(kind):
    def fail():
        raise kind("now")

    ((result,), _) = ran(fail)
    assert isinstance(result.error(), TaskExit)
    assert kind.__name__ in str(result.error())


def test_a_line_without_end_is_sent_in_pieces():
    _, ear = ran(lambda: print("x" * (2 * LONGEST_LINE + 5), end=""))
    assert [len(line) for _, _, line in ear.lines] == [LONGEST_LINE, LONGEST_LINE, 5]


def test_a_generator_that_gives_what_cannot_be_sent_is_closed_and_reported():
    closed = []

    def give():
        try:
            yield 1
            yield threading.Lock()
            yield 3
        finally:
            closed.append(True)
            print("closed")

    ((result,), ear) = ran(give)
    assert result.kind == "unsendable"
    assert "value number 2" in result.text
    assert ear.values == [(0, 1)]
    assert ear.lines == [(0, "stdout", "closed")]


def test_an_exception_in_a_generator_comes_after_its_values():
    def give():
        yield 1
        raise KeyError("two")

    ((result,), ear) = ran(give)
    assert isinstance(result.error(), KeyError)
    assert ear.values == [(0, 1)]
