"""The team's scratchpad: what one found out and all may read."""

from __future__ import annotations

import pytest

from dugnad.board import Board
from dugnad.errors import BadText, StaleClaim
from dugnad.settings import Limits
from dugnad.types import Note, Waiting
from tests.board.crew import crew
from tests.board.raw import assert_refused, race
from tests.conftest import Opener


def titles(notes: list[Note]) -> list[str]:
    return [note.title for note in notes]


async def test_a_note_is_written_and_read(board: Board) -> None:
    note = await board.write_note("alice", "the port", "It is 8080.")
    assert (note.author, note.title, note.text, note.task, note.root) == (
        "alice",
        "the port",
        "It is 8080.",
        None,
        None,
    )
    assert await board.search_notes() == [note]
    (event,) = await board.events()
    assert (event.kind, event.actor, event.data["note"]) == ("noted", "alice", note.id)


async def test_notes_are_listed_newest_first_page_by_page(board: Board) -> None:
    for number in range(7):
        await board.write_note("alice", str(number), "")
    assert titles(await board.search_notes()) == list("6543210")
    first = await board.search_notes(page=3)
    second = await board.search_notes(page=3, before=first[-1].id)
    third = await board.search_notes(page=3, before=second[-1].id)
    assert [titles(page) for page in (first, second, third)] == [["6", "5", "4"], ["3", "2", "1"], ["0"]]


async def test_a_search_finds_notes_that_hold_every_word_in_title_or_text(board: Board) -> None:
    await board.write_note("alice", "Database port", "PostgreSQL listens on 5432.")
    await board.write_note("bob", "Web port", "It is 8080.")
    assert titles(await board.search_notes("port")) == ["Web port", "Database port"]
    assert titles(await board.search_notes("listens PORT")) == ["Database port"]
    assert titles(await board.search_notes("  ostgre \n 54 ")) == ["Database port"], "parts of words, in any order"
    assert await board.search_notes("port mysql") == []
    assert titles(await board.search_notes(" \t ")) == ["Web port", "Database port"], "no words: all"


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("Ålesund", "åLESUND"),
        ("ålesund", "ÅLESUND"),
        ("Straße", "STRASSE"),
        ("STRASSE", "straße"),
        ("ΣΊΣΥΦΟΣ", "σίσυφος"),
        ("ПРИВЕТ", "привет"),
        ("ﬁle", "FILE"),
        ("東京 \U0001f600", "京"),
        ("\U0001f600 smile", "\U0001f600"),
    ],
)
async def test_a_search_does_not_mind_the_case_in_any_alphabet(board: Board, text: str, query: str) -> None:
    await board.write_note("alice", "found", text)
    await board.write_note("alice", "other", "nothing of the kind")
    assert titles(await board.search_notes(query)) == ["found"]


@pytest.mark.parametrize("sign", ["%", "_", "\\", "\\%", "\\_", "'", '"', "\\\\", "*", "?", "[a]", "$1", ":page"])
async def test_signs_in_a_search_stand_for_themselves(board: Board, sign: str) -> None:
    await board.write_note("alice", "with", f"a{sign}b")
    await board.write_note("alice", "without", "aXb ab aa 1 page")
    assert titles(await board.search_notes(sign)) == ["with"]
    assert titles(await board.search_notes(f"A{sign}B")) == ["with"]


async def test_a_note_written_under_a_claim_belongs_to_its_task_and_root(board: Board) -> None:
    root = await board.put("goal")
    other = await board.put("other goal")
    team = await crew(board)
    claim = await team.must_claim(task=root.id)
    child = await board.follow_up(claim, "child")
    under_root = await board.write_note("alice", "root", "port", claim=claim)
    under_child = await board.write_note("alice", "child", "port", claim=await team.must_claim(task=child.id))
    await board.write_note("alice", "other", "port", claim=await team.must_claim(task=other.id))
    await board.write_note("alice", "everybody's", "port")
    assert (under_root.task, under_root.root) == (root.id, root.id)
    assert (under_child.task, under_child.root) == (child.id, root.id)
    assert titles(await board.search_notes(root=root.id)) == ["everybody's", "child", "root"]
    assert titles(await board.search_notes("PORT root", root=root.id)) == ["root"]
    assert await board.search_notes("other", root=root.id) == []


