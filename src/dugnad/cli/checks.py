"""The checks of `dugnad doctor` on the machine, the files and the model.

A check is a function of the scene that returns a finding, or None if it does not apply. Later checks use what earlier
ones read or opened.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit
from urllib.request import proxy_bypass

from ..agent.external.command import PREFIXES, ExternalCommand
from ..board import Board
from ..clock import wall_ms
from ..config.project import FILE, Project, read_project
from ..config.reader import user_file
from ..config.user import UserSettings, open_named_model, read_user
from ..errors import ModelTrouble, ToolError
from ..models import Model
from ..models.open import default_model
from ..models.port import Request, Said
from ..prompts import tell
from ..safe_open import OWN, user_state
from ..settings import AgentLimits
from ..team.plan import RunPlan
from ..team.team import opened
from ..text import one_line, shorten
from ..tools.built_in import OF_A_TREE
from ..types import Task
from ..workspace.git.git import Git
from ..workspace.git.remote import open_remote
from ..workspace.programs import find_program
from ..workspace.sandbox.sandbox import probe
from ..workspace.sandbox.services import Service, parse_services
from .preflight import Interrupted, memory_of, preflight
from .tracked import refuse_tracked
from .workspaces import Wishes, is_no_project, workplaces

Level = Literal["ok", "warning", "wrong"]
_REMOTE_SECONDS = 30.0
_LOCAL = ("localhost", "127.0.0.1", "::1")
_ANSWER_SECONDS = 10.0
_PROXIES = ("HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY")


@dataclass(frozen=True, slots=True)
class Finding:
    name: str  # The doctor's name for the check.
    level: Level
    says: str
    mend: str = ""  # What to do, as a command where there is one.


def ok(says: str) -> Finding:
    return Finding("", "ok", says)


def warning(says: str, mend: str = "") -> Finding:
    return Finding("", "warning", says, mend)


def wrong(says: str, mend: str = "") -> Finding:
    return Finding("", "wrong", says, mend)


@dataclass(slots=True)
class Scene:
    """What the checks look at. They fill in the later fields as they go."""

    start: Path
    environment: Mapping[str, str]
    board_given: str | None = None
    online: bool = False
    board_bytes_large: int = 512 * 1024**2  # From this size on the doctor suggests `dugnad prune`.
    runs_check: bool = False  # Also run the project's check.
    now_ms: Callable[[], int] = wall_ms
    project: Project | None = None
    user: UserSettings | None = None
    url: str = ""
    board: Board | None = None
    no_board: bool = False  # There is none yet; it is not broken.
    tasks: list[Task] = field(default_factory=list)  # The first thousand open ones.
    model: Model | None = None
    accepted: bool | None = None  # Whether the user has accepted the project; None: not known.


Check = Callable[[Scene], "Finding | Awaitable[Finding | None] | None"]
BoardCheck = Callable[[Scene, "Board"], "Awaitable[Finding | None]"]


# The machine.


def log(scene: Scene) -> Finding:
    folder = user_state(scene.environment, "logs")
    there = next(each for each in (folder, *folder.parents) if each.exists())
    if not os.access(there, os.W_OK | os.X_OK):
        return warning(f"{there} cannot be written.", "set XDG_STATE_HOME to a folder of yours")
    return ok(f"`dugnad work` and `dugnad run --forever` write to {folder}/dugnad-1.log and so on.")


def _root(scene: Scene) -> Path:
    return scene.project.root if scene.project else scene.start


def _brought(scene: Scene) -> Path:
    """The folder whose programs are not used. A home folder has the user's own programs in it."""
    return _root(scene) / OWN if is_no_project(_root(scene)) else _root(scene)


