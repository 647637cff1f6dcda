"""A project's file: what it says, what is refused, and what a hostile one cannot do."""

from __future__ import annotations

import os
import pwd
import re
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from dugnad.config import user
from dugnad.config.project import Member, Project, Role, read_project
from dugnad.errors import BadInput
from dugnad.settings import AgentLimits, Limits, TeamLimits
from dugnad.types import Budget
from tests.strangers import STRANGER, give_away

WHOLE = """
board = "sqlite:///work/team.db"
model = "anthropic:claude-sonnet-5-5"

[team]
name = "The website"
agents = 5
idle_seconds = inf
stop_seconds = 0

[roles.coder]
prompt = "You write code."

[roles.reviewer]
prompt_file = "prompts/review.md"
model = "openai:gpt-5.5"
plan = true

[members.alice]
role = "coder"
lead = true

[members.bob]
roles = ["coder", "reviewer"]
prompt = "You are careful."

[budget]
tasks = 20
dollars = 2.5
minutes = 30

[limits]
depth_max = 4
turns_max = 30
"""


def project(folder: Path, text: str | bytes) -> Project:
    (folder / "dugnad.toml").write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_project(folder, environment={})


def refused(folder: Path, text: str | bytes) -> str:
    """The one sentence a file is refused with."""
    with pytest.raises(BadInput) as met:
        project(folder, text)
    said = str(met.value)
    assert said.startswith("dugnad.toml"), said
    assert "\n" not in said
    assert said.endswith((".", "?")), said
    return said


# Finding it.


def test_the_nearest_folder_with_a_file_is_the_project(folder: Path) -> None:
    below = folder / "a" / "b"
    below.mkdir(parents=True)
    (folder / "a" / ".git").mkdir()
    assert read_project(below, environment={}).root == folder / "a"
    (folder / "dugnad.toml").write_text("")
    assert read_project(below, environment={}).root == folder
    (below / "dugnad.toml").write_text("")
    found = read_project(below, environment={})
    assert (found.root, found.file) == (below, below / "dugnad.toml")


def test_without_a_file_or_a_repository_the_folder_itself_is_the_project(folder: Path) -> None:
    found = read_project(folder, environment={})
    assert found == Project(root=folder, team=folder.name)
    assert found.team_limits == TeamLimits()


def test_nothing_above_the_users_home_is_looked_at(folder: Path) -> None:
    (folder / "dugnad.toml").write_text("not = [toml")
    home = folder / "someone"
    (home / "work").mkdir(parents=True)
    assert read_project(home / "work", environment={"HOME": str(home)}).root == home / "work"
    (home / "dugnad.toml").write_text("")
    assert read_project(home / "work", environment={"HOME": str(home)}).root == home


def test_a_file_of_another_user_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "dugnad.toml").write_text("")
    owner = give_away(folder / "dugnad.toml", monkeypatch)
    named = f"user {owner}" if owner == STRANGER else pwd.getpwuid(owner).pw_name
    with pytest.raises(BadInput, match=f"belongs to {named}, not to you"):
        read_project(folder, environment={})
    monkeypatch.setattr(os, "geteuid", lambda: 0)  # Under sudo, what belongs to the caller is believed.
    monkeypatch.setenv("SUDO_UID", str(owner))
    assert read_project(folder, environment={"SUDO_UID": str(owner)}).file is not None


def test_a_folders_strange_name_makes_a_harmless_team_name(folder: Path) -> None:
    odd = folder / "a\n\x1b[31mteam"
    odd.mkdir()
    assert read_project(odd, environment={}).team == "a[31mteam"


# What it says.