async def test_the_same_key_writes_one_note(opener: Opener, url: str) -> None:
    one, two = await opener(), await opener()
    first = await one.write_note("alice", "title", "text", key="once")
    assert await two.write_note("alice", "title", "text", key="once") == first
    racing = await race(url, *(board.write_note("alice", "other", "text", key="race") for board in (one, two)))
    assert racing[0] == racing[1]
    assert isinstance(racing[0], Note)
    assert titles(await one.search_notes()) == ["other", "title"]
    assert len(await one.events()) == 2


async def test_a_note_for_everyone_is_also_told_to_everybody_at_work_once(opener: Opener) -> None:
    board = await opener()
    team = await crew(board, "alice", "bob", "carol", "dave", "eve")
    for title in ("one", "two", "three", "four"):
        await board.put(title)
    claim = await team.must_claim("alice")
    await team.must_claim("bob")
    await board.settle(await team.must_claim("carol"), Waiting(on="human", question="Which?"))
    await team.must_claim("eve")
    await board.stop_teammate("eve")
    for _ in range(2):
        note = await board.write_note("alice", "the port", "It is 8080.", claim=claim, everyone=True, key="once")
    await board.write_note("alice", "mine", "For this goal.", claim=claim)
    inboxes = {name: await board.inbox(name) for name in ("alice", "bob", "carol", "dave", "eve", "human")}
    assert [name for name, inbox in inboxes.items() if any(each.kind == "notice" for each in inbox)] == ["bob", "carol"]
    (told,) = inboxes["bob"]
    assert (told.sender, told.task, told.text) == ("alice", 1, "Note for everyone: the port\nIt is 8080.")
    assert (note.root, titles(await board.search_notes(root=2))) == (None, ["the port"])


async def test_a_long_note_for_everyone_is_told_in_short(board: Board) -> None:
    team = await crew(board, "bob")
    await board.put("one")
    await team.must_claim("bob")
    await board.write_note("human", "long", "x" * 50_000, everyone=True)
    (told,) = await board.inbox("bob")
    assert len(told.text) < 9_000
    assert "characters left out; show_task and notes show the rest" in told.text


async def test_a_stale_claim_writes_no_note(board: Board) -> None:
    await board.put("goal")
    team = await crew(board)
    claim = await team.must_claim()
    await board.release(claim.task.id)
    with pytest.raises(StaleClaim):
        await board.write_note("alice", "late", "text", claim=claim)
    assert await board.search_notes() == []


async def test_writing_a_note_wakes_who_waits_for_notes(board: Board) -> None:
    with board.watch(["notes"]) as watch:
        await board.write_note("alice", "title", "text")
        assert await watch.wait(30)


@pytest.mark.parametrize("text", ["a NUL \0", "half a pair \udc00", "é" * 51])
async def test_what_cannot_be_stored_is_refused(opener: Opener, text: str) -> None:
    board = await opener(limits=Limits(body_bytes_max=100, title_chars_max=50))
    with pytest.raises(BadText):
        await board.write_note("alice", "title", text)
    with pytest.raises(BadText):
        await board.write_note("alice", text, "text")
    assert await board.events() == []


@pytest.mark.parametrize("bad", ["a\0b", "a\ud800b"], ids=["NUL", "half a pair"])
async def test_an_author_or_search_that_is_no_text_is_refused_by_our_name_for_it(board: Board, bad: str) -> None:
    await assert_refused(board.write_note(bad, "title", "text"))
    await assert_refused(board.search_notes(bad))
    assert await board.events() == []


async def test_any_text_survives(board: Board) -> None:
    strange = "\u0001\n\\u0000 \\ 'quoted' \U0001f600 \u2028 İ ſ ß"
    await board.write_note("alice", "strange", strange)
    assert (await board.search_notes())[0].text == strange
    assert titles(await board.search_notes("\\U0000")) == ["strange"]
