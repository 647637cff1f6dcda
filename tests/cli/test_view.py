"""What people see: harmless text, and tables that fit."""

from __future__ import annotations

import io
import re

import pytest
from hypothesis import given
from hypothesis import strategies as some
from rich.cells import cell_len
from rich.console import Console, RenderableType

from dugnad.board.replay import EVENT_KINDS
from dugnad.text import one_line, plain
from dugnad.types import Amount, Event, Message, Note, Spending, Task, Teammate
from dugnad.view.events import _SENTENCES, QUIET, event_line
from dugnad.view.live import Doing, Snapshot, note_doing, picture
from dugnad.view.numbers import money, span
from dugnad.view.tables import budget_text, messages_table, notes_table, tasks_table, team_table

LONG = "a very long title that goes on and on " * 5


def drawn(what: RenderableType, width: int = 80) -> list[str]:
    console = Console(file=io.StringIO(), width=width, force_terminal=False)
    with console.capture() as caught:
        console.print(what)
    return [each.rstrip() for each in caught.get().splitlines()]


def task(**fields: object) -> Task:
    blank: dict[str, object] = dict.fromkeys(Task.__dataclass_fields__)
    usual = {"id": 1, "root": 1, "depth": 0, "title": "t", "body": "", "priority": 0, "state": "ready", "put_at": 0}
    usual |= {"open_needs": 0, "claims": 0, "tries": 0, "plan": False, "put_by": "human", "key": "k"}
    return Task(**{**blank, **usual, **fields})  # type: ignore[arg-type]


@given(some.text())
def test_nothing_a_terminal_obeys_is_left_in_plain_text(text: str) -> None:
    safe = plain(text)
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\u2028\u2029]", safe)
    safe.encode()
    assert plain(safe) == safe


@given(some.text(), some.integers(min_value=1, max_value=100))
def test_a_line_is_one_line_and_no_longer_than_asked(text: str, most: int) -> None:
    short = one_line(text, most)
    assert len(short) <= most
    assert "\n" not in short


@pytest.mark.parametrize(
    ("text", "safe"),
    [
        ("plain words", "plain words"),
        ("\x1b[31mred\x1b[0m", "␛[31mred␛[0m"),
        ("\x1b]8;;http://x\x07link", "␛]8;;http://x␇link"),
        ("back\x08space\x7f", "back␈space␡"),
        ("c1 \x9b31m", "c1 \ufffd31m"),
        ("\u202egnp.exe", "\ufffdgnp.exe"),
        ("one\r\ntwo\u2028three\vfour", "one\ntwo\nthree\nfour"),
        ("over\rwritten", "over␍written"),
        ("half \udcff", "half \ufffd"),
        ("æøå 漢字 👍🏽", "æøå 漢字 👍🏽"),
    ],
)
def test_control_characters_are_shown_as_marks(text: str, safe: str) -> None:
    assert plain(text) == safe


def test_a_task_is_one_line_that_fits_a_narrow_terminal_and_is_whole_in_a_wide_one() -> None:
    tasks = [
        task(id=12345, title=LONG, state="claimed", teammate="alice"),
        task(id=2, title="漢字" * 60, state="blocked", open_needs=2),
        task(id=3, title="[bold]not markup[/bold]", state="failed", reason="no disk"),
    ]
    table = tasks_table(tasks, now_ms=65_000)
    narrow = drawn(table)
    assert len(narrow) == 4
    assert narrow[1].startswith("12345  claimed  alice  1m    a very long")
    assert narrow[1].endswith("…")
    wide = drawn(table, 1_000)
    assert wide[1].endswith(LONG.strip())
    assert wide[2].endswith("(needs 2 more tasks)")
    assert wide[3].endswith("[bold]not markup[/bold]  (no disk)")


def test_a_team_fits_with_long_roles_and_titles() -> None:
    blank = {"prompt": "", "model": "", "host": None, "seat": 0, "spawned_at": 0, "plan": False}
    team = [
        Teammate(name="alice", roles=("coder",) * 9, lead=True, status="working", reason=None, **blank),  # type: ignore[arg-type]
        Teammate(name="bob", roles=(), lead=False, status="failed", reason="a bug\nin line 3", **blank),  # type: ignore[arg-type]
    ]
    said = drawn(team_table(team, [task(id=7, title=LONG, state="claimed", teammate="alice")]))
    assert len(said) == 3
    assert "#7 a very" in said[1]
    assert said[2].split() == ["bob", "any", "failed", "a", "bug", "in", "line", "3"]


def test_a_request_says_how_it_is_answered_and_only_while_it_waits() -> None:
    base = {"key": "k", "sender": "alice", "recipient": "human", "request": "r", "accepted": None, "task": 3}
    asked = [
        Message(id=1, kind="question", text="Which?", sent_at=0, shown_at=None, **base),  # type: ignore[arg-type]
        Message(id=2, kind="plan", text="So.", sent_at=0, shown_at=None, **base),  # type: ignore[arg-type]
    ]
    said = drawn(messages_table(asked))
    assert 'dugnad answer m1 "..."' in said
    assert 'dugnad approve m2    or    dugnad reject m2 --why "..."' in said
    assert not [each for each in drawn(messages_table(asked, waiting={2})) if "answer m1" in each]


def test_one_very_long_line_does_not_widen_the_others() -> None:
    note = Note(id=1, author="a", title="t", text="x" * 200_000 + "\n" * 20_000, task=None, root=None, at=0)
    assert sum(map(len, drawn(notes_table([note], most=10**9), 1_000_000))) < 300_000