def test_everything_a_file_can_say_is_read(folder: Path) -> None:
    (folder / "prompts").mkdir()
    (folder / "prompts" / "review.md").write_text("You review: søte små.")
    found = project(folder, WHOLE)
    assert (found.model, found.team) == ("anthropic:claude-sonnet-5-5", "The website")
    assert (found.team_limits.agents_max, found.team_limits.idle_seconds, found.lead) == (5, float("inf"), True)
    assert found.team_limits == TeamLimits(agents_max=5, idle_seconds=float("inf"), stop_seconds=0)
    assert found.roles == {
        "coder": Role(prompt="You write code."),
        "reviewer": Role(prompt="You review: søte små.", model="openai:gpt-5.5", plan=True),
    }
    assert found.members == (
        Member(name="alice", roles=("coder",), lead=True),
        Member(name="bob", roles=("coder", "reviewer"), prompt="You are careful."),
    )
    assert found.budget == Budget(tasks=20, dollars=2.5, seconds=1_800)
    assert (found.limits, found.agent_limits) == (Limits(depth_max=4), AgentLimits(turns_max=30))


@pytest.mark.parametrize(
    "text", ["\ufeffboard = 'make'\r\n[team]\r\nagents = 2\r\n", "board = 'make'\n[team]\nagents = 2"]
)
def test_a_file_from_any_editor_is_read(folder: Path, text: str) -> None:
    found = project(folder, text)
    assert (found.board, found.team_limits.agents_max) == ("make", 2)


def test_every_limit_has_one_place_and_can_be_set_to_its_default(folder: Path) -> None:
    names = [each.name for kind in (Limits, AgentLimits) for each in fields(kind)]
    assert len(names) == len(set(names))
    lines = [f"{each.name} = {each.default}" for kind in (Limits, AgentLimits) for each in fields(kind)]
    team = [f"{each.name} = {each.default}" for each in fields(TeamLimits) if each.name != "agents_max"]
    found = project(folder, "\n".join(["[limits]", *lines, "[team]", *team]))
    assert (found.limits, found.agent_limits, found.team_limits) == (Limits(), AgentLimits(), TeamLimits())


# What it says wrongly.

WRONG = {
    "[team]\nagent = 3": "dugnad.toml: [team] has no key 'agent'; did you mean 'agents'?",
    "modle = 'a:b'": "dugnad.toml: the top level has no key 'modle'; did you mean 'model'?",
    "[budgets]\ntasks = 3": "dugnad.toml: the top level has no key 'budgets'; did you mean 'budget'?",
    "[roles.c]\ntools = []": "dugnad.toml: [roles.c] has no key 'tools'; there are model, plan, prompt, prompt_file.",
    "[team]\nagents = 'three'": "dugnad.toml: [team] agents must be a whole number from 1 upwards, not 'three'.",
    "[team]\nagents = true": "dugnad.toml: [team] agents must be a whole number from 1 upwards, not True.",
    "[team]\nagents = 0": "dugnad.toml: [team] agents must be a whole number from 1 upwards, not 0.",
    "[team]\nidle_seconds = nan": "dugnad.toml: [team] idle_seconds must be a number from 0 upwards, not nan.",
    "[budget]\ndollars = -1": "dugnad.toml: [budget] dollars must be a number above 0, not -1.",
    "[budget]\ndollars = inf": "dugnad.toml: [budget] dollars must be a number above 0, not inf.",
    "[limits]\nkeep_share = 1.5": "dugnad.toml: [limits] keep_share must be a number from 0 to 1, not 1.5.",
    "[limits]\nlease_seconds=500": "dugnad.toml: [limits] lease_seconds is more than lease_seconds_max, which is 120.",
    "team = 3": "dugnad.toml: team must be a table, not 3.",
    "[members]\nbob = 'coder'": "dugnad.toml: [members] bob must be a table, not 'coder'.",
    "board = ''": "dugnad.toml: board must be text, not ''.",
    "board = \"a\\u0000b\"": "dugnad.toml: board must be text, not 'a\\x00b'.",
    "[roles.coder]\nplan = 'yes'": "dugnad.toml: [roles.coder] plan must be true or false, not 'yes'.",
    "[roles.a]\n[members.b]\nrole = 'aa'": (
        "dugnad.toml: [members.b] has role 'aa', which no [roles] describes; did you mean 'a'?"
    ),
    "[members.b]\nrole = 'a'\nroles = ['a']": "dugnad.toml: [members.b] has role and roles; keep one.",
    "[members.human]": "dugnad.toml: members: 'human' is the person in front of the board; choose another name.",
    "[members.a]\nlead = true\n[members.b]\nlead = true": (
        "dugnad.toml: a and b would lead, and a team has one lead, or none if [team] says so."
    ),
    "[roles.a]\nprompt = 'x'\nprompt_file = 'dugnad.toml'": (
        "dugnad.toml: [roles.a] has prompt and prompt_file; keep one."
    ),
}  # fmt: skip


