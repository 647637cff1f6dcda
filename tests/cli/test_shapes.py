"""The JSON that scripts rely on: each figure under its own name, in its own unit."""

from __future__ import annotations

from dugnad.types import Amount, Spending
from dugnad.view.json import amount_shape, spending_shape


def test_money_is_in_dollars_and_time_in_seconds() -> None:
    amount = Amount(tokens=1_234, microdollars=2_500_000, milliseconds=90_500)
    assert amount_shape(amount) == {"tokens": 1_234, "dollars": 2.5, "seconds": 90.5}


def test_an_account_shows_its_caps_what_was_spent_and_what_is_reserved() -> None:
    account = Spending(
        root=7, tasks_max=20, tokens_max=50_000, microdollars_max=3_000_000, milliseconds_max=600_000, runs=4, tasks=9,
        spent=Amount(tokens=11, microdollars=1_000_000, milliseconds=2_000),
        reserved=Amount(tokens=22, microdollars=500_000, milliseconds=3_000), held="tokens",
    )  # fmt: skip
    assert spending_shape(account) == {
        "root": 7, "tasks_max": 20, "tokens_max": 50_000, "dollars_max": 3.0, "seconds_max": 600.0, "runs": 4,
        "spent": {"tokens": 11, "dollars": 1.0, "seconds": 2.0},
        "reserved": {"tokens": 22, "dollars": 0.5, "seconds": 3.0}, "tasks": 9, "held": "tokens",
    }  # fmt: skip


def test_no_cap_is_none_and_not_nothing() -> None:
    account = Spending(
        root=7, tasks_max=None, tokens_max=None, microdollars_max=None, milliseconds_max=None, runs=0, tasks=1,
        spent=Amount(), reserved=Amount(), held=None,
    )  # fmt: skip
    caps = ("tasks_max", "tokens_max", "dollars_max", "seconds_max")
    assert [spending_shape(account)[cap] for cap in caps] == [None] * 4
    free = Spending(
        root=7, tasks_max=0, tokens_max=0, microdollars_max=0, milliseconds_max=0, runs=0, tasks=1, spent=Amount(),
        reserved=Amount(), held=None,
    )  # fmt: skip
    assert [spending_shape(free)[cap] for cap in caps] == [0] * 4
