"""`dugnad mcp install` adds the server to a client's configuration, and never touches anything else in it."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from dugnad.errors import BadInput
from dugnad.mcp.install import ClientChange, change_for
from tests.cli.shell import run

COMMAND = ("dugnad", "mcp")


def change(client: str, folder: Path, **environment: str) -> ClientChange:
    return change_for(client, command=COMMAND, project=folder, environment={"HOME": str(folder), **environment})


@pytest.mark.parametrize("client", ["claude", "codex", "opencode"])
def test_a_new_file_has_the_server_and_a_second_time_changes_nothing(client: str, folder: Path) -> None:
    first = change(client, folder)
    assert not first.is_there
    first.write()
    again = change(client, folder)
    assert again.is_there
    assert again.after == first.after


def test_each_file_says_what_its_client_reads(folder: Path) -> None:
    for client in ("claude", "codex", "opencode"):
        change(client, folder).write()
    claude = json.loads((folder / ".mcp.json").read_text())
    assert claude == {"mcpServers": {"dugnad": {"command": "dugnad", "args": ["mcp"]}}}
    opencode = json.loads((folder / "opencode.json").read_text())
    assert opencode["mcp"]["dugnad"] == {"type": "local", "command": ["dugnad", "mcp"], "enabled": True}
    codex = tomllib.loads((folder / ".codex" / "config.toml").read_text())
    passed = ["DUGNAD_BOARD", "XDG_CONFIG_HOME", "XDG_STATE_HOME"]  # By name: an address may hold a password.
    assert codex == {"mcp_servers": {"dugnad": {"command": "dugnad", "args": ["mcp"], "env_vars": passed}}}


def test_what_is_in_a_json_file_stays(folder: Path) -> None:
    before = {"other": [1, 2.5, None, "ä\u2028"], "mcpServers": {"github": {"command": "gh"}}, "z": {"a": True}}
    (folder / ".mcp.json").write_text(json.dumps(before))
    (folder / ".mcp.json").chmod(0o640)
    change("claude", folder).write()
    after = json.loads((folder / ".mcp.json").read_text())
    assert after["mcpServers"].pop("dugnad")
    assert after == before
    assert list(after) == list(before)
    assert (folder / ".mcp.json").stat().st_mode & 0o777 == 0o640


def test_what_is_in_a_toml_file_stays_to_the_letter(folder: Path) -> None:
    before = '# My settings\nmodel = "x"  # the best\n\n[mcp_servers.github]\ncommand = "gh"\n[profiles.a]\nb = 1'
    (folder / ".codex").mkdir()
    (folder / ".codex" / "config.toml").write_text(before)
    made = change("codex", folder, DUGNAD_BOARD="postgresql://me:s3cret@h/d")
    assert made.after.startswith(before)
    made.write()
    found = tomllib.loads((folder / ".codex" / "config.toml").read_text())["mcp_servers"]["dugnad"]
    assert "DUGNAD_BOARD" in found["env_vars"]
    assert "s3cret" not in made.after


@pytest.mark.parametrize(
    ("name", "content", "client"),
    [
        (".mcp.json", "{ // a comment\n}", "claude"),
        (".mcp.json", "[]", "claude"),
        (".mcp.json", '{"mcpServers": 7}', "claude"),
        (".mcp.json", '{"a": 1, "a": 2}', "claude"),
        (".mcp.json", '{"mcpServers": {"dugnad": {"command": "x"}}}', "claude"),
        (".codex/config.toml", "mcp_servers = {}", "codex"),
        (".codex/config.toml", "= broken", "codex"),
        (".codex/config.toml", "mcp_servers = 7", "codex"),
        (".codex/config.toml", '[mcp_servers.dugnad]\ncommand = "x"', "codex"),
        ("opencode.json", '{"mcp": []}', "opencode"),
        (".mcp.json", "\udcff", "claude"),
    ],
)
def test_a_file_that_cannot_be_added_to_is_left_alone(folder: Path, name: str, content: str, client: str) -> None:
    file = folder / name
    file.parent.mkdir(exist_ok=True)
    file.write_text(content, errors="surrogateescape")
    before = file.read_bytes()
    with pytest.raises(BadInput, match="left alone"):
        change(client, folder)
    assert file.read_bytes() == before


def test_it_asks_first_and_without_a_terminal_needs_yes(folder: Path) -> None:
    refused = run("mcp", "install", "claude", folder=folder)
    assert refused.returncode == 2
    assert "--yes" in refused.stderr
    assert '"mcpServers"' in refused.stderr
    assert not (folder / ".mcp.json").exists()
    done = run("mcp", "install", "claude", "--yes", folder=folder)
    assert done.returncode == 0
    again = run("mcp", "install", "claude", "--yes", folder=folder)
    assert "already" in again.stdout


def test_tokens_are_made_listed_and_revoked(folder: Path) -> None:
    assert run("add", "x", folder=folder).returncode == 0
    assert "Nobody has a token" in run("mcp", "token", folder=folder).stdout
    made = run("mcp", "token", "ada", "--roles", "coder", folder=folder)
    assert made.stdout.startswith("Authorization: Bearer dugnad_")
    assert run("mcp", "token", folder=folder).stdout.split() == ["ada", "coder"]
    assert run("mcp", "token", "human", folder=folder).returncode == 2
    assert run("mcp", "token", "--revoke", folder=folder).returncode == 2
    assert "no longer works" in run("mcp", "token", "ada", "--revoke", folder=folder).stdout
    assert "has no token" in run("mcp", "token", "ada", "--revoke", folder=folder).stdout