@pytest.mark.parametrize("text", WRONG)
def test_what_is_wrong_is_said_in_one_sentence_with_its_place(folder: Path, text: str) -> None:
    assert refused(folder, text) == WRONG[text]


def test_a_name_that_the_board_would_not_take_is_refused_here(folder: Path) -> None:
    assert "'two words' cannot be a role" in refused(folder, "[roles.'two words']\nprompt = 'x'")
    assert "cannot be a teammate's name" in refused(folder, "[members.'@bob']\nrole = 'x'")
    assert "[members.bob] role: 'a,b' cannot be a role" in refused(folder, "[members.bob]\nrole = 'a,b'")


# Keys, endpoints and servers.


@pytest.mark.parametrize("key", ["api_key", "base_url", "token", "endpoint", "ANTHROPIC_API_KEY", "password", "secret"])
@pytest.mark.parametrize("table", ["", "[team]\n", "[roles.coder]\n", "[limits]\n"])
def test_a_secret_or_an_endpoint_is_refused_with_the_place_where_it_belongs(folder: Path, table: str, key: str) -> None:
    said = refused(folder, f"{table}{key} = 'sk-123456'")
    assert "config.toml" in said
    assert "environment" in said
    assert "sk-123456" not in said


@pytest.mark.parametrize(
    "name",
    ["claude", "openai:http://evil.example/v1", "openai://evil", "google:../../x", "a:b c", "x:" + "y" * 500, "openai:",
     "huggingface:https://evil.example", "evil.example:8080", "openai:\x1b[31m"],
)  # fmt: skip
def test_a_models_name_has_no_room_for_a_server(folder: Path, name: str) -> None:
    written = name.replace("\x1b", "\\u001b")
    for table in ("", "[roles.coder]\n", "[members.bob]\n"):
        assert "provider:model" in refused(folder, f'{table}model = "{written}"')


@pytest.mark.parametrize("name", ["openai:qwen3:14b", "openrouter:meta/llama-3.1", "google-vertex:claude@20250101"])
def test_the_names_that_providers_use_are_taken(folder: Path, name: str) -> None:
    assert project(folder, f"model = '{name}'").model == name


def test_a_script_is_played_from_inside_the_project_only(folder: Path) -> None:
    assert project(folder, "model = 'scripted:demo.yaml'").model == f"scripted:{folder}/demo.yaml"
    assert "outside the project" in refused(folder, "model = 'scripted:/etc/passwd'")


def test_the_board_is_the_first_one_named(folder: Path) -> None:
    found = project(folder, "board = 'sqlite:///data/team.db'")
    assert found.board_url("sqlite:///x.db", {"DUGNAD_BOARD": "y"}) == "sqlite:///x.db"
    assert found.board_url(None, {"DUGNAD_BOARD": "postgresql://anywhere/x"}) == "postgresql://anywhere/x"
    assert found.board_url(None, {}) == f"sqlite:///{folder}/data/team.db"
    (folder / "dugnad.toml").unlink()
    found = read_project(folder, environment={})
    assert found.board_url(None, {}) == f"sqlite:///{folder}/.dugnad/board.db"
    assert found.board_url(None, {"DUGNAD_BOARD": ""}) == f"sqlite:///{folder}/.dugnad/board.db"


@pytest.mark.parametrize("path", ["../board.db", "/etc/board.db", "out/board.db"])
def test_a_projects_board_does_not_lie_outside_it(folder: Path, path: str) -> None:
    (folder / "out").symlink_to("/tmp")
    found = project(folder, f"board = 'sqlite:///{path}'")
    with pytest.raises(BadInput, match="outside the project"):
        found.board_url(None, {})


def test_a_link_in_the_place_of_the_boards_folder_is_not_followed_out(folder: Path) -> None:
    (folder / ".dugnad").symlink_to("/tmp")
    with pytest.raises(BadInput, match="outside the project"):
        read_project(folder, environment={}).board_url(None, {})


