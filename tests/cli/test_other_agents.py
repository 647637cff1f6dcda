"""`dugnad run` with somebody else's agent, as a person sets it up: a table in the own file, and --model."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.agent.standin import asked, block, script, stand_in
from tests.cli.shell import Shell


@pytest.fixture
def shell(folder: Path, tree: Path, monkeypatch: pytest.MonkeyPatch) -> Shell:
    """In a project, with claude and codex installed in a folder of the user's, and an empty table for claude."""
    for name in ("claude", "codex"):
        stand_in(folder, name)
    (folder / "dugnad").mkdir()
    (folder / "dugnad" / "config.toml").write_text("[commands.claude]\n")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder))
    monkeypatch.setenv("PATH", f"{folder / 'programs'}:/usr/local/bin:/usr/bin:/bin", prepend=None)
    monkeypatch.setenv("ANTHROPIC_API_KEY", "the-key")
    monkeypatch.chdir(tree)
    return Shell(f"sqlite:///{folder}/board.db")


def test_an_empty_table_and_a_goal_are_enough(shell: Shell, tree: Path) -> None:
    script(tree, {"say": block(result="built", follow_ups=[{"title": "Look it over"}])}, {"say": "It is good."})
    ran = shell(
        "run", "Build it", "--in-place", "--model", "command:claude", "--agents", "1", "--dollars", "2", "--json"
    )
    assert ran.exit_code == 0, ran.output
    first, second = asked(tree)
    assert first["environment"]["ANTHROPIC_API_KEY"] == "the-key"
    assert first["argv"][-2:] == ["--max-budget-usd", "2.000000"]
    assert "Look it over" in second["prompt"]
    said = shell.says("show", "1", "--transcript")
    assert "command:claude started" in said
    assert "add_task returned" in said


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--model", "command:codex"), "your config.toml has no [commands.codex]; there is claude."),
        (("--model", "command:claud"), "did you mean 'claude'?"),
    ],
)
def test_a_command_that_is_not_set_up_is_a_sentence(shell: Shell, words: tuple[str, ...], says: str) -> None:
    assert says in shell.fails(1, "run", "Build it", "--in-place", *words)


def test_the_doctor_says_whether_it_is_there(shell: Shell, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DUGNAD_MODEL", "command:claude")
    assert "it reports dollars and tokens" in shell("doctor").output
    (folder / "programs" / "claude").unlink()
    assert "There is no program" in shell("doctor").output


def test_the_policy_of_the_user_holds_for_what_it_asks_for(shell: Shell, folder: Path, tree: Path) -> None:
    (folder / "dugnad" / "config.toml").write_text('[commands.claude]\n[policies]\nadd_task = "deny"\n')
    script(tree, {"say": block(result="built", follow_ups=[{"title": "More"}])}, {"say": "Without it."})
    ran = shell("run", "Build it", "--in-place", "--model", "command:claude", "--agents", "1", "--json")
    assert ran.exit_code == 0, ran.output
    assert "add_task is denied by the policy" in asked(tree)[1]["prompt"]
    assert "More" not in shell.says("tasks")


@pytest.mark.parametrize("tool", ["bash", "write_file", "read_file"])
def test_a_policy_that_cannot_be_held_for_it_is_refused(
    shell: Shell, folder: Path, tree: Path, tool: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DUGNAD_MODEL", "command:claude")
    (folder / "dugnad" / "config.toml").write_text(f'[commands.claude]\n[policies]\n{tool} = "deny"\n')
    script(tree, {"say": "built"})
    ran = shell("run", "Build it", "--in-place", "--model", "command:claude", "--agents", "1")
    assert f"{tool} = 'deny'" in " ".join(ran.output.split())
    assert ran.exit_code != 0
    assert not asked(tree)
    assert f"cannot be enforced: {tool}." in " ".join(shell("doctor").output.split())
