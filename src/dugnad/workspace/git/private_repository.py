"""A git directory of our own beside the user's: their objects and names, our settings.

Our git never reads the settings, attributes or hooks of the repository, nor those of the user or the system. The few
settings that it needs are copied by value; none of them can name a program. The directory is laid out like a repository
whose objects and names are links to the user's. It has no `commondir`: with one, git would read the settings there.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import stat
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from ...errors import ToolError
from ..files.paths import PATH_CHARS_MAX, open_regular, read_from
from .ownership import GitTrouble, refuse_strangers

_FILE_BYTES_MAX, _INDEX_BYTES_MAX = 1024 * 1024, 1024**3
EMPTY = "empty"  # A folder in a git directory of ours, for git to run in where no tree is meant.
# All that may be in a git directory of ours.
_OUR_NAMES = re.compile(
    r"(?P<links>objects|refs|packed-refs|shallow|logs/refs)|(?P<folders>info|logs|empty|index\.\w{8})|"
    r"(?P<files>(?:config|HEAD|index|info/exclude|logs/HEAD)(?:\.lock|\.\d+)?|dugnad-\w+)"
)
_KINDS = {"links": stat.S_IFLNK, "files": stat.S_IFREG}
# What we read, write or link to in a repository.
_FOLDERS = ("objects", "refs", "logs", "logs/refs", "info", "dugnad", "worktrees")
_FILES = ("config", "config.worktree", "packed-refs", "shallow", "info/exclude", "index")
_OURS: Mapping[str, Mapping[str, str]] = {
    "core": {
        "bare": "false", "hooksPath": "/dev/null", "fsmonitor": "false", "untrackedCache": "false", "pager": "cat",
        "editor": "false", "sshCommand": "false", "askPass": "", "attributesFile": "/dev/null", "quotePath": "false",
        "excludesFile": "/dev/null", "sparseCheckout": "false", "fsync": "committed,reference", "fsyncMethod": "batch",
    },
    "user": {"name": "dugnad", "email": "dugnad@dugnad.invalid"},
    "merge": {"renames": "true"}, "checkout": {"workers": "1"}, "index": {"sparse": "false"}, "gc": {"auto": "0"},
    "maintenance": {"auto": "false"}, "submodule": {"recurse": "false"}, "diff": {"ignoreSubmodules": "all"},
    "advice": {"detachedHead": "false"}, "color": {"ui": "false"}, "log": {"showSignature": "false"},
    "trailer": {"separators": ":"}, "i18n": {"commitEncoding": "UTF-8", "logOutputEncoding": "UTF-8"},
}  # fmt: skip
# Settings that are copied from the user's. A value cannot name a program, be a path or contain a line's end.
_TAKEN = (
    "autocrlf", "eol", "symlinks", "fileMode", "ignoreCase", "precomposeUnicode", "logAllRefUpdates",
    "sharedRepository",
)  # fmt: skip
_PLAIN = re.compile(r"[A-Za-z0-9]{1,16}")
# Extensions of a repository's format that do not change how we read or write it.
_HARMLESS = frozenset({"noop", "worktreeconfig", "partialclone", "preciousobjects", "relativeworktrees"})
# What no project wants in its history, and what a teammate's commands leave behind where nobody wrote a .gitignore.
_NEVER = (
    "__pycache__/", "*.py[co]", ".pytest_cache/", ".mypy_cache/", ".ruff_cache/", ".hypothesis/", ".tox/", ".venv/",
    "*.egg-info/", "node_modules/", ".DS_Store", "*.swp", "core.[0-9]*",
)  # fmt: skip


def settings_from(theirs: Mapping[str, str]) -> str:
    """Our settings for a repository that has these. GitTrouble: it is stored in a way that we do not know."""
    version = theirs.get("core.repositoryformatversion", "0")
    extensions = {
        name.removeprefix("extensions."): value for name, value in theirs.items() if name.startswith("extensions.")
    }
    form = extensions.pop("objectformat", "sha1").lower()
    if (names := extensions.pop("refstorage", "files")) != "files":
        raise GitTrouble(f"Its names are stored as {names[:40]!r}: `git refs migrate --ref-format=files` changes that.")
    if version not in ("0", "1") or form not in ("sha1", "sha256") or extensions.keys() - _HARMLESS:
        unknown = ", ".join((version, form, *extensions))
        raise GitTrouble(f"It is stored in a way that is not known here: {unknown[:200]}")
    core = {"logAllRefUpdates": "false" if is_true(theirs.get("core.bare")) else "true"}
    core |= {
        name: theirs[key]
        for name in _TAKEN
        if (key := f"core.{name.lower()}") in theirs and _PLAIN.fullmatch(theirs[key])
    }
    core |= {"repositoryformatversion": "0" if form == "sha1" else "1", **_OURS["core"]}
    parts = {**_OURS, "core": core} | ({} if form == "sha1" else {"extensions": {"objectFormat": form}})
    return "".join(
        f"[{part}]\n" + "".join(f'\t{name} = "{value}"\n' for name, value in values.items())
        for part, values in parts.items()
    )


def is_true(value: str | None) -> bool:
    return value is not None and value.lower() in ("true", "yes", "on", "1", "")


def check_layout(common: Path, own: Path, names: Iterable[str] = ()) -> None:
    """GitTrouble: something that we use of a repository is not a real file or folder, or not the user's. A link would
    lead our git, and what a sandbox may read, to wherever it points; a pipe would keep us waiting. `names` are those
    that are to be moved: they, their logs and all folders above them are checked too."""
    folders, files = [common / each for each in _FOLDERS], [*(common / each for each in _FILES), own / "index"]
    ways = [each for name in names for end in (common / name, common / "logs" / name) for each in (end, *end.parents)]
    for paths, fit in ((folders, (stat.S_IFDIR,)), (files, (stat.S_IFREG,)), (ways, (stat.S_IFDIR, stat.S_IFREG))):
        for path in paths:
            with suppress(OSError):  # It is not there, or nobody gets there.
                if (mode := stat.S_IFMT(os.lstat(path).st_mode)) not in fit:
                    kind = "folder" if fit[0] == stat.S_IFDIR else "regular file"
                    what = "a link" if mode == stat.S_IFLNK else f"not a {kind}"
                    raise GitTrouble(f"{path} is {what}: put a real file or folder in its place, or work in a clone.")
    refuse_strangers(own, common, *folders, *files, own / "HEAD", common / "HEAD")
    if not head_of(own):
        raise GitTrouble(f"{own / 'HEAD'} does not say what is checked out: `git switch` to a branch mends that.")


def points_back(top: Path, own: Path, common: Path, worktree: str | None) -> bool:
    """Whether a repository belongs to a checkout: it lies in it, or names it, which only its owner can have written.
    The checkout's own word is not enough: it can name any repository. `worktree`: what the settings name."""
    real = os.path.realpath(top)
    if own != common:
        named = own / path_in(own / "gitdir")
        return own.parent == common / "worktrees" and named.name == ".git" and os.path.realpath(named.parent) == real
    return own.is_relative_to(real) or (worktree is not None and os.path.realpath(own / worktree) == real)


