"""From a file, a folder or a text to what it holds: which kind it is, and reading it within bounds."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Literal, get_args

from ..errors import BadInput
from ..safe_open import read_named
from .claude import read_claude
from .github import read_github
from .markdown import read_markdown
from .rows import RowsRead
from .sheets import read_csv

Source = Literal["github", "markdown", "csv", "claude"]
SOURCES: tuple[str, ...] = get_args(Source)
BYTES_MAX = 64 * 1024 * 1024
_TASK_BYTES_MAX = 1024 * 1024
_FILES_MAX = 10_000
_SUFFIXES: dict[str, Source] = {".md": "markdown", ".markdown": "markdown", ".csv": "csv", ".tsv": "csv"}
_BOX = re.compile(r"(?m)^[ \t]*(?:[-*+]|\d{1,9}[.)])[ \t]+\[[ xX]\]\s")
_NAME_IT = f"say what it is with --from {'|'.join(SOURCES)}."


def read_source(path: Path, source: Source | None, given: bytes | None = None) -> RowsRead:
    """What a file or a folder holds. `given`: its content, if it came over standard input."""
    if given is None and path.is_dir():
        if source not in (None, "claude"):
            raise BadInput(f"{path} is a folder; name the file with the {source} in it.")
        return _read_folder(path)
    data = read_named(path, str(path), BYTES_MAX, pipes=True)[0] if given is None else given
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as trouble:
        raise BadInput(f"{path} is not UTF-8 text (at byte {trouble.start}); save it as UTF-8.") from None
    name = path.name if given is None else "stdin"
    source = source or _SUFFIXES.get(path.suffix.lower()) or _guess(text, str(path))
    if source == "claude":
        return read_claude([(name, text)], path.absolute().parent.name)
    return {"github": read_github, "markdown": read_markdown, "csv": read_csv}[source](text, name)


def _guess(text: str, name: str) -> Source:
    start = text.lstrip()[:1]
    if start and start in "[{":
        claude = re.search(r'"subject"\s*:', text) and not re.search(r'"number"\s*:', text)
        return "claude" if claude else "github"
    if _BOX.search(text):
        return "markdown"
    raise BadInput(f"{name} is neither JSON nor a checklist; {_NAME_IT}")


def _read_folder(path: Path) -> RowsRead:
    """A task list of Claude Code."""
    names = sorted((each for each in os.listdir(path) if each.endswith(".json")), key=lambda name: (len(name), name))
    if not names:
        lists = sorted(each.name for each in path.iterdir() if each.is_dir() and any(each.glob("*.json")))
        hint = f"name one of its lists, such as {path / lists[0]}." if lists else "name a folder with JSON files."
        raise BadInput(f"There is no task in {path}; {hint}")
    if len(names) > _FILES_MAX:
        raise BadInput(f"{path} has {len(names):,} files; at most {_FILES_MAX:,} can be read at once.")
    files, total = [], 0
    for name in names:
        data, _ = read_named(path / name, str(path / name), _TASK_BYTES_MAX)
        total += len(data)
        if total > BYTES_MAX:
            raise BadInput(f"{path} has more than {BYTES_MAX // 1024**2} MiB; remove what is no task of yours.")
        files.append((name, data.decode("utf-8", errors="replace")))
    return read_claude(files, path.absolute().name)
