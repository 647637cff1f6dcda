"""Other people's agents in the user's file: presets, keys that are in no file, and what is wrong said in a sentence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dugnad.agent import ExternalCommand
from dugnad.config.project import read_project
from dugnad.config.user import UserSettings, open_named_model, read_user
from dugnad.errors import BadInput, ModelMisconfigured


def user_of(folder: Path, content: str, **environment: str) -> UserSettings:
    path = folder / "dugnad" / "config.toml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(content)
    return read_user({"XDG_CONFIG_HOME": str(folder), "HOME": str(folder), "PATH": "/usr/bin", **environment})


def opened(folder: Path, content: str, name: str = "command:claude", **environment: str) -> ExternalCommand:
    found: Any = open_named_model(name, user_of(folder, content, **environment))
    assert isinstance(found, ExternalCommand)
    return found


def test_an_empty_table_is_enough_for_the_known_ones(folder: Path) -> None:
    claude = opened(folder, "[commands.claude]\n", ANTHROPIC_API_KEY="k")
    assert claude.run[:4] == ("claude", "-p", "--output-format", "json")
    assert (claude.reads, claude.hosts, claude.dollars_option) == (
        "claude-json", ("api.anthropic.com",), "--max-budget-usd",
    )  # fmt: skip
    assert claude.environment["ANTHROPIC_API_KEY"] == "k"
    assert "CLAUDE_CODE_OAUTH_TOKEN" not in claude.environment
    codex = opened(folder, "[commands.codex]\n", "command:codex")
    assert codex.run[:3] == ("codex", "exec", "--json")
    assert codex.run[-1] == "-"
    assert (codex.reads, dict(codex.environment)) == ("codex-jsonl", {})


def test_what_the_user_says_stands_over_the_preset(folder: Path) -> None:
    content = """
    [commands.claude]
    run = ["claude", "-p", "--model", "opus", "--output-format", "json"]
    environment = { MODE = "quiet", ANTHROPIC_API_KEY = "env:OTHER" }
    hosts = ["gateway.example.org"]
    readable = ["~/.local/share/claude", "/opt/claude"]
    seconds = 60
    dollars_per_run = 0.5
    tokens_per_run = 1000
    runs_max = 2
    """
    found = opened(folder, content, OTHER="o", ANTHROPIC_API_KEY="k")
    assert found.run[3] == "opus"
    assert found.environment["ANTHROPIC_API_KEY"] == "o"
    assert found.environment["MODE"] == "quiet"
    assert found.environment["IS_SANDBOX"] == "1"
    assert found.readable == (folder / ".local/share/claude", Path("/opt/claude"))
    assert (found.seconds, found.dollars_per_run, found.tokens_per_run, found.runs_max) == (60.0, 0.5, 1000, 2)


def test_a_key_is_not_shown_where_settings_are(folder: Path) -> None:
    user = user_of(folder, "[commands.claude]\n", ANTHROPIC_API_KEY="sk-secret")
    assert "sk-secret" not in repr(user)


def test_a_program_outside_the_system_is_shown_to_the_sandbox_by_itself(folder: Path) -> None:
    programs = folder / "bin"
    programs.mkdir()
    (programs / "mine").write_text("#!/bin/sh\n")
    (programs / "mine").chmod(0o755)
    found = opened(folder, '[commands.mine]\nrun = ["mine", "-x"]\n', "command:mine", PATH=f"{programs}:/usr/bin")
    assert (found.run, found.readable) == ((str(programs / "mine"), "-x"), (programs / "mine",))


def test_a_program_of_npm_comes_with_its_packages_and_what_runs_them(folder: Path) -> None:
    package = folder / "node/lib/node_modules/@x/agent"
    package.mkdir(parents=True)
    (package / "cli.js").write_text("#!/usr/bin/env node\n")
    (package / "cli.js").chmod(0o755)
    (folder / "node/bin").mkdir()
    (folder / "node/bin/mine").symlink_to(package / "cli.js")
    found = opened(folder, '[commands.mine]\nrun = ["mine"]\n', "command:mine", PATH=str(folder / "node/bin"))
    assert found.run == (str(package / "cli.js"),)
    assert found.readable == (folder / "node/lib/node_modules", folder / "node/bin")
    assert found.environment["PATH"].startswith(f"{folder}/node/bin:")


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("[commands.mine]\n", r"\[commands.mine\] does not say what to run"),
        ("[commands.Claude]\n", "short name of small letters"),
        ('[commands.claude]\nrun = "claude -p"\n', "a list of words"),
        ("[commands.claude]\nrun = []\n", "a list of words"),
        ('[commands.claude]\nreads = "json"\n', "one of claude-json, codex-jsonl, text"),
        ('[commands.claude]\nenvironment = { API_KEY = "sk-123" }\n', '"env:API_KEY"; no file holds keys'),
        ('[commands.claude]\napi_key = "sk-123"\n', "a secret is in no file"),
        ('[commands.claude]\nreadable = ["~"]\n', "must name folders"),
        ('[commands.claude]\nreadable = ["local"]\n', "must name folders"),
        ('[commands.claude]\nhosts = ["127.0.0.1"]\n', "127.0.0.1"),
        ("[commands.claude]\nseconds = 0\n", "above 0"),
        ("[commands.claude]\nsecond = 5\n", "did you mean 'seconds'"),
    ],
)
def test_what_is_wrong_is_said_in_a_sentence(folder: Path, content: str, says: str) -> None:
    with pytest.raises(BadInput, match=says) as wrong:
        user_of(folder, content)
    assert "sk-123" not in str(wrong.value)


def test_a_command_the_user_does_not_have_is_refused(folder: Path) -> None:
    with pytest.raises(ModelMisconfigured, match=r"no \[commands.claude\]; add the table"):
        opened(folder, "")
    with pytest.raises(ModelMisconfigured, match="did you mean 'claude'"):
        opened(folder, "[commands.claude]\n", "command:claud")


def test_a_variable_that_must_be_there_and_is_not_is_named(folder: Path) -> None:
    content = '[commands.claude]\nenvironment = { ANTHROPIC_API_KEY = "env:WORK_KEY" }\n'
    with pytest.raises(ModelMisconfigured, match="is to be given WORK_KEY, which is not set"):
        opened(folder, content)


def test_a_project_chooses_one_by_name_and_can_say_nothing_else_of_it(folder: Path) -> None:
    (folder / "dugnad.toml").write_text('[roles.coder]\nmodel = "command:claude"\n')
    assert read_project(folder, environment={}).roles["coder"].model == "command:claude"
    (folder / "dugnad.toml").write_text('[commands.claude]\nrun = ["evil"]\n')
    with pytest.raises(BadInput, match="no key 'commands'"):
        read_project(folder, environment={})
