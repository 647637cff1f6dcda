"""The remote of a run: typed, or in the user's own configuration, and never from the project."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from dugnad.cli.checks import Scene, remote
from dugnad.config.user import read_user
from dugnad.errors import BadInput
from tests.cli.shell import environment, run
from tests.workspace.remotes import machines, names_at, ssh_script
from tests.workspace.repository import git, subjects

SCRIPT = """
"*":
  - calls: [{{write_file: {{path: {name}, text: "x"}}}}]
  - calls: [{{finish: {{result: "Written."}}}}]
"""


def configured(folder: Path, text: str) -> dict[str, str]:
    file = folder / "home" / ".config" / "dugnad" / "config.toml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    file.chmod(0o600)
    return environment(HOME=str(folder / "home"), DUGNAD_BOARD=f"sqlite:///{folder}/board.db")


def work(clone: Path, name: str, given: dict[str, str], *options: str) -> dict[str, object]:
    (clone.parent / f"{name}.yaml").write_text(SCRIPT.format(name=name))
    model = f"scripted:{clone.parent / f'{name}.yaml'}"
    words = ("run", f"Write {name}", "--agents", "1", "--model", model, "--json", *options)
    said = run(*words, folder=clone, **given)
    assert said.returncode == 0, said
    return dict(json.loads(said.stdout))


def test_two_clones_share_what_their_runs_merged(folder: Path) -> None:
    """The one has the remote from the command line, the other from the user's configuration."""
    bare, (here, there) = machines(folder)
    given = configured(folder, f'[remotes]\n"{there}" = "{bare}"\n')
    work(here, "a.txt", given, "--remote", str(bare))
    report = work(there, "b.txt", given)
    assert subjects(bare) == ["Write b.txt", "Write a.txt", "Begin"]
    assert report["deliveries"]["commits"] == 2  # type: ignore[index]
    assert names_at(bare) == ["refs/heads/dugnad/main", "refs/heads/main"]
    assert git(there, "ls-tree", "--name-only", "dugnad/main").split() == ["README.md", "a.txt", "b.txt"]


def test_a_remote_that_cannot_be_one_ends_the_run_before_it_begins(folder: Path) -> None:
    _, (here,) = machines(folder, 1)
    words = ("run", "Write a", "--model", "scripted", "--remote", "ext::sh")
    said = run(*words, folder=here, **configured(folder, ""))
    assert said.returncode == 2
    assert "'ext::sh' cannot be the remote" in said.stderr


def a_run_says(clone: Path, remote: str, given: dict[str, str]) -> tuple[int, str]:
    said = run("run", "Write a", "--model", "scripted", "--remote", remote, folder=clone, **given)
    return said.returncode, said.stderr.strip()


def test_a_folder_that_is_no_bare_repository_is_told_with_the_command_that_makes_one(folder: Path) -> None:
    _, (here, checkout) = machines(folder)
    empty, given = folder / "empty", configured(folder, "")
    empty.mkdir()
    for where in (folder / "none", empty):
        code, says = a_run_says(here, str(where), given)
        assert code == 2
        assert says.startswith(f"dugnad: {where} is not a bare repository; `git init --bare {where}` makes one.")
    for where in (checkout, checkout / ".git"):  # A bare repository in it would only be in the way.
        code, says = a_run_says(here, str(where), given)
        assert code == 2
        assert says.startswith(f"dugnad: {where} has a checkout; `git clone --bare {where} NAME.git` makes a bare one.")


def test_a_password_in_the_address_is_refused_and_not_repeated(folder: Path) -> None:
    _, (here,) = machines(folder, 1)
    code, says = a_run_says(here, "https://me:hunter2@127.0.0.1:1/p.git", configured(folder, ""))
    assert code == 2
    assert says.startswith("dugnad: The remote's address holds a password; keep it in git's credential helper instead.")
    assert "hunter2" not in says


def test_a_host_that_nobody_knows_ends_the_run_soon_and_a_later_start_may_succeed(folder: Path) -> None:
    _, (here,) = machines(folder, 1)
    unknown = "ssh: Could not resolve hostname nowhere: Name or service not known"
    ssh = ssh_script(folder, before=f"echo '{unknown}' >&2; exit 255")["GIT_SSH_COMMAND"]
    code, says = a_run_says(here, "me@nowhere:p.git", {**configured(folder, ""), "GIT_SSH_COMMAND": ssh})
    assert code == 1  # Not 2, after which a supervisor would not start it again.
    assert says.splitlines()[-1].startswith(f"dugnad: me@nowhere:p.git cannot be reached: {unknown}")
    assert says.endswith("Check the address and the network, then start again.")


def test_a_project_cannot_name_a_remote(folder: Path) -> None:
    bare, (here,) = machines(folder, 1)
    (here / "dugnad.toml").write_text(f'remote = "{bare}"\n')
    said = run("tasks", folder=here, **configured(folder, ""))
    assert said.returncode == 2
    assert "'remote'" in said.stderr


def test_the_users_file_names_a_remote_for_a_folder(folder: Path) -> None:
    given = configured(folder, '[remotes]\n"~/p" = "git@example.org:p"\n')
    user = read_user(given)
    assert user.remote_of(Path.home() / "p") == "git@example.org:p"
    assert user.remote_of(folder) is None
    with pytest.raises(BadInput, match="must be a project's folder"):
        read_user(configured(folder, '[remotes]\np = "git@example.org:p"\n'))


async def test_the_doctor_says_whether_the_remote_can_be_reached(folder: Path) -> None:
    bare, (here,) = machines(folder, 1)
    given = {**configured(folder, f'[remotes]\n"{here}" = "{bare}"\n'), "PATH": os.environ["PATH"]}
    scene = Scene(start=here, environment=given, user=read_user(given))
    found = await remote(scene)
    assert found is not None
    assert (found.level, found.says) == ("ok", f"{bare} can be reached; it has 1 branch.")
    bare.rename(folder / "away.git")
    gone = await remote(scene)
    assert gone is not None
    assert (gone.level, "is not a bare repository" in gone.says) == ("wrong", True)
    scene.user = read_user(configured(folder, ""))
    assert await remote(scene) is None