async def git(scene: Scene) -> Finding:
    path = scene.environment.get("PATH", os.defpath)
    root = _root(scene)
    if find_program("git", path, outside=_brought(scene)) is None:
        return warning("git is not installed, so there are no worktrees.", "apt install git")
    try:
        found = await Git.find(root, path=path)
        if found is None:
            return warning(f"{root}: not a git repository.", f"git init {shlex.quote(str(root))}")
        if await found.is_tracked(".dugnad"):
            says = "The board's folder is under version control, so anyone who commits could put tasks on your board."
            return warning(says, "git rm -r --cached .dugnad")
        count = len(await found.changes())
    except ToolError as trouble:
        return warning(str(trouble))
    if count:
        says = f"{count} file{'s have' if count > 1 else ' has'} changes that are not committed."
        return warning(says, "git commit, or git stash")
    return ok("A git repository without uncommitted changes.")


async def services(scene: Scene) -> Finding | None:
    """The user's own servers that programs in the sandbox may use; with --online also whether they answer."""
    if scene.user is None:
        return None
    named = {each.name: each.services for each in (*scene.user.commands.values(), *scene.user.acp.values())}
    named |= {f"the MCP server {each.name}": each.services for each in scene.user.servers}
    said = "; ".join(f"{who} may use {', '.join(each)}" for who, each in named.items() if each)
    down = []
    for service in parse_services([*{each: None for entries in named.values() for each in entries}]):
        if scene.online and not await _answers(service):
            down.append(str(service))
    if down:
        return warning(f"{said}. There is no answer from {', '.join(down)}.", "start it, or correct `services`")
    return ok(f"{said}.") if said else None


async def _answers(service: Service) -> bool:
    for address in service.addresses or (service.name,):
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                _, writer = await asyncio.open_connection(address, service.port)
        except (OSError, TimeoutError):
            continue
        writer.close()
        return True
    return False


async def remote(scene: Scene) -> Finding | None:
    """Look at the remote that the user named for this project, once."""
    named = scene.user.remote_of(_root(scene)) if scene.user else None
    if named is None:
        return None
    found = await Git.find(_root(scene), path=scene.environment.get("PATH", os.defpath))
    if found is None:
        return warning(f"{named} is not used: {_root(scene)} is not a git repository.", "git init")
    try:
        opened = await open_remote(named, found, scene.environment)
        names = await opened.at_once(_REMOTE_SECONDS).look(found, "refs/heads/*")
    except ToolError as trouble:
        return wrong(str(trouble))
    return ok(f"{opened.url} can be reached; it has {len(names)} branch{'' if len(names) == 1 else 'es'}.")


async def sandbox(scene: Scene) -> Finding:
    """Try it out: a version number does not say what the machine allows."""
    found = await probe(scene.environment.get("PATH", os.defpath), outside=_brought(scene))
    return Finding("", "ok" if found.level == "strict" else "warning", found.says, found.mend)


async def base_check(scene: Scene) -> Finding | None:
    project = scene.project
    if project is None or not project.checks or scene.user is None:
        return None
    command = one_line(" && ".join(project.checks), 200)
    if not scene.runs_check:
        return ok(f"`{command}`; `dugnad doctor --check` runs it on the project as it is.")
    if scene.accepted is not True:
        return warning(f"`{command}` was not run: the project is not accepted.", "dugnad trust")
    if not (scene.board_given or scene.environment.get("DUGNAD_BOARD")):
        await refuse_tracked(project, scene.url)
    plan = RunPlan(url=scene.url if scene.url and not scene.no_board else "sqlite:///:memory:")
    said: list[str] = []
    async with opened(plan) as board, workplaces(board, project, scene.user, Wishes(), said.append) as given:
        try:
            memory = memory_of(project.root, scene.environment)
            verdict = await preflight(given.base, memory, red_base=False, say=said.append, quiet=False)
        except Interrupted:
            return warning(f"`{command}` was interrupted.")
    if verdict is None:
        return warning(f"`{command}` could not be run. {' '.join(said[1:])}".strip())
    if verdict.green:
        return ok(f"`{command}` succeeds on {verdict.where}.")
    last = shorten(verdict.output, 600)
    return wrong(f"`{command}` fails on {verdict.where}: {last}", "fix it, or run with --red-base")