@pytest.mark.parametrize(
    "address",
    ["postgresql://db.example.org/team", "postgres://DB.example.org:5433/team", "postgresql://localhost,evil/x",
     "postgresql://me@evil.example,x@localhost/team", "postgresql:///team?host=evil", "postgresql://localhost/x?passfile=y",
     "postgresql://%2Ftmp%2Fevil/team", "postgresql://me:secret@localhost/x", "postgresql://[evil/x", "postgresql://localhost:6666/x",
     "postgresql://:6666/x", "postgresql://postgres@localhost/x", "postgresql://postgres@/x", "postgresql:///x?sslkey=/k",
     "postgresql:///x?sslrootcert=/k", "postgresql:///x?service=s", "postgresql:///x?options=-c", "postgresql:///x?SSLMODE=require",
     "postgresql:///x?user=postgres", "postgresql:///x?port=6666", "postgresql:///x?sslmode="],
)  # fmt: skip
def test_a_project_does_not_choose_a_server_for_the_user(folder: Path, address: str) -> None:
    found = project(folder, f"board = '{address}'")
    with pytest.raises(BadInput) as met:
        found.board_url(None, {"PGPASSWORD": "hunter2"})
    assert "secret" not in str(met.value)
    assert str(met.value).startswith("dugnad.toml: the board")


@pytest.mark.parametrize(
    "name", ["public", "pg_catalog", "pg_mine", "information_schema", "web&board=public", "PUBLIC"]
)
def test_a_project_does_not_have_its_board_among_tables_of_others(folder: Path, name: str) -> None:
    found = project(folder, f"board = 'postgresql:///prod?board={name}'")
    with pytest.raises(BadInput, match=r"^dugnad.toml: the board would .* name it otherwise"):
        found.board_url(None, {})
    assert found.board_url(None, {"DUGNAD_BOARD": "postgresql:///prod?board=public"})  # The user's own word.


def test_a_server_the_user_named_or_this_machine_will_do(folder: Path) -> None:
    (folder / "dugnad").mkdir()
    (folder / "dugnad" / "config.toml").write_text("boards = ['db.example.org']")
    environment = {"XDG_CONFIG_HOME": str(folder)}
    for server in ("db.example.org", "me@DB.example.org:5433", "localhost", "[::1]:5432", ""):
        address = f"postgresql://{server}/team?board=web&sslmode=require"
        assert project(folder, f"board = '{address}'").board_url(None, environment) == address


@pytest.mark.parametrize("own", ["", "disable", "allow", "prefer", "require", "verify-ca", "verify-full", "nonsense"])
def test_a_project_may_ask_for_a_safer_line_to_the_board_and_for_no_other(folder: Path, own: str) -> None:
    modes = ["disable", "allow", "prefer", "require", "verify-ca", "verify-full"]
    least = modes.index(own or "prefer") if own != "nonsense" else len(modes)
    for place, mode in enumerate(modes):
        found = project(folder, f"board = 'postgresql:///team?sslmode={mode}'")
        twice = project(folder, f"board = 'postgresql:///team?sslmode=verify-full&sslmode={mode}'")
        for each in (found, twice):
            if place >= least:
                assert each.board_url(None, {"PGSSLMODE": own})
            else:
                with pytest.raises(BadInput, match="a project may ask for more, not for less"):
                    each.board_url(None, {"PGSSLMODE": own})
    with pytest.raises(BadInput, match="sslmode"):
        project(folder, "board = 'postgresql:///team?sslmode=none'").board_url(None, {"PGSSLMODE": own})


def test_the_port_the_user_has_chosen_on_this_machine_will_do(folder: Path) -> None:
    found = project(folder, "board = 'postgresql://localhost:6666/team'")
    assert found.board_url(None, {"PGPORT": "6666"}) == "postgresql://localhost:6666/team"
    (folder / "dugnad").mkdir()
    (folder / "dugnad" / "config.toml").write_text("boards = ['localhost']")
    assert found.board_url(None, {"XDG_CONFIG_HOME": str(folder)}) == "postgresql://localhost:6666/team"


