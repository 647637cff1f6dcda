"""Keys, and the sessions they are exchanged for."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import stat
from pathlib import Path

import pytest

from dugnad.clock import new_secret
from dugnad.web.sessions import SESSION_SECONDS, Sessions, WebSession, forget_old, sessions_file
from tests.web.asking import WebClock

BOARDS = ["0" * 32, "1" * 32]


def begun(sessions: Sessions, scope: str = "steer", who: str = "eve") -> tuple[str, WebSession]:
    found = sessions.exchange(sessions.new_key(scope, boards=BOARDS, who=who))  # type: ignore[arg-type]
    assert found is not None
    return found


@pytest.fixture
def file(folder: Path) -> Path:
    return folder / "state" / "web" / "sessions-7373.json"


def test_a_link_to_steer_works_once() -> None:
    sessions = Sessions()
    key = sessions.new_key("steer", boards=BOARDS, who="eve")
    found = sessions.exchange(key)
    assert found is not None
    assert (found[1].scope, found[1].who, found[1].boards) == ("steer", "eve", tuple(BOARDS))
    assert sessions.exchange(key) is None


def test_a_link_to_look_works_for_everybody_it_is_shared_with_and_names_nobody() -> None:
    sessions = Sessions()
    key = sessions.new_key("look", boards=BOARDS, who="eve")
    found = [sessions.exchange(key) for _ in range(3)]
    assert [(each[1].scope, each[1].who) for each in found if each] == [("look", None)] * 3
    assert len({each[0] for each in found if each}) == 3


def test_a_new_link_to_steer_takes_the_place_of_one_that_nobody_used() -> None:
    sessions = Sessions()
    old, look = sessions.new_key("steer", boards=BOARDS), sessions.new_key("look", boards=BOARDS)
    new = sessions.new_key("steer", boards=BOARDS)
    assert sessions.exchange(old) is None
    assert sessions.exchange(new) is not None
    assert sessions.exchange(look) is not None


def test_a_session_ends_after_twelve_hours() -> None:
    clock = WebClock()
    sessions = Sessions(now_ms=clock)
    id, session = begun(sessions)
    clock.now += SESSION_SECONDS * 1_000 - 1
    assert sessions.find(id) == session
    clock.now += 1
    assert sessions.find(id) is None
    assert not sessions.lives(session)


async def test_ending_a_session_wakes_what_it_has_open_and_nothing_else() -> None:
    sessions = Sessions()
    (id, session), (other_id, other) = begun(sessions), begun(sessions)
    ended, stays = asyncio.Event(), asyncio.Event()
    with sessions.listening(session, ended), sessions.listening(other, stays):
        sessions.end(session)
        assert ended.is_set()
        assert not stays.is_set()
    assert sessions.find(id) is None
    assert sessions.find(other_id) == other


@pytest.mark.parametrize("wrong", ["", "x", "A" * 43, "A" * 100_000, "\ud800", "\0", "é"])
def test_what_is_no_id_finds_nothing(wrong: str) -> None:
    sessions = Sessions()
    begun(sessions)
    assert sessions.find(wrong) is None
    assert sessions.exchange(wrong) is None


def test_keys_and_ids_are_32_random_bytes() -> None:
    secrets = {new_secret() for _ in range(100)}
    assert len(secrets) == 100
    assert {len(base64.urlsafe_b64decode(f"{each}=")) for each in secrets} == {32}


# The file.


def test_a_page_keeps_its_session_when_the_server_starts_again(file: Path) -> None:
    id, session = begun(Sessions(file))
    assert Sessions(file).find(id) == session


def test_a_link_does_not_work_any_more_when_the_server_starts_again(file: Path) -> None:
    before = Sessions(file)
    keys = [before.new_key("steer", boards=BOARDS), before.new_key("look", boards=BOARDS)]
    begun(before, "look")
    assert [Sessions(file).exchange(each) for each in keys] == [None, None]


def test_the_file_has_hashes_only_and_is_for_the_user_alone(file: Path) -> None:
    sessions = Sessions(file)
    key = sessions.new_key("steer", boards=BOARDS)
    found = sessions.exchange(key)
    assert found is not None
    text = file.read_text()
    assert found[0] not in text
    assert key not in text
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert os.listdir(file.parent) == [file.name]


def test_ended_and_expired_sessions_are_not_kept(file: Path) -> None:
    clock = WebClock()
    sessions = Sessions(file, now_ms=clock)
    _, ended = begun(sessions)
    begun(sessions)
    clock.now += SESSION_SECONDS * 1_000
    id, _ = begun(sessions)
    sessions.end(ended)
    assert len(json.loads(file.read_text())["sessions"]) == 1
    assert Sessions(file, now_ms=clock).find(id) is not None


@pytest.mark.parametrize(
    "damage",
    ["", "{", "[]", '{"sessions": 7}', '{"sessions": [7]}', '{"sessions": [{"hash": "x"}]}', "[" * 100_000,
     '{"sessions": [{"scope": "root", "who": null, "boards": [], "expires_at": 99, "hash": "x"}]}',
     '{"sessions": [{"scope": "steer", "who": 7, "boards": ["x"], "expires_at": "never", "hash": "x"}]}'],
)  # fmt: skip
def test_a_damaged_file_counts_as_none(file: Path, damage: str) -> None:
    file.parent.mkdir(parents=True)
    file.write_text(damage)
    sessions = Sessions(file)
    id, _ = begun(sessions)
    assert sessions.find(id) is not None
    assert Sessions(file).find(id) is not None


def test_a_link_in_place_of_the_folder_is_not_followed(file: Path, folder: Path) -> None:
    (folder / "elsewhere").mkdir()
    file.parent.parent.mkdir()
    file.parent.symlink_to(folder / "elsewhere")
    id, _ = begun(sessions := Sessions(file))
    assert sessions.find(id) is not None
    assert os.listdir(folder / "elsewhere") == []


def test_a_folder_that_cannot_be_made_costs_only_the_memory(folder: Path) -> None:
    (folder / "state").write_text("a file")
    sessions = Sessions(folder / "state" / "web" / "sessions-1.json")
    assert sessions.find(begun(sessions)[0]) is not None


def test_too_many_sessions_end_the_oldest_and_first_those_that_only_look(file: Path) -> None:
    clock = WebClock()
    sessions = Sessions(file, now_ms=clock)
    steer, _ = begun(sessions)
    looks = []
    for _ in range(150):
        clock.now += 1
        looks.append(begun(sessions, "look")[0])
    assert sessions.find(steer) is not None
    alive = [sessions.find(each) is not None for each in looks]
    assert alive == [False] * 51 + [True] * 99


def test_files_whose_sessions_have_expired_are_removed(file: Path) -> None:
    begun(Sessions(file))
    other, more = file.with_name("sessions-1.json"), file.with_name("something")
    for each in (other, more):
        each.write_text("x")
        os.utime(each, (1, 1))
    forget_old(file.parent)
    forget_old(file.parent / "nothing")
    assert sorted(each.name for each in file.parent.iterdir()) == [file.name, "something"]


def test_the_file_is_in_the_users_state_folder_by_port() -> None:
    assert sessions_file({"XDG_STATE_HOME": "/s"}, 7373) == Path("/s/dugnad/web/sessions-7373.json")