def proxy(scene: Scene) -> Finding | None:
    named = [each for each in _PROXIES if scene.environment.get(each) or scene.environment.get(each.lower())]
    if not named:
        return None
    host = urlsplit(_base_url(scene)).hostname
    if host in _LOCAL and not proxy_bypass(host):
        says = f"The model's server is on this machine, but requests to it would go through {named[0]}."
        return warning(says, f"export NO_PROXY={','.join(_LOCAL)}")
    return ok(f"{' and '.join(named)} set: requests to models go through it.")


# The files.


def project_file(scene: Scene) -> Finding:
    scene.project = read_project(scene.start, environment=scene.environment)
    if scene.project.file is None:
        return ok(f"{scene.project.root} has no {FILE}; the defaults apply.")
    if scene.project.file.stat().st_mode & 0o022:
        return warning(f"Other users may write {scene.project.file}.", f"chmod go-w {FILE}")
    return ok(f"{scene.project.file} can be read.")


def user_settings(scene: Scene) -> Finding:
    scene.user = read_user(scene.environment)
    file = scene.user.file
    if file is None:
        where = user_file(scene.environment)
        return ok(f"There is no {where}." if where else "There is no home folder.")
    mode, mend = file.stat().st_mode, f"chmod 600 {shlex.quote(str(file))}"
    if mode & 0o022:
        return wrong(f"Other users may write {file}, and so send your keys anywhere.", mend)
    if mode & 0o044 and any(each.api_key_env or each.base_url for each in scene.user.models.values()):
        return warning(f"Other users may read {file}, which names the addresses of your models.", mend)
    return ok(f"{file} can be read.")


def policies(scene: Scene) -> Finding | None:
    """The tools that are denied or asked about: for everybody, and for each role that differs."""
    if scene.project is None or scene.user is None:
        return None
    policy = scene.project.policy(scene.user)
    everybody = policy.told()
    roles = sorted({role for each in policy.files for role in each.roles})
    found = {"everybody": everybody} | {f"role {each}": policy.told([each]) for each in roles}
    said = [
        f"{who}: {', '.join(f'{tool} {decision}' for tool, decision in told.items()) or 'allow'}"
        for who, told in found.items()
        if told != everybody or (who == "everybody" and told)
    ]
    return ok(f"{'; '.join(said)}.") if said else None


# The model.


def choose_model(scene: Scene) -> Finding | None:
    if scene.user is None:
        return None
    named = (
        (scene.environment.get("DUGNAD_MODEL"), "as DUGNAD_MODEL says"),
        (scene.project.model if scene.project else None, "as dugnad.toml says"),
        (scene.user.model, f"as {scene.user.file} says"),
    )
    name, why = next(((name, why) for name, why in named if name), (None, "from the first provider whose key is set"))
    name = name or default_model()
    scene.model = open_named_model(name, scene.user)
    return ok(f"{name}, {why}.")


def _base_url(scene: Scene) -> str:
    return (scene.user.endpoint(scene.model.name).base_url or "") if scene.user and scene.model else ""


def find_key(scene: Scene) -> Finding | None:
    """Whether there is a key; never which."""
    if scene.model is None or scene.user is None or scene.model.name.startswith(("scripted", *PREFIXES)):
        return None
    provider, server = scene.model.name.partition(":")[0], urlsplit(_base_url(scene))
    variable = scene.user.endpoint(scene.model.name).api_key_env
    if variable is None and server.hostname and provider == "openai":
        return ok(f"No key is sent to {server.hostname}.")
    variable = variable or f"{provider.partition('-')[0].upper()}_API_KEY"
    if server.scheme == "http" and server.hostname not in _LOCAL:
        return warning(f"The key goes to {server.hostname} unencrypted.", "use an https:// address")
    return ok(f"{variable} is set." if scene.environment.get(variable) else "The provider's package finds one itself.")


