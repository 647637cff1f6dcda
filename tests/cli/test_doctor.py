"""`dugnad doctor`: on a board that is well it finds nothing; whatever is wrong it names, with the way to mend it."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

import pytest

from dugnad.board import Board, open_board
from dugnad.board.store.migrations import latest
from dugnad.cli.checks import Finding, Scene
from dugnad.cli.checks_board import shown_url
from dugnad.cli.doctor import CHECKS, examine
from dugnad.clock import Sources, wall_ms
from dugnad.types import Budget, Waiting
from tests.board import raw
from tests.cli.shell import claimed, run
from tests.models.provider_server import Answer, ProviderServer


async def found(
    folder: Path, url: str | None = None, *, online: bool = False, **environment: str
) -> dict[str, Finding]:
    """What is found in a folder by a user whose model is a script."""
    given = {"HOME": str(folder), "DUGNAD_MODEL": "scripted", "PATH": os.environ["PATH"], **environment}
    findings = await examine(Scene(start=folder, environment=given, board_given=url, online=online))
    assert all(each.level == "ok" or each.mend or each.level == "wrong" for each in findings)
    assert all("\n" not in each.says for each in findings)
    return {each.name: each for each in findings}


def git(folder: Path, *words: str) -> None:
    names = ("-c", "user.name=Kari", "-c", "user.email=kari@example.org")
    subprocess.run(["git", *names, *words], cwd=folder, check=True, capture_output=True)


# The board.


async def test_a_board_that_is_well_gives_no_trouble(board: Board, url: str, folder: Path) -> None:
    await board.put("Write it")
    await claimed(board, "alice")
    findings = await found(folder, url)
    for name in ("board", "writing", "clock", "hosts", "budget", "roles", "teammates", "model"):
        assert findings[name].level == "ok", findings[name]
    assert ("disk" in findings) == url.startswith("sqlite")
    assert not {"answers", "rate limits", "online"} & findings.keys()


async def test_looking_leaves_no_trace_on_the_board(board: Board, url: str, folder: Path) -> None:
    await board.put("Write it")
    before = await board.observed_state()
    await found(folder, url)
    assert await board.observed_state() == before


async def test_where_there_is_no_board_yet_none_is_made(folder: Path) -> None:
    assert "dugnad add" in (await found(folder))["board"].says
    assert os.listdir(folder) == []
    (folder / "empty.db").touch()
    assert (await found(folder, f"sqlite:///{folder}/empty.db"))["board"].level == "ok"
    assert (folder / "empty.db").stat().st_size == 0


async def test_a_file_in_the_place_of_the_boards_folder_is_named(folder: Path) -> None:
    (folder / ".dugnad").write_text("in the way")
    said = (await found(folder))["board"]
    assert (said.level, str(folder / ".dugnad") in said.says) == ("wrong", True)


def other_programs(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE songs (name text)")


def newer(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE tasks (id integer)")
        connection.execute("PRAGMA user_version = 999")


@pytest.mark.parametrize(("make", "said"), [
    (lambda path: path.write_bytes(os.urandom(5_000)), "not a board, or is damaged"),
    (lambda path: path.mkdir(), "is not a file"),
    (os.mkfifo, "is not a file"),
    (other_programs, "another program's tables"),
    (newer, "Upgrade dugnad"),
], ids=["garbage", "folder", "pipe", "another's", "newer"])  # fmt: skip
async def test_what_is_no_board_is_named_and_the_rest_is_still_looked_at(folder: Path, make, said: str) -> None:  # type: ignore[no-untyped-def]
    make(folder / "board.db")
    findings = await found(folder, f"sqlite:///{folder}/board.db")
    assert findings["board"].level == "wrong"
    assert said in findings["board"].says
    assert {"model", "git", "sandbox"} <= findings.keys()


async def test_a_damaged_board_is_told_of_and_not_died_of(folder: Path) -> None:
    url = f"sqlite:///{folder}/board.db"
    async with await open_board(url) as board:
        for number in range(50):
            await board.put(f"Task {number}", body="x" * 2_000)
    content = (folder / "board.db").read_bytes()
    (folder / "board.db").write_bytes(content[:8_192] + os.urandom(len(content) - 8_192))
    findings = await found(folder, url)
    assert "damaged" in " ".join(each.says for each in findings.values() if each.level == "wrong")


async def test_an_old_board_is_not_brought_up_to_date_behind_its_users_back(folder: Path) -> None:
    url = f"sqlite:///{folder}/board.db"
    await (await open_board(url)).close()
    with closing(sqlite3.connect(folder / "board.db")) as connection:
        connection.execute(f"PRAGMA user_version = {latest() - 1}")
    before = (folder / "board.db").read_bytes()
    said = (await found(folder, url))["board"]
    assert (said.level, "VACUUM INTO" in said.mend) == ("warning", True)
    assert (folder / "board.db").read_bytes() == before


async def test_a_server_that_is_not_there_is_named_without_the_password(folder: Path) -> None:
    findings = await found(folder, "postgresql://me:hunter2@127.0.0.1:1/team")
    assert findings["board"].level == "wrong"
    assert "hunter2" not in str(findings)
    assert shown_url("postgresql://me:hunter2@host/team?board=x") == "postgresql://me@host/team?board=x"
    assert shown_url("sqlite:///board.db") == "sqlite:///board.db"


async def test_a_board_that_cannot_be_written_is_wrong(board: Board, url: str, folder: Path) -> None:
    if url.startswith("sqlite"):  # Root may write any file, so another process holds the lock.
        with closing(sqlite3.connect(folder / "board.db", isolation_level=None)) as holder:
            holder.execute("BEGIN IMMEDIATE")
            said = (await found(folder, url))["writing"]
    else:
        said = (await found(folder, f"{url}&default_transaction_read_only=on"))["writing"]
    assert said.level == "wrong"


async def test_clocks_that_disagree_are_found(board: Board, url: str, folder: Path) -> None:
    scene = Scene(start=folder, environment={"DUGNAD_MODEL": "scripted"}, board_given=url)
    scene.now_ms = lambda: wall_ms() - 60_000
    clock = next(each for each in await examine(scene) if each.name == "clock")
    assert clock.level == "warning"
    assert "60.0 s behind" in clock.says


async def test_a_clock_that_was_set_back_is_found(folder: Path) -> None:
    url = f"sqlite:///{folder}/board.db"
    async with await open_board(url, sources=Sources(now_ms=lambda: wall_ms() + 3_600_000)) as board:
        await board.put("From the future")
    assert "in the future" in (await found(folder, url))["clock"].says


# The team.


async def test_work_without_a_host_is_found(board: Board, url: str, folder: Path) -> None:
    task = await board.put("Write it")
    assert (await found(folder, url))["hosts"].says == f"Tasks are ready, and no host is running: #{task.id}."
    claim = await claimed(board, "alice")
    await raw.lapse(url, claim.host)
    assert (await found(folder, url))["hosts"].says == f"A lost host still holds #{task.id}."


async def test_what_waits_for_a_person_is_found(board: Board, url: str, folder: Path) -> None:
    task = await board.put("Write it")
    await board.settle(await claimed(board, "alice"), Waiting(on="human", question="Which one?"))
    (asked,) = await board.requests()
    said = (await found(folder, url))["answers"]
    assert said == Finding(
        "answers", "warning", f"These wait for your answer: m{asked.id} from alice about #{task.id}.", "dugnad inbox"
    )


async def test_a_goal_at_its_cap_is_found(board: Board, url: str, folder: Path) -> None:
    root = await board.put("Goal", budget=Budget(tasks=1))
    await board.follow_up(await claimed(board, "alice"), "More")
    await board.spawn("bob")
    host = (await board.teammate("alice")).host
    assert host is not None
    await board.seat(host, name="bob")
    assert await board.claim("bob", host) is None
    said = (await found(folder, url))["budget"]
    assert said.mend == f"dugnad budget {root.id} --tasks N"


async def test_a_task_for_nobody_is_found_unless_the_project_knows_somebody(
    board: Board, url: str, folder: Path
) -> None:
    await board.put("Review it", role="reviewer")
    assert (await found(folder, url))["roles"].mend == "dugnad spawn NAME --role reviewer"
    (folder / "dugnad.toml").write_text("[roles.reviewer]\nprompt = 'You review.'")
    assert (await found(folder, url))["roles"].level == "ok"
    await board.spawn("carol")
    await board.put("Ask her", assignee="carol")
    assert (await found(folder, url))["roles"].level == "ok"
    await board.stop_teammate("carol")
    assert (await found(folder, url))["roles"].mend == "dugnad spawn carol"


async def test_a_failed_teammate_and_a_resting_key_are_found(board: Board, url: str, folder: Path) -> None:
    await claimed_by_nobody(board)
    await board.cool_down("anthropic:3f9a1c02", reason="Too many requests.", by="alice", seconds=60)
    findings = await found(folder, url)
    assert findings["teammates"].says == "bob failed: KeyError: 'x'."
    assert "anthropic:3f9a1c02 cools down until" in findings["rate limits"].says


async def claimed_by_nobody(board: Board, reason: str = "KeyError: 'x'") -> None:
    await board.spawn("bob")
    await board.fail_teammate("bob", by="bob", reason=reason)


# The files and the model.


async def test_a_broken_project_is_named_and_the_rest_is_still_looked_at(folder: Path) -> None:
    (folder / "dugnad.toml").write_text("[team]\nagent = 3")
    findings = await found(folder)
    assert findings["project"].says == "dugnad.toml: [team] has no key 'agent'; did you mean 'agents'?"
    assert "board" not in findings
    assert findings["model"].level == "ok"


@pytest.mark.parametrize(("mode", "level"), [(0o600, "ok"), (0o644, "warning"), (0o666, "wrong")])
async def test_a_users_file_that_others_can_touch_is_found(folder: Path, mode: int, level: str) -> None:
    file = folder / ".config" / "dugnad" / "config.toml"
    file.parent.mkdir(parents=True)
    file.write_text("[models.'openai:x']\napi_key_env = 'GATEWAY_KEY'")
    file.chmod(mode)
    said = (await found(folder))["user"]
    assert (said.level, said.mend) == (level, "" if level == "ok" else f"chmod 600 {file}")


async def test_without_a_model_the_ways_on_are_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GOOGLE_API_KEY"):
        monkeypatch.delenv(variable, raising=False)
    said = (await found(folder, DUGNAD_MODEL=""))["model"]
    assert said.level == "wrong"
    assert "ANTHROPIC_API_KEY" in said.says


async def test_a_local_server_is_asked_only_when_that_is_wanted(folder: Path) -> None:
    async with ProviderServer([Answer(text="Yes.")]) as server:
        local = {"DUGNAD_MODEL": "openai:llama-here", "DUGNAD_BASE_URL": f"{server.url}/v1"}
        findings = await found(folder, **local, OPENAI_API_KEY="sk-1234")
        assert not server.seen
        assert findings["key"].says == "No key is sent to 127.0.0.1."
        assert (findings["price"].level, findings["window"].level) == ("warning", "warning")
        assert "sk-1234" not in str(findings)
        findings = await found(folder, **local, online=True)
        assert findings["online"].level == "ok"
        assert len(server.seen) == 1
    assert (await found(folder, **local, online=True))["online"].level == "wrong"


async def test_services_are_shown_and_tried_when_that_is_wanted(folder: Path) -> None:
    async with ProviderServer([Answer(text="")]) as server:
        where = server.url.removeprefix("http://")
        config = f"[commands.claude]\nservices = ['{where}']\n[mcp.db]\ncommand = ['x']\nservices = ['{where}']\n"
        config += f"[acp.opencode]\nservices = ['{where}']\n"
        (folder / ".config/dugnad").mkdir(parents=True)
        (folder / ".config/dugnad/config.toml").write_text(config)
        said = f"command:claude may use {where}; acp:opencode may use {where}; the MCP server db may use {where}."
        for online in (False, True):
            services = (await found(folder, online=online))["services"]
            assert (services.level, services.says) == ("ok", said)
    assert (await found(folder))["services"].level == "ok"
    down = (await found(folder, online=True))["services"]
    assert (down.level, down.says) == ("warning", f"{said} There is no answer from {where}.")
    assert down.mend == "start it, or correct `services`"


async def test_a_cap_in_dollars_needs_a_price(folder: Path) -> None:
    (folder / "dugnad.toml").write_text("model = 'openai:llama-here'\n[budget]\ndollars = 2")
    local = {"DUGNAD_MODEL": "", "DUGNAD_BASE_URL": "http://localhost:1/v1"}
    findings = await found(folder, **local)
    assert findings["model"].says == "openai:llama-here, as dugnad.toml says."
    assert findings["price"].level == "wrong"
    file = folder / ".config" / "dugnad" / "config.toml"
    file.parent.mkdir(parents=True)
    file.write_text("[models.'openai:llama-here']\nprice_input = 1\nprice_output = 2\nwindow_tokens = 8000")
    findings = await found(folder, **local)
    assert (findings["price"].level, findings["window"].level) == ("ok", "ok")


async def test_a_role_whose_model_cannot_be_opened_is_found(folder: Path) -> None:
    (folder / "dugnad.toml").write_text("[roles.coder]\nmodel = 'nobody:x'")
    assert (await found(folder))["role models"].level == "wrong"


async def test_a_proxy_in_front_of_a_local_server_is_found(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://me:hunter2@proxy:3128")
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    local = {"DUGNAD_MODEL": "openai:llama-here", "DUGNAD_BASE_URL": "http://localhost:1/v1"}
    findings = await found(folder, **local, HTTP_PROXY=os.environ["HTTP_PROXY"])
    assert findings["proxy"].mend.startswith("export NO_PROXY=localhost")
    assert "hunter2" not in str(findings)


async def test_the_state_of_the_repository_is_found(folder: Path) -> None:
    assert "not a git repository" in (await found(folder))["git"].says
    git(folder, "init")
    assert (await found(folder))["git"].level == "ok"
    (folder / "a.txt").write_text("a")
    assert (await found(folder))["git"].says == "1 file has changes that are not committed."
    (folder / ".dugnad").mkdir()
    (folder / ".dugnad" / "other").write_text("b")
    git(folder, "add", ".")
    git(folder, "commit", "-m", "All")
    assert (await found(folder))["git"].mend == "git rm -r --cached .dugnad"


async def test_a_project_cannot_make_the_doctor_run_its_programs(folder: Path) -> None:
    git(folder, "init")
    (folder / "watch.sh").write_text(f"#!/bin/sh\ntouch {folder}/ran\n")
    (folder / "watch.sh").chmod(0o755)
    git(folder, "config", "core.fsmonitor", str(folder / "watch.sh"))
    assert "changes" in (await found(folder))["git"].says
    assert not (folder / "ran").exists()


# The command.


def test_the_command_prints_a_line_for_each_and_ends_with_its_verdict(folder: Path) -> None:
    ran = run("doctor", folder=folder, DUGNAD_MODEL="scripted")
    assert (ran.returncode, ran.stderr) == (0, "")
    lines = ran.stdout.splitlines()
    assert all(line.split()[0] in ("ok", "warning", "wrong") for line in lines[:-1])
    assert lines[-1].startswith("Nothing wrong, ")
    ran = run("doctor", "--json", "--board", "nonsense", folder=folder, DUGNAD_MODEL="scripted")
    assert ran.returncode == 1
    said = json.loads(ran.stdout)
    assert said.keys() == {"findings", "wrong", "warnings"}
    assert said["wrong"] == 1
    assert all(each.keys() == {"name", "level", "says", "mend"} for each in said["findings"])
    assert {each["name"] for each in said["findings"]} <= {name for name, _ in CHECKS}


async def test_what_others_wrote_cannot_move_the_terminal(board: Board, url: str, folder: Path) -> None:
    await claimed_by_nobody(board, "\x1b]0;owned\x07\x1b[31mred\nsecond line")
    ran = run("doctor", "--board", url, folder=folder, DUGNAD_MODEL="scripted")
    assert "\x1b" not in ran.stdout
    assert "bob failed" in ran.stdout