def test_a_budget_says_what_is_used_reserved_and_how_held_work_goes_on() -> None:
    spending = Spending(
        root=1, tasks_max=20, tokens_max=None, microdollars_max=2_000_000, milliseconds_max=None, runs=12,
        spent=Amount(tokens=81_200, microdollars=410_000, milliseconds=95_000), reserved=Amount(tokens=500), tasks=14,
        held="dollars",
    )  # fmt: skip
    said = budget_text(spending, task(title="goal")).plain
    assert "12 of 20 tasks, $0.41 of $2.00, 81,200 tokens" in said
    assert "reserved for calls under way: 500 tokens" in said
    assert "dugnad budget 1 --add --dollars 1" in said


def test_every_kind_of_event_has_its_sentence() -> None:
    assert set(_SENTENCES) == EVENT_KINDS
    assert set(_SENTENCES) > QUIET
    for kind in [*_SENTENCES, "something_newer"]:
        said = event_line(Event(seq=1, at=0, kind=kind, task=7, root=1, actor="ali\x1bce", data={})).plain
        assert "#7" in said
        assert "\x1b" not in said
        assert "\n" not in said


@pytest.mark.parametrize(
    ("kind", "data", "said"),
    [
        ("put", {"title": "Build", "role": "coder"}, 'a added "Build" for a coder'),
        ("done", {"outcome": "approved", "result": "It\nworks."}, "a finished it as approved: It works."),
        ("waiting", {"waiting_for": "human", "reason": "Which?"}, "a waits for the human: Which?"),
        ("waiting", {"waiting_for": "tasks", "tasks": [3, 4]}, "a waits for #3, #4"),
        ("taken_back", {"teammate": "bob", "reason": "lost"}, "a took it back from bob: lost"),
        ("told", {"to": "bob", "message_kind": "text", "text": "Hi"}, 'a told bob: "Hi"'),
        (
            "told",
            {"to": "bob", "message_kind": "plan_reply", "accepted": False, "text": "No"},
            'a answered bob and refused: "No"',
        ),
        ("budget_set", {"caps": {"tasks_max": 5, "microdollars_max": 1_500_000}}, "a set the budget to 5 tasks, $1.50"),
        ("budget_reached", {"held": "tasks"}, "a held the goal: its cap on tasks is reached"),
        ("spawned", {"name": "bob", "roles": [], "lead": True}, "a spawned bob (any role, lead)"),
        ("turn", {"number": 2, "turn_kind": "reply", "tokens": 1}, "a recorded turn 2 (reply, 1 token)"),
    ],
)
def test_an_event_is_told_in_words(kind: str, data: dict[str, object], said: str) -> None:
    told = event_line(Event(seq=1, at=0, kind=kind, task=7, root=1, actor="a", data=data)).plain
    assert told.split("#7", 1)[1].strip() == said


def test_figures_are_as_people_read_them() -> None:
    assert [span(ms) for ms in (0, 59_999, 60_000, 7_200_000, 200_000_000)] == ["0s", "59s", "1m", "2h", "2d"]
    assert [money(micro) for micro in (0, 1_234, 410_000, 1_234_567_890)] == ["$0.00", "$0.0012", "$0.41", "$1,234.57"]


def test_what_a_teammate_elsewhere_is_at_is_told_from_the_log() -> None:
    doing: dict[str, Doing] = {}

    def happens(seq: int, kind: str, **data: object) -> None:
        note_doing(doing, Event(seq=seq, at=seq * 1_000, kind=kind, task=1, root=1, actor="alice", data=data))

    happens(1, "reserved")
    assert doing["alice"] == Doing(what="asks its model", since=1_000, turn=1), "also without having seen the claim"
    happens(2, "turn", turn_kind="reply")
    assert doing["alice"] == Doing(what="uses its tools", since=2_000, turn=2)
    happens(3, "turn", turn_kind="tool")
    happens(4, "reserved")
    assert doing["alice"] == Doing(what="asks its model", since=4_000, turn=2)
    happens(5, "done")
    assert doing == {}


@pytest.mark.parametrize("width", [40, 60, 80, 120, 200])
def test_what_a_command_says_stands_beside_its_teammate_as_far_as_it_fits(width: int) -> None:
    blank = dict.fromkeys(Teammate.__dataclass_fields__)
    alice = Teammate(**{**blank, "name": "alice", "roles": ("coder",), "status": "working", "lead": False})  # type: ignore[arg-type]
    held = task(id=7, state="claimed", teammate="alice", title="A title")
    said = "東京 " * 40 + "\x1b[2J 41 of 42 passed"
    doing = {"alice": Doing(what=f"bash: pytest -q {'x' * 80}\n{said}", since=0, turn=3)}
    seen = Snapshot(now_ms=5_000, title="t", tasks=[held], counts={}, team=[alice], accounts=[], doing=doing)
    lines = drawn(picture(seen, width=width, height=24), width)
    assert all(cell_len(each) <= width for each in lines)
    (row,) = [each for each in lines if each.startswith("alice")]
    assert "#7 turn 3, bash: py" in row if width > 60 else "#7 tu" in row
    assert "A title" not in row or width < 60
    if width >= 120:
        assert row.endswith("41 of 42 passed")
    quiet = Snapshot(
        now_ms=5_000, title="t", tasks=[held], counts={}, team=[alice], accounts=[],
        doing={"alice": Doing(what="grep", since=0, turn=3)},
    )  # fmt: skip
    assert any("#7 turn 3, grep 5s  A title" in each for each in drawn(picture(quiet, width=80, height=24)))