def know_price(scene: Scene) -> Finding | None:
    if scene.model is None or isinstance(scene.model, ExternalCommand) or scene.model.name.startswith("scripted"):
        return None
    if price := scene.model.facts.price:
        return ok(f"${price.input:g} in and ${price.output:g} out for a million tokens.")
    capped = scene.project is not None and scene.project.budget.dollars is not None
    says = f"The price of {scene.model.name} is not known, so a cap in dollars cannot be enforced."
    mend = f'[models."{scene.model.name}"] price_input and price_output in your config.toml, or a cap in tokens'
    return Finding("", "wrong" if capped else "warning", says, mend)


def know_command(scene: Scene) -> Finding | None:
    """Whether an external agent is installed, and whether it reports its cost."""
    if not isinstance(command := scene.model, ExternalCommand):
        return None
    word, path = command.run[0], scene.environment.get("PATH", os.defpath)
    if not (shutil.which(word) if "/" in word else find_program(word, path, outside=_brought(scene))):
        return wrong(f"There is no program {command.run[0]}.", f"install it, or correct `run` under {command.table}")
    capped = scene.project is not None and scene.project.budget.dollars is not None
    if command.reports_dollars or not capped:
        cost = "dollars and tokens" if command.reports_dollars else "no dollars"
        return ok(f"{command.run[0]} is installed; it reports {cost}.")
    return wrong(f"{command.name} does not report its cost.", "a cap in tokens or minutes")


def hold_commands(scene: Scene) -> Finding | None:
    """An external agent has tools of its own, so a policy about such tools cannot be enforced for it."""
    if scene.project is None or scene.user is None or scene.model is None:
        return None
    policy, named = scene.project.policy(scene.user), {"": scene.model.name}
    named |= {name: role.model for name, role in scene.project.roles.items() if role.model}
    for role_name, model in named.items():
        said = {tool: policy.decide(tool, [role_name] if role_name else ()) for tool in OF_A_TREE}
        if model.startswith(PREFIXES) and (strict := [tool for tool in said if said[tool] != "allow"]):
            who = f"the role {role_name}" if role_name else "everybody"
            says = f"{model} has tools of its own, so the policy for {who} cannot be enforced: {', '.join(strict)}."
            return wrong(says, "allow them for the role with this command, or use another model")
    return None


def know_window(scene: Scene) -> Finding | None:
    if scene.model is None or isinstance(scene.model, ExternalCommand):
        return None
    if tokens := scene.model.facts.window_tokens:
        return ok(f"{tokens:,} tokens.")
    limits = scene.project.agent_limits if scene.project else AgentLimits()
    says = f"The window of {scene.model.name} is not known; dugnad assumes {limits.window_tokens_default:,} tokens."
    return warning(says, f'[models."{scene.model.name}"] window_tokens in your config.toml')


async def open_role_models(scene: Scene) -> Finding | None:
    if scene.project is None or scene.user is None:
        return None
    of_roles = [role.model for role in scene.project.roles.values()]
    named = sorted({name for name in (*of_roles, *(member.model for member in scene.project.members)) if name})
    for name in named:
        await open_named_model(name, scene.user).close()
    return ok(f"{', '.join(named)}.") if named else None


async def ask_model(scene: Scene) -> Finding | None:
    if scene.model is None or isinstance(scene.model, ExternalCommand) or not scene.online:
        return None
    if scene.accepted is not True:
        return warning("The model was not asked: trust the project first.", "dugnad trust")
    said = (Said(tell("teammate.doctor_asks")),)
    request = Request(system=tell("teammate.doctor"), messages=said, output_tokens_max=256, seconds_max=60.0)
    began = asyncio.get_running_loop().time()
    try:
        reply = await scene.model.ask(request)
    except ModelTrouble as trouble:
        return wrong(str(trouble))
    seconds = asyncio.get_running_loop().time() - began
    return ok(f"The model answered in {seconds:.1f} s, with {reply.usage.tokens} tokens.")
