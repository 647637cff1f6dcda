"""How a remote is reached: what can be one, with which programs and settings, and what never has a say in it."""

from __future__ import annotations

import base64
import os
from pathlib import Path

import pytest

from dugnad.workspace.git.merge_queue import Merged
from dugnad.workspace.git.ownership import GitTrouble
from dugnad.workspace.git.remote import RemoteAway, open_remote
from tests.strangers import give_away
from tests.workspace.remotes import bare, begun, http_server, machines, new_certificate, sharing, ssh_script
from tests.workspace.repository import finish, git, new_repository, subjects, trees_of


@pytest.mark.parametrize(
    ("named", "why"),
    [
        ("", "name a bare repository's folder"),
        ("ext::sh -c touch% x", "name a bare repository's folder"),
        ("fd::7", "name a bare repository's folder"),
        ("--upload-pack=touch x", "name a bare repository's folder"),
        ("host:path\nmore", "name a bare repository's folder"),
        ("git://host/path", "only folders, ssh and https are used"),
        ("http://example.org/path", "only folders, ssh and https are used"),
        ("file:///tmp", "only folders, ssh and https are used"),
        ("https://", "only folders, ssh and https are used"),
        ("https://[/x", "only folders, ssh and https are used"),
        ("https://me:secret@example.org/path", "holds a password"),
        ("/nowhere/at/all.git", "is not a bare repository"),
    ],
)
async def test_what_cannot_be_a_remote_is_refused_in_a_sentence(named: str, why: str, tmp_path: Path) -> None:
    trees = await trees_of(new_repository(tmp_path / "p"))
    with pytest.raises(GitTrouble, match=why) as refused:
        await open_remote(named, trees.git, os.environ)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("named", "protocol"),
    [
        ("git@example.org:me/site.git", "ssh"), ("example.org:site", "ssh"), ("ssh://git@example.org:2222/site", "ssh"),
        ("https://example.org/site.git", "https"), ("https://me@example.org/site.git", "https"),
        ("http://localhost:8080/site.git", "http"),
    ],
)  # fmt: skip
async def test_addresses_are_reached_by_their_own_protocol_alone(named: str, protocol: str, tmp_path: Path) -> None:
    trees = await trees_of(new_repository(tmp_path / "p"))
    found = await open_remote(named, trees.git, os.environ)
    assert (found.url, found.protocol, found.environment["GIT_ALLOW_PROTOCOL"]) == (named, protocol, protocol)


async def test_a_folder_with_a_checkout_or_inside_the_project_is_no_remote(tmp_path: Path) -> None:
    trees = await trees_of(new_repository(tmp_path / "p"))
    new_repository(tmp_path / "other")
    bare(tmp_path / "p" / "inside.git")
    for named, why in (
        (tmp_path / "other", "has a checkout"), (tmp_path / "other" / ".git", "has a checkout"),
        (tmp_path / "p" / "inside.git", "is in the project itself"), (tmp_path / "p" / ".git", "has a checkout"),
    ):  # fmt: skip
        with pytest.raises(GitTrouble, match=why):
            await open_remote(str(named), trees.git, os.environ)


