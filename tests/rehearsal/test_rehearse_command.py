"""`dugnad rehearse`, as people use it: on a board that it must not touch, with a plan, and wrongly."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner
from rich.console import Console

from dugnad.board import Board
from dugnad.cli import main
from dugnad.cli.rehearsal_tables import picture
from dugnad.rehearsal.findings import find
from dugnad.rehearsal.gantt import Drawn, gantt
from dugnad.rehearsal.plan import Estimate
from dugnad.types import Amount, Budget, Done, Need, NewTurn, Waiting
from tests.cli.shell import Shell, claimed
from tests.rehearsal.stage_rehearsal import planned, task

PAGE = (Path(__file__).parent.parent.parent / "docs" / "rehearse.md").read_text()
(PLAN,) = re.findall(r"^```toml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
KEYS = ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GOOGLE_API_KEY", "DUGNAD_MODEL", "DUGNAD_BOARD")


@pytest.fixture
def shell(url: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Shell:
    monkeypatch.chdir(folder)
    monkeypatch.setenv("HOME", str(folder))
    for name in KEYS:
        monkeypatch.delenv(name, raising=False)
    return Shell(url)


@pytest.fixture
def offline(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder without a board."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("HOME", str(folder))
    for name in KEYS:
        monkeypatch.delenv(name, raising=False)
    return folder


def rehearse(*words: str) -> str:
    ran = CliRunner().invoke(main, ["rehearse", *words])
    assert ran.exit_code == 0, ran.stderr
    return ran.stdout


def wrong(*words: str) -> str:
    ran = CliRunner().invoke(main, ["rehearse", *words])
    assert ran.exit_code == 2, (ran.exit_code, ran.stdout, ran.stderr)
    assert ran.stderr.count("\n") == 1, ran.stderr
    return ran.stderr


async def some_work(board: Board) -> None:
    design = await board.put("Design", role="designer", budget=Budget(tasks=20))
    parts = [await board.put(f"Part {each}", role="coder", needs=[design.id]) for each in range(4)]
    review = await board.put("Review", needs=[part.id for part in parts])
    await board.put("Publish", needs=[Need(review.id, "approved")])


def test_an_open_board_is_rehearsed_and_left_as_it_was(shell: Shell, url: str, folder: Path) -> None:
    shell.on_board(some_work)

    async def state(board: Board) -> object:
        return await board.observed_state(), await board.last_event()

    def file() -> object:
        path = folder / "board.db"
        return (hashlib.sha256(path.read_bytes()).hexdigest(), path.stat().st_mtime_ns) if path.exists() else None

    before, on_disk = shell.on_board(state), file()
    found = shell.json("rehearse", "--agents", "1,2,4", "--seeds", "5")
    assert file() == on_disk
    assert shell.on_board(state) == before
    assert found["tasks"] == 7
    assert [team["agents"] for team in found["teams"]] == [1, 2, 4]
    assert found["enough"] == 4
    path = [step["task"] for step in found["teams"][2]["critical_path"]]
    assert path[0] == "#1 Design"
    assert path[-2:] == ["#6 Review", "#7 Publish"]
    assert all(team["finished"] == 1 for team in found["teams"])


def test_durations_and_costs_are_learned_from_the_board(shell: Shell) -> None:
    async def work(board: Board) -> None:
        await board.spawn("alice", roles=["coder"])
        for each in range(4):
            await board.put(f"Earlier {each}", role="coder")
            claim = await claimed(board, "alice")
            used = Amount(tokens=900, microdollars=40_000)
            await board.record(claim, NewTurn(number=1, kind="reply", body="{}", used=used))
            await board.settle(claim, Done("ok"))
        await board.put("Now", role="coder")

    shell.on_board(work)
    found = shell.json("rehearse", "--agents", "1", "--seeds", "20")
    assert "coder: " in found["basis"][0]
    assert "learned from 4 earlier attempts" in found["basis"][0]
    assert found["teams"][0]["dollars"]["p50"] > 0
    assert found["teams"][0]["seconds"]["p50"] < 60  # These took no time at all.


def test_an_empty_board_and_none_are_told_apart(shell: Shell, url: str) -> None:
    if url.startswith("sqlite"):
        assert "There is no board" in shell.fails(1, "rehearse")
    shell.says("add", "x")
    shell.says("cancel", "1")
    assert "Nothing is open on" in shell.fails(2, "rehearse")


def test_a_person_reads_a_table_and_a_program_one_line(shell: Shell) -> None:
    shell.on_board(some_work)
    said = shell.says("rehearse", "--seeds", "3")
    for part in (
        "a lost host adds",
        "More than 4 teammates would save less than",
        "critical path",
        "#1 Design",
        "assumed",
    ):
        assert part in said
    assert "\x1b" not in said


def test_no_figure_is_cut_in_a_narrow_terminal() -> None:
    shaky = Estimate(seconds=600, turns=6, tokens=600, dollars=11.5, failed=0.1)
    plan = planned(*(task(number, name=f"task {number}", estimate=shaky) for number in range(1, 30)))
    findings = find(plan, [3, 12], seeds=20)

    def printed(width: int) -> str:
        with (screen := Console(width=width, color_system=None)).capture() as caught:
            screen.print(picture(plan, findings, None))
        return caught.get()

    def figures(text: str) -> list[str]:
        return sorted(set(re.findall(r"[$]?[\d.]+[%dhms]?", text.partition("Beyond")[0])))

    wide, narrow = printed(500), printed(40)
    assert figures(narrow) == figures(wide)
    assert "\u2026" not in narrow
    assert all(len(each) <= 40 for each in narrow.split("\n"))
    assert (wide.count("agents  "), narrow.count("agents  ")) == (1, 4)  # Each table says whose figures these are.


def test_a_review_is_rehearsed_between_the_work_and_what_waits_for_it(shell: Shell) -> None:
    async def reviewed(board: Board) -> None:
        code = await board.put("Code", role="coder", review="reviewer")
        await board.put("Publish", needs=[code.id])

    shell.on_board(reviewed)
    found = shell.json("rehearse", "--agents", "2", "--seeds", "5")
    path = [step["task"] for step in found["teams"][0]["critical_path"]]
    assert path == ["#1 Code", "Review #1 Code", "#1 Code, after its review", "#2 Publish"]
    assert "1 of the tasks need a review before they are done" in found["warnings"][-1]
    assert "reviewer" in found["basis"][0]


def test_a_review_that_is_asked_for_already_is_not_made_up_again(shell: Shell) -> None:
    """The work is done and waits for its review, so all that is left of it is to end."""

    async def waits(board: Board) -> None:
        await board.spawn("alice", roles=["coder"])
        await board.put("Code", role="coder", review="reviewer")
        claim = await claimed(board, "alice")
        review = await board.follow_up(claim, "Review #1: Code", role="reviewer", kind="review", reviews=1)
        await board.settle(claim, Waiting(on="tasks", tasks=(review.id,)))

    shell.on_board(waits)
    found = shell.json("rehearse", "--agents", "1", "--seeds", "5")
    assert found["tasks"] == 2
    path = found["teams"][0]["critical_path"]
    assert [step["task"] for step in path] == ["#2 Review #1: Code", "#1 Code"]
    assert path[1]["seconds"] == 0.001


# Plans.


def test_the_plan_of_the_document_is_rehearsed(offline: Path) -> None:
    (offline / "plan.toml").write_text(PLAN)
    found = json.loads(rehearse("plan.toml", "--json"))
    assert (found["tasks"], found["warnings"]) == (11, [])
    assert [team["agents"] for team in found["teams"]] == [3, 6, 12]
    slow, planned, fast = (team["seconds"]["p50"] for team in found["teams"])
    assert slow > planned >= fast
    assert not (offline / ".dugnad").exists()


def test_a_plan_that_says_name_is_read_as_one_that_says_title(offline: Path) -> None:
    for word in ("title", "name"):
        (offline / "plan.toml").write_text(f"[[tasks]]\n{word} = 'a'\n[[tasks]]\n{word} = 'b'\nneeds = ['a']")
        path = json.loads(rehearse("plan.toml", "--json", "--agents", "1"))["teams"][0]["critical_path"]
        assert [step["task"] for step in path] == ["a", "b"]
    (offline / "plan.toml").write_text("[[tasks]]\nname = 'a'\ntitle = 'b'")
    assert "has name and title; keep one" in wrong("plan.toml")


@pytest.mark.parametrize(
    ("plan", "says"),
    [
        ("tasks", "is not TOML"),
        ("", "nothing to rehearse"),
        ("agnets = 3", "did you mean 'agents'?"),
        ("agents = 0\n[[tasks]]\ntitle = 'a'", "whole number from 1"),
        ("[agents]\ncoder = 20000\n[[tasks]]\ntitle = 'a'", "between 1 and 10,000 agents"),
        ("[[tasks]]\ntilte = 'a'", "did you mean 'title'?"),
        ("[[tasks]]\nrole = 'a'", "[tasks.1] has no title"),
        ("[[tasks]]\ntitle = 'code'\n[[tasks]]\ntitle = 'b'\nneeds = ['cdoe']", "did you mean 'code'?"),
        ("[[tasks]]\ntitle = 'a'\nneeds = ['b']\n[[tasks]]\ntitle = 'b'\nneeds = ['a']", "wait for one another"),
        ("[[tasks]]\ntitle = 'a'\n[[tasks]]\ntitle = 'a'", "two tasks are called 'a'"),
        ("[[tasks]]\ntitle = 'a'\ncount = 999999999", "more than 100,000 tasks"),
        ("[[tasks]]\ntitle = 'a'\nminutes = 1e300", "above 0 and up to 527040"),
        ("[[tasks]]\ntitle = 'a'\nminutes = 0", "above 0 and up to 527040"),
        ("[[tasks]]\ntitle = 'a'\nretries = 2", "from 0 to 1"),
        ("[[tasks]]\ntitle = 'a'\noutcomes = { x = 0.5 }", "must add up to 1"),
    ],
)
def test_what_is_wrong_in_a_plan_is_said_in_one_sentence(offline: Path, plan: str, says: str) -> None:
    (offline / "plan.toml").write_text(plan)
    assert says in wrong("plan.toml")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["nosuch.toml"], "cannot be read"),
        (["plan.toml", "--agents", "0"], "not a list of team sizes"),
        (["plan.toml", "--agents", "1,x"], "not a list of team sizes"),
        (["plan.toml", "--agents", "9" * 40], "not a list of team sizes"),
        (["plan.toml", "--agents", "00000000199999999"], "not a list of team sizes"),
        (["plan.toml", "--seeds", "0"], "not in the range"),
        (["plan.toml", "--turn-seconds", "nan"], "not in the range"),
        (["plan.toml", "--svg", "no/such/place.svg"], "there is no folder no/such; make it first"),
        (["plan.toml", "--model", "x"], "provider:model"),
    ],
)
def test_what_is_asked_wrongly_is_said_in_one_sentence(offline: Path, words: list[str], says: str) -> None:
    (offline / "plan.toml").write_text("[[tasks]]\ntitle = 'a'")
    assert says in wrong(*words)


def test_a_price_makes_dollars(offline: Path) -> None:
    (offline / "plan.toml").write_text("[[tasks]]\ntitle = 'a'")
    assert json.loads(rehearse("plan.toml", "--json"))["teams"][0]["dollars"] is None
    priced = json.loads(rehearse("plan.toml", "--json", "--model", "anthropic:claude-sonnet-4-5"))
    assert priced["teams"][0]["dollars"]["p50"] > 0


# The picture.


def test_the_picture_has_a_bar_an_attempt_and_marks_the_critical_path(offline: Path) -> None:
    (offline / "plan.toml").write_text(
        "agents = 2\n[[tasks]]\ntitle = '<script>alert(1)</script> & \"more\"'\n[[tasks]]\ntitle = 'b'\ncount = 3\n"
    )
    assert "is drawn in plan.svg" in rehearse("plan.toml", "--agents", "2", "--svg", "plan.svg")
    text = (offline / "plan.svg").read_text()
    assert "<script" not in text
    root = ElementTree.fromstring(text)
    bars = [each for each in root.iter("{http://www.w3.org/2000/svg}rect") if "bar" in each.get("class", "")]
    assert len(bars) == 4
    assert any("critical" in each.get("class", "") for each in bars)
    assert any("<script>alert(1)" in (each[0].text or "") for each in bars)  # Shown as text.
    left, right = 150, 1150
    assert all(left <= float(each.get("x", 0)) <= right for each in bars)


def test_a_picture_holds_whatever_a_title_is_made_of() -> None:
    odd = "\x00\x1b[31m\ud800\uffff]]> 日本語"
    bar = Drawn(row=0, start=0, end=10**9, label=odd, colour=odd, critical=True)
    assert "日本語" in "".join(ElementTree.fromstring(gantt(odd, odd, [odd], [bar])).itertext())
    ElementTree.fromstring(gantt("nothing", "", [], []))