def test_the_model_is_the_first_one_named(folder: Path) -> None:
    found = project(folder, "model = 'anthropic:claude-x'")
    assert found.model_name("openai:a", {"DUGNAD_MODEL": "openai:b"}) == "openai:a"
    assert found.model_name(None, {"DUGNAD_MODEL": "openai:b"}) == "openai:b"
    assert found.model_name(None, {}) == "anthropic:claude-x"
    assert read_project(folder.parent, environment={}).model_name(None, {}) is None


# Hostile files.

HOSTILE: dict[str, str | bytes] = {
    "huge": "# " + "x" * 100_000,
    "deep": "a = " + "[" * 30_000 + "]" * 30_000,
    "deep key": ".".join("a" * 30_000) + " = 1",
    "deep tables": "x = " + "{a=" * 5_000 + "1" + "}" * 5_000,
    "utf-16": "board = 'make'".encode("utf-16"),
    "latin-1": "board = 'søt'".encode("latin-1"),
    "binary": bytes(range(256)),
    "twice": "board = 'a'\nboard = 'b'",
    "nul": b"board = 'a\0b'",
    "escape in a key": '"\\u001b[31m" = 1',
    "long key": f"{'x' * 5_000} = 1",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_gets_one_short_harmless_sentence(folder: Path, name: str) -> None:
    said = refused(folder, HOSTILE[name])
    assert said.isprintable()
    assert len(said) < 300


@pytest.mark.parametrize("make", [
    os.mkfifo, lambda at: at.mkdir(), lambda at: at.symlink_to("/etc/passwd"),
    lambda at: at.symlink_to("/dev/zero"), lambda at: at.symlink_to(at), lambda at: at.symlink_to("gone.toml"),
], ids=["pipe", "folder", "link out", "device", "circle", "dangling"])  # fmt: skip
def test_what_is_no_file_of_the_project_is_refused(folder: Path, make: Callable[[Path], Any]) -> None:
    make(folder / "dugnad.toml")
    with pytest.raises(BadInput, match=r"^dugnad\.toml"):
        read_project(folder, environment={})
    (folder / "dugnad.toml").rmdir() if (folder / "dugnad.toml").is_dir() else (folder / "dugnad.toml").unlink()
    make(folder / "prompt.md")
    assert "prompt_file" in refused(folder, "[roles.coder]\nprompt_file = 'prompt.md'")


@pytest.mark.parametrize("path", ["../secret", "/etc/passwd", "missing.md", "big.md", "odd.md"])
def test_a_prompt_file_is_text_inside_the_project(folder: Path, path: str) -> None:
    (folder / "big.md").write_text("x" * 300_000)
    (folder / "odd.md").write_bytes(b"\xff\xfe")
    assert f"[roles.coder] prompt_file = {path!r}" in refused(folder, f"[roles.coder]\nprompt_file = '{path}'")


# The page about it.

PAGE = (Path(__file__).parents[2] / "docs" / "configuration.md").read_text()


def test_the_examples_of_the_page_can_be_read(folder: Path) -> None:
    ours, models, review, users, *_ = re.findall(r"^```toml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    found = project(folder, ours)
    assert (found.team_limits.agents_max, [member.name for member in found.members]) == (5, ["alice", "bob"])
    assert project(folder, models).roles["reviewer"].model == "openai:gpt-5.5-mini"
    assert getattr(project(folder, review).review, "from_lines", None) == 20
    (folder / "dugnad").mkdir()
    (folder / "dugnad" / "config.toml").write_text(users)
    assert len(user.read_user({"XDG_CONFIG_HOME": str(folder)}).models) == 2


def test_the_page_lists_every_limit_with_its_default() -> None:
    listed = dict(re.findall(r"^\| `(\w+)` \| ([\d.]+) \|", PAGE, re.MULTILINE))
    meant = {each.name: f"{each.default:g}" if isinstance(each.default, float) else str(each.default)
             for kind in (Limits, AgentLimits, TeamLimits) for each in fields(kind)}  # fmt: skip
    meant["agents"] = meant.pop("agents_max")
    assert listed == meant
