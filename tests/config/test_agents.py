"""Other people's agents in the user's file: presets, keys that are in no file, and what is wrong said in a sentence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dugnad.agent.external.command import AcpCommand, ExternalCommand
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
    opencode = opened(folder, "[commands.opencode]\n", "command:opencode", ANTHROPIC_API_KEY="k")
    assert opencode.run[:2] == ("opencode", "run")
    assert (opencode.reads, opencode.reports_dollars) == ("opencode-jsonl", True)
    assert opencode.environment["OPENCODE_DISABLE_PROJECT_CONFIG"] == "1"


def test_what_the_user_says_stands_over_the_preset(folder: Path) -> None:
    content = """
    [commands.claude]
    run = ["claude", "-p", "--model", "opus", "--output-format", "json"]
    environment = { MODE = "quiet", ANTHROPIC_API_KEY = "env:OTHER" }
    hosts = ["gateway.example.org"]
    services = ["localhost:4000", "[::1]:8080"]
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
    assert found.services == ("localhost:4000", "[::1]:8080")
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
        ('[commands.claude]\nreads = "json"\n', "one of claude-json, codex-jsonl, opencode-jsonl, text"),
        ('[commands.claude]\nenvironment = { API_KEY = "sk-123" }\n', '"env:API_KEY"; no file holds keys'),
        ('[commands.claude]\napi_key = "sk-123"\n', "a secret is in no file"),
        ('[commands.claude]\nreadable = ["~"]\n', "must name folders"),
        ('[commands.claude]\nreadable = ["local"]\n', "must name folders"),
        ('[commands.claude]\nhosts = ["127.0.0.1"]\n', "127.0.0.1"),
        (
            '[commands.claude]\nservices = ["localhost"]\n',
            r"claude\] services: 'localhost' is not a service; write one",
        ),
        ('[commands.claude]\nservices = ["*:4000"]\n', r"\*:4000' is not a service"),
        ('[commands.claude]\nservices = ["http://localhost:4000"]\n', "is not a service"),
        ("[commands.claude]\nservices = [4000]\n", r"\[commands.claude\] services must be text"),
        (f"[commands.claude]\nservices = {[f'localhost:{n}' for n in range(1, 18)]}\n", "name at most 16"),
        ('services = ["localhost:4000"]\n', "the top level has no key 'services'"),
        ('[sandbox]\nservices = ["localhost:4000"]\n', r"\[sandbox\] has no key 'services'"),
        ("[commands.claude]\nseconds = 0\n", "above 0"),
        ("[commands.claude]\nsilence_seconds = 9\n", "no key 'silence_seconds'"),
        ("[acp.mine]\n", r"\[acp.mine\] does not say what to run; only opencode, claude, codex, gemini need not"),
        ('[acp.opencode]\nreads = "text"\n', r"\[acp.opencode\] has no key 'reads'"),
        ("[acp.opencode]\nstart_seconds = 9999\n", "up to 3600"),
        ("[acp.opencode]\noptions = { model = 7 }\n", r"\[acp.opencode.options\] model must be text"),
        ('[acp.codex]\nenvironment = { API_KEY = "sk-123" }\n', '"env:API_KEY"; no file holds keys'),
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


def test_the_example_of_services_can_be_read(folder: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "configuration.md").read_text().split("## Services of your own")[1]
    user = user_of(folder, page.split("```toml\n")[1].split("```")[0], GATEWAY_KEY="sk-1")
    claude, (tickets,) = user.commands["claude"], user.servers
    assert (claude.services, claude.hosts, claude.environment["ANTHROPIC_AUTH_TOKEN"]) == (
        ("localhost:4000",),
        (),
        "sk-1",
    )
    assert tickets.services == ("10.1.2.3:8080", "tickets.corp:443", "[::1]:5432")


def test_an_agent_of_the_protocol_is_set_up_like_a_command_and_chosen_as_acp(folder: Path) -> None:
    content = """
    [acp.opencode]
    services = ["localhost:4000"]
    options = { model = "anthropic/claude-sonnet-5" }
    silence_seconds = 300
    environment = { MY_KEY = "env:MY_KEY" }
    """
    found = opened(folder, content, "acp:opencode", MY_KEY="k")
    assert isinstance(found, AcpCommand)
    assert (found.name, found.run, found.services) == ("acp:opencode", ("opencode", "acp"), ("localhost:4000",))
    assert (found.silence_seconds, found.options) == (300, {"model": "anthropic/claude-sonnet-5"})
    assert (found.environment["MY_KEY"], found.environment["OPENCODE_DISABLE_PROJECT_CONFIG"]) == ("k", "1")
    assert (found.reports_dollars, found.counts_tokens, found.login) == (True, False, "")
    assert opened(folder, "[acp.codex]\n", "acp:codex").login == "api-key"  # type: ignore[attr-defined]


def test_what_an_agent_reports_can_be_set(folder: Path) -> None:
    content = '[acp.mine]\nrun = ["mine"]\nreports_dollars = true\nreports_tokens = false\n'
    found = opened(folder, content, "acp:mine")
    assert isinstance(found, AcpCommand)
    assert (found.reports_dollars, found.counts_tokens) == (True, False)


def test_an_agent_of_the_protocol_that_is_not_set_up_is_named_with_what_to_add(folder: Path) -> None:
    hint = r"no \[acp.opencode\]; add the table, and it may be empty for opencode and claude and codex and gemini"
    with pytest.raises(ModelMisconfigured, match=hint):
        opened(folder, "[commands.opencode]\nrun = ['x']\n", "acp:opencode")


def test_no_project_brings_an_agent_of_the_protocol(folder: Path) -> None:
    (folder / "dugnad.toml").write_text('[acp.opencode]\nrun = ["evil"]\n')
    with pytest.raises(BadInput, match="no key 'acp'"):
        read_project(folder, environment={})


def test_a_policy_for_a_kind_of_tool_that_no_agent_has_is_refused(folder: Path) -> None:
    assert user_of(folder, '[policies]\nacp__execute = "ask"\n').policies.keys == {"acp__execute"}
    with pytest.raises(BadInput, match="'acp__exec', and no tool has that name; did you mean 'acp__execute'"):
        user_of(folder, '[policies]\nacp__exec = "deny"\n')


def test_the_agents_of_the_page_are_read_as_it_says(folder: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "configuration.md").read_text()
    (shown,) = (each for each in page.split("```toml\n")[1:] if each.startswith("[acp."))
    found = user_of(folder, shown.split("```")[0], MY_KEY="k").acp
    assert list(found) == ["opencode", "claude", "codex", "mine"]
    assert found["mine"].silence_seconds == 300
