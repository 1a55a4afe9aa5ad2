"""Amounts and money as whole numbers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.core.model.quantities import (
    LARGEST,
    NANO,
    BadQuantity,
    exact_quantity,
    format_money,
    format_quantity,
    parse_money,
    parse_quantity,
)


@pytest.mark.parametrize(
    ("text", "resource", "amount"),
    [
        (4, "cpu", 4000),
        ("500m", "cpu", 500),
        (0.1, "cpu", 100),
        ("2k", "slot", 2_000_000),
        ("1Gi", "memory", 2**30),
        ("1G", "memory", 10**9),
        (1.5, "memory", 2),
        ("0.333333", "gpu", 333),
        ("1e3", "cpu", 1_000_000),
        (1e-9, "cpu", 1),
        (0, "cpu", 0),
    ],
)
def test_an_amount_is_read_as_a_whole_number(text: object, resource: str, amount: int) -> None:
    assert parse_quantity(text, resource) == amount


@pytest.mark.parametrize(
    "text",
    [-1, "-1", "", "four", "4 cores", "Gi", "1.2.3", True, None, [1], float("nan"), float("inf"), "9" * 40, "1e99"],
)
def test_what_is_no_amount_is_refused(text: object) -> None:
    with pytest.raises(BadQuantity):
        parse_quantity(text, "cpu")


@pytest.mark.parametrize(
    ("amount", "resource", "text"),
    [
        (4000, "cpu", "4"),
        (500, "gpu", "0.5"),
        (128 * 2**30, "memory", "128Gi"),
        (10**9, "memory", "1G"),
        (0, "disk", "0"),
    ],
)
def test_an_amount_is_shown_as_people_write_it(amount: int, resource: str, text: str) -> None:
    assert format_quantity(amount, resource) == text


@given(st.integers(0, LARGEST), st.sampled_from(("cpu", "memory")))
def test_a_suggested_amount_reads_back_to_the_same_number(amount: int, resource: str) -> None:
    assert parse_quantity(exact_quantity(amount, resource), resource) == amount


def test_a_tenth_of_a_dollar_three_times_is_three_tenths() -> None:
    assert 3 * parse_money(0.1) == parse_money("0.3") == 3 * NANO // 10
    assert parse_money("$12.50") == 12_500_000_000


@pytest.mark.parametrize("money", [-1, "free", float("nan"), float("inf"), True, None, 1e12])
def test_what_is_no_sum_of_money_is_refused(money: object) -> None:
    with pytest.raises(BadQuantity):
        parse_money(money)


def test_small_prices_keep_their_digits() -> None:
    assert format_money(parse_money(12)) == "$12.00"
    assert format_money(parse_money(0.0123)) == "$0.0123"