def make(directory: Path, common: Path, *, settings: str, head: str | None) -> None:
    """Make one, or bring it up to date. `head` None: what is checked out stays. Whatever was there before, as in a
    repository that came in an archive, is replaced. OSError: the repository cannot be written."""
    ours = (common / "dugnad", directory.parent, directory, *(directory / each for each in ("info", "logs", EMPTY)))
    for folder in (*ours, common / "logs" / "refs"):
        folder.mkdir(parents=True, exist_ok=True)
        if folder in ours and folder.is_symlink():
            raise OSError(errno.ELOOP, f"{folder} is a link")
    _remove_others(directory)
    for name in ("objects", "refs", "packed-refs", "shallow", "logs/refs"):
        link, to = directory / name, os.path.relpath(common / name, (directory / name).parent)
        if not (link.is_symlink() and os.readlink(link) == to):
            with suppress(FileNotFoundError):
                link.unlink()
            with suppress(FileExistsError):  # By another process, at this very moment.
                link.symlink_to(to)
    excluded = "".join(f"{each}\n" for each in _NEVER) + (read(common / "info" / "exclude") or "")
    for name, text in (("config", settings), ("info/exclude", excluded), ("HEAD", head)):
        if text is not None:
            write(directory / name, text)


def _remove_others(directory: Path) -> None:
    """Remove what is not ours: git reads much of a git directory, and writes through links. Other processes of ours may
    make files there at this very moment."""
    for folder in ("", "info", "logs", EMPTY):
        for name in os.listdir(directory / folder):
            path = directory / folder / name
            known = _OUR_NAMES.fullmatch(os.path.join(folder, name))
            with suppress(FileNotFoundError):
                mode, links = (about := os.lstat(path)).st_mode, about.st_nlink
                if stat.S_ISDIR(mode):
                    if known is None or known.lastgroup != "folders":
                        shutil.rmtree(path)
                elif known is None or links > 1 or stat.S_IFMT(mode) != _KINDS.get(known.lastgroup or ""):
                    path.unlink()


