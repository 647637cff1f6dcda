"""What a typed line means."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dugnad.chat.parse import (
    Caps,
    caps_words,
    nearest,
    read_line,
    request_and_words,
    stop_words,
    task_number,
    title_and_body,
)
from dugnad.errors import BadInput
from dugnad.types import Amount, Budget, Message, Spending


def request(number: int, task: int | None, sender: str = "alice") -> Message:
    return Message(
        id=number, key=str(number), sender=sender, recipient="human", kind="question", text="?", request=str(number),
        accepted=None, task=task, sent_at=0, shown_at=None,
    )  # fmt: skip


def test_a_slash_in_the_first_column_makes_a_command() -> None:
    assert read_line("/tell alice  hello there ") == ("tell", "alice  hello there")
    assert read_line("/add title\nbody\nmore") == ("add", "title\nbody\nmore")
    assert read_line("/tasks\n") == ("tasks", "")
    assert read_line("/") == ("", "")


def test_anything_else_is_said_to_the_lead() -> None:
    assert read_line("  hello\nyou ") == (None, "hello\nyou")
    assert read_line(" /etc/passwd is wrong") == (None, "/etc/passwd is wrong")
    assert read_line("") == (None, "")


@given(st.text())
def test_every_line_means_something(text: str) -> None:
    command, _ = read_line(text)
    assert (command is None) == (not text.startswith("/"))


def test_a_task_is_named_with_or_without_its_sign() -> None:
    assert task_number("12") == task_number("#12") == 12


@pytest.mark.parametrize("word", ["", "twelve", "-1", "1.5", "##1", "9" * 30, "١٢"])
def test_a_wrong_number_is_answered_with_one_sentence(word: str) -> None:
    with pytest.raises(BadInput, match=r"is not the number of a task; write 12 or #12\.$"):
        task_number(word)


@pytest.mark.parametrize(
    ("rest", "meant"),
    [
        ("MIT, please", ("m34", "MIT, please")),
        ("42", ("m34", "42")),
        ("12", ("m34", "12")),
        ("7 of them", ("m34", "7 of them")),
        ("m34 yes", ("m34", "yes")),
        ("12 yes", ("m34", "yes")),
        ("#12 yes", ("m34", "yes")),
        ("#7 yes", ("7", "yes")),
        ("m99 yes", ("m99", "yes")),
        ("m34", ("m34", "")),
    ],
)
def test_the_only_question_needs_no_number(rest: str, meant: tuple[str, str]) -> None:
    assert request_and_words(rest, [request(34, 12)]) == meant


def test_a_bare_number_names_a_plan_where_no_words_are_needed() -> None:
    assert request_and_words("7", [request(34, 12)], words_needed=False) == ("7", "")
    assert request_and_words("12", [request(34, 12)], words_needed=False) == ("m34", "")
    assert request_and_words("", [request(34, 12)], words_needed=False) == ("m34", "")


def test_of_two_questions_one_has_to_be_named() -> None:
    both = [request(34, 12), request(35, None, "bob")]
    with pytest.raises(BadInput, match=r"m34 \(alice, #12\), m35 \(bob\)$"):
        request_and_words("yes", both)
    assert request_and_words("12 yes", both) == ("m34", "yes")


def test_an_answer_to_nothing_says_so() -> None:
    with pytest.raises(BadInput, match="No such request waits for you"):
        request_and_words("yes", [])


def test_caps_are_set_added_to_and_lifted() -> None:
    assert caps_words("") == Caps(None, {}, False)
    assert caps_words("#3") == Caps(3, {}, False)
    assert caps_words("3 tasks=20 dollars=$2.50") == Caps(3, {"tasks": 20, "dollars": 2.5}, False)
    assert caps_words("minutes=+2") == Caps(None, {"seconds": 120}, True)
    assert caps_words("tokens=100_000 dollars=none") == Caps(None, {"tokens": 100_000, "dollars": None}, False)


@pytest.mark.parametrize(
    "rest",
    ["tasks", "3 4", "tasks=", "pears=3", "tasks=many", "tasks=1.5", "tasks=nan", "tokens=inf", "tasks=+1 tokens=2"],
)
def test_caps_that_make_no_sense_are_refused(rest: str) -> None:
    with pytest.raises(BadInput):
        caps_words(rest)


def test_a_cap_that_is_not_named_stays() -> None:
    now = Spending(
        root=1, tasks_max=5, tokens_max=None, microdollars_max=2_000_000, milliseconds_max=90_000, runs=0,
        spent=Amount(), reserved=Amount(), tasks=1, held=None,
    )  # fmt: skip
    changed = replace(now.caps, **caps_words("tasks=9 seconds=none").caps)
    assert changed == Budget(tasks=9, tokens=None, dollars=2.0, seconds=None)


def test_the_reason_of_a_stop_may_stand_beside_its_haste() -> None:
    assert stop_words("alice") == ("alice", "", False)
    assert stop_words("alice --now it is late") == ("alice", "it is late", True)
    with pytest.raises(BadInput, match="The teammate's name is missing"):
        stop_words("--now")


def test_the_first_line_is_the_title() -> None:
    assert title_and_body("Write it\nin full\nplease") == ("Write it", "in full\nplease")
    with pytest.raises(BadInput, match="needs a title"):
        title_and_body("")


def test_the_nearest_command_is_found() -> None:
    names = ("tasks", "team", "tell", "stop", "stop!")
    assert nearest("taks", names) == "tasks"
    assert nearest("tea", names) == "team"
    assert nearest("etc/passwd", names) is None
    assert nearest("", names) is None