@pytest.mark.parametrize("part", [".", "config", "hooks", "objects"])
async def test_a_folder_of_another_user_is_no_remote_and_does_not_become_one(
    part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    remote, (root,) = machines(tmp_path, 1)
    trees = await sharing(root, remote)
    with monkeypatch.context() as patch:
        give_away(remote / part, patch)
        with pytest.raises(GitTrouble, match="belongs to"):
            await open_remote(str(remote), trees.git, os.environ)
        with pytest.raises(GitTrouble, match="belongs to"):  # Given away while the team runs.
            await trees.bring()


async def test_ssh_is_the_users_own_and_never_the_repositorys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    remote, (root,) = machines(tmp_path, 1)
    evil = tmp_path / "evil"
    evil.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\nexit 1\n")
    evil.chmod(0o755)
    for name in ("core.sshCommand", "core.gitProxy", "credential.helper", "core.askPass"):
        git(root, "config", name, str(evil))
    git(root, "config", f"url.ext::{evil}.insteadOf", "here:")
    (root / "ssh").write_text(evil.read_text())
    (root / "ssh").chmod(0o755)
    script = ssh_script(tmp_path)["GIT_SSH_COMMAND"]
    home = tmp_path / "home"
    home.mkdir()
    # In the user's own settings, as a file that is included; a filter beside it is not taken over.
    (home / ".gitconfig").write_text(f"[include]\n\tpath = more\n[core]\n\tfsmonitor = {evil}\n")
    (home / "more").write_text(f"[core]\n\tsshCommand = {script}\n")
    clean = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    trees = await sharing(root, f"here:{remote}", {**clean, "HOME": str(home), "PATH": f"{root}:{os.environ['PATH']}"})
    tree = await begun(trees, 1)
    (tree.path / "a.py").write_text("a\n")
    assert isinstance(await finish(trees, tree), Merged)
    assert subjects(remote) == ["Some work", "Begin"]
    assert not (tmp_path / "ran").exists()
    assert trees.shared is not None
    passed = trees.shared.remote.environment
    assert not [name for name in passed if "fsmonitor" in passed[name]]
    assert str(root) not in passed["PATH"].split(":")


async def test_without_settings_the_systems_ssh_is_used_and_asks_nobody(tmp_path: Path) -> None:
    trees = await trees_of(new_repository(tmp_path / "p"))
    clean = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    fake = tmp_path / "bin" / "ssh"
    fake.parent.mkdir()
    fake.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/words\nexit 255\n')
    fake.chmod(0o755)
    given = {
        **clean,
        "HOME": str(tmp_path),
        "PATH": f"{fake.parent}:{os.environ['PATH']}",
        "TOKEN": "x",
        "GIT_TRACE": "1",
    }
    found = await open_remote("me@here:site.git", trees.git, given)
    with pytest.raises(RemoteAway):
        await found.at_once(60).look(trees.git, "refs/heads/main")
    words = (tmp_path / "words").read_text()
    assert words.startswith("-oBatchMode=yes -oConnectTimeout=20")
    assert "GIT_TRACE" not in found.environment
    assert found.environment["GIT_TERMINAL_PROMPT"] == "0"


async def test_over_http_the_users_credential_helper_is_asked(tmp_path: Path) -> None:
    remote, (root,) = machines(tmp_path, 1)
    git(remote, "config", "http.receivepack", "true")
    home = tmp_path / "home"
    home.mkdir()
    helper = f'!f() {{ echo "$1" >> {tmp_path}/asked; echo username=me; echo password=word; }}; f'
    git(tmp_path, "config", "--file", str(home / ".gitconfig"), "credential.helper", helper)
    key = "Basic " + base64.b64encode(b"me:word").decode()
    given = {**os.environ, "HOME": str(home)}
    with http_server(tmp_path, authorized=key) as address:
        trees = await sharing(root, f"{address}/remote.git", given)
        tree = await begun(trees, 1)
        (tree.path / "a.py").write_text("a\n")
        assert isinstance(await finish(trees, tree), Merged)
        assert subjects(remote) == ["Some work", "Begin"]
        assert "get" in (tmp_path / "asked").read_text().split()
        nobody = await open_remote(f"{address}/remote.git", trees.git, {**os.environ, "HOME": "/nonexistent"})
        with pytest.raises(GitTrouble, match="cannot be used as the remote") as refused:
            await nobody.look(trees.git, "refs/heads/main")
        assert not isinstance(refused.value, RemoteAway)
    with pytest.raises(RemoteAway):  # The server is gone.
        await nobody.at_once(60).look(trees.git, "refs/heads/main")


async def test_over_https_only_a_certificate_that_the_user_trusts_is_taken(tmp_path: Path) -> None:
    remote, (root,) = machines(tmp_path, 1)
    git(remote, "config", "http.receivepack", "true")
    certificate, home = new_certificate(tmp_path / "server.pem"), tmp_path / "home"
    home.mkdir()
    git(tmp_path, "config", "--file", str(home / ".gitconfig"), "http.sslCAInfo", str(certificate))
    with http_server(tmp_path, certificate=certificate) as address:
        assert address.startswith("https://")
        trees = await sharing(root, f"{address}/remote.git", {**os.environ, "HOME": str(home)})
        tree = await begun(trees, 1)
        (tree.path / "a.py").write_text("a\n")
        assert isinstance(await finish(trees, tree), Merged)
        assert subjects(remote) == ["Some work", "Begin"]
        stranger = await open_remote(f"{address}/remote.git", trees.git, {**os.environ, "HOME": "/nonexistent"})
        with pytest.raises(GitTrouble, match=r"cannot be used as the remote: .*certificate") as refused:
            await stranger.at_once(60).look(trees.git, "refs/heads/main")
        assert not isinstance(refused.value, RemoteAway)