def write(path: Path, text: str) -> None:
    """Whole or not at all; others may read it meanwhile."""
    if read(path) != text:
        half = path.with_name(f"{path.name}.{os.getpid()}")
        half.unlink(missing_ok=True)  # In a tree, a command may have put a link there.
        file = os.open(half, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
        with open(file, "w", errors="surrogateescape") as opened:
            opened.write(text)
        half.replace(path)


def copy(file: Path, to: Path) -> None:
    """Copy an index, unless it is gone by now. ToolError: it is not a regular file, or too large to be one."""
    with suppress(FileNotFoundError), open(open_regular(file, str(file)), "rb") as source, to.open("xb") as made:
        if os.fstat(source.fileno()).st_size > _INDEX_BYTES_MAX:
            raise GitTrouble(f"{file} is too large; `git read-tree HEAD` makes it anew from the last commit.")
        shutil.copyfileobj(source, made)


def read(path: Path) -> str | None:
    """A small file. None: there is none, or it is a link, or a pipe or the like, which would keep us waiting."""
    with suppress(OSError, ToolError):
        return read_from(open_regular(path), _FILE_BYTES_MAX).decode(errors="surrogateescape")
    return None


def led_to(top: Path) -> Path | None:
    """The git directory that a checkout's .git is or names. None: there is none."""
    if (own := top / ".git").is_dir():
        return own
    # A file there means that the project is itself a worktree, or a submodule.
    named = path_in(own, "gitdir: ")
    return top / named if named else None


def path_in(file: Path, before: str = "") -> str:
    """The path that a file names; empty: it names none."""
    text = read(file) or ""
    named = text.removeprefix(before).rstrip("\r\n")
    return named if text.startswith(before) and "\0" not in named and len(named) <= PATH_CHARS_MAX else ""


def directories_of(top: Path) -> tuple[Path, Path] | None:
    """What git keeps of a checkout alone, and what all checkouts share. None: there is no repository."""
    if (led := led_to(top)) is None:
        return None
    own = Path(os.path.realpath(led))
    common = Path(os.path.realpath(own / path_in(own / "commondir")))
    whole = (common / "objects").is_dir() and (common / "refs").is_dir() and os.path.lexists(own / "HEAD")
    return (own, common) if whole else None


def head_of(own: Path) -> str:
    """What is checked out there: the full name of a branch, or a commit; empty where that cannot be told."""
    if (own / "HEAD").is_symlink():  # As git made it long ago.
        return named if (named := os.readlink(own / "HEAD")).startswith("refs/") else ""
    return (read(own / "HEAD") or "").strip().removeprefix("ref: ").strip()
