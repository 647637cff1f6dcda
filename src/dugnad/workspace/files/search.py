"""Finding files by name and by content, beneath a root, within limits.

It leaves out `.git`, `.dugnad`, half-written files, and what the `.gitignore` files from the root down to each folder
name; the last rule that fits decides, as in git. It does not read a user's global ignore file or `.git/info/exclude`,
and does not know that git tracks some ignored files. Links are listed, never followed.

A regular expression can take for ever, and Python cannot interrupt it. So `grep` runs in a process of its own, which is
killed when its time is over. ripgrep would be faster, but it opens by path what it listed before, and in between a
folder can become a link that leads out of the root.
"""

from __future__ import annotations

import json
import os
import re
import resource
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

from ...errors import ToolError
from .content import binary_kind, decode
from .paths import Beneath, open_regular, read_from, trouble
from .patterns import PATTERN_CHARS_MAX, Names, Rule, file_pattern, is_ignored, read_rules

TEMPORARY = ".dugnad-"  # How the name of a half-written file begins, with ".tmp" at its end.
_LEFT_OUT = (".git", ".dugnad")
_RULES_BYTES_MAX = 64 * 1024
_EXTRA_SECONDS = 3.0  # For the other process to start, and to answer when its time is over.
_CHILD = "import sys; sys.path.append(sys.argv[1]); from dugnad.workspace.files.search import main; main()"


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchLimits:
    """What one search may cost."""

    entries_max: int = 100_000  # Names looked at.
    depth_max: int = 60
    matches_max: int = 500
    file_bytes_max: int = 4 * 1024 * 1024  # Larger files are not searched.
    bytes_max: int = 512 * 1024 * 1024
    seconds_max: float = 20.0
    line_chars_max: int = 300  # Of a line that is shown.


@dataclass(slots=True)
class Search:
    """One look through the tree."""

    beneath: Beneath
    limits: SearchLimits
    stopped: str = ""  # Why it ended early, if it did.
    large: int = 0  # Files that were too large to look into.
    deep: bool = False  # There is more below than was looked at.
    _entries: int = 0
    _bytes: int = 0
    _began: float = field(default_factory=time.monotonic)

    @property
    def notes(self) -> tuple[str, ...]:
        """Why there may be more than was found."""
        deep = f"nothing deeper than {self.limits.depth_max} folders was looked at" if self.deep else ""
        large = f"{self.large:,} too large to be searched" if self.large else ""
        return tuple(note for note in (self.stopped, deep, large) if note)

    def files(self, start: Names) -> Iterator[tuple[Names, int]]:
        """Every file beneath a folder, in order, with its folder, which is held open meanwhile."""
        rules: tuple[Rule, ...] = ()
        for depth in range(len(start)):
            with suppress(OSError), self.beneath.folder(start[:depth]) as folder:
                rules += self._rules(start[:depth], folder)
        with self.beneath.folder(start) as held:
            yield from self._below(start, held, rules)

    def _below(self, here: Names, held: int, rules: tuple[Rule, ...]) -> Iterator[tuple[Names, int]]:
        rules += self._rules(here, held)
        for name, is_folder in self._names(held):
            names = (*here, name)
            if self.stopped or name in _LEFT_OUT or is_temporary(name) or is_ignored(names, rules, is_folder=is_folder):
                continue
            if not is_folder:
                yield names, held
            elif len(names) > self.limits.depth_max:
                self.deep = True
            else:
                with suppress(OSError):  # Gone, closed to us, or no folder any more.
                    inner = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=held)
                    try:
                        yield from self._below(names, inner, rules)
                    finally:
                        os.close(inner)

    def _names(self, held: int) -> list[tuple[str, bool]]:
        found = []
        with os.scandir(held) as entries:
            for entry in entries:
                self._entries += 1
                if self._entries > self.limits.entries_max:
                    self.stopped = f"only {self.limits.entries_max:,} names were looked at"
                    break
                found.append((entry.name, entry.is_dir(follow_symlinks=False)))
        if time.monotonic() - self._began > self.limits.seconds_max:
            self.stopped = f"it took longer than {self.limits.seconds_max:g} seconds"
        return sorted(found)

    def _rules(self, here: Names, held: int) -> tuple[Rule, ...]:
        data = self._content(".gitignore", held, most=_RULES_BYTES_MAX)
        return read_rules(data.decode(errors="replace"), here) if data else ()

    def _content(self, name: str, held: int, *, most: int) -> bytes | None:
        """What is in a file of a folder; None: it cannot be read, or is too large."""
        try:
            data = read_from(open_regular(name, folder=held), most + 1)
        except (OSError, ToolError):
            return None
        if len(data) > most:
            self.large += 1
            return None
        return data

    def first(self, found: Iterable[tuple[str, bool]]) -> SearchResult:
        """As many lines as may be shown, from lines that each say whether they count as a match."""
        shown: list[str] = []
        matches = 0
        for line, is_match in found:
            if matches == self.limits.matches_max:
                self.stopped = f"only the first {matches:,} are shown"
                break
            matches += is_match
            shown.append(line)
        return SearchResult(tuple(shown), self.notes)

    def lines(self, start: Names, wanted: Wanted) -> Iterator[tuple[str, bool]]:
        """The lines that match, and those around them, each with whether it matches itself."""
        expression = re.compile(wanted.pattern, re.IGNORECASE if wanted.ignore_case else 0)
        is_meant = file_pattern(wanted.include) if wanted.include else lambda names: True
        for names, held in self._files_or_one(start):
            if not is_meant(names):
                continue
            if self._bytes > self.limits.bytes_max:
                self.stopped = f"only {self.limits.bytes_max:,} bytes were searched"
                return
            data = self._content(names[-1], held, most=self.limits.file_bytes_max)
            if data is None or binary_kind(data):
                continue
            self._bytes += len(data)
            lines = decode(data).lines
            hits = {number for number, line in enumerate(lines) if expression.search(line)}
            near = {number + step for number in hits for step in range(-wanted.context, wanted.context + 1)}
            for number in sorted(near):
                if 0 <= number < len(lines):
                    mark = ":" if number in hits else "-"
                    text = self._cut(lines[number], expression)
                    yield f"{'/'.join(names)}{mark}{number + 1}{mark}{text}", number in hits

    def _files_or_one(self, start: Names) -> Iterator[tuple[Names, int]]:
        """A file that is asked for by its own name is searched even if it is ignored."""
        try:
            yield from self.files(start)
        except NotADirectoryError:
            with self.beneath.folder(start[:-1]) as held:
                yield start, held

    def _cut(self, line: str, expression: re.Pattern[str]) -> str:
        most = self.limits.line_chars_max
        if len(line) <= most:
            return line
        found = expression.search(line)
        begin = max(0, min(found.start() - most // 3, len(line) - most)) if found else 0
        return f"{'…' if begin else ''}{line[begin : begin + most]}{'…' if begin + most < len(line) else ''}"


def is_temporary(name: str) -> bool:
    return name.startswith(TEMPORARY) and name.endswith(".tmp")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What `grep` looks for."""

    pattern: str
    include: str = ""  # Only in files like this; empty: in all.
    ignore_case: bool = False
    context: int = 0  # Lines to show before and after each.


@dataclass(frozen=True, slots=True)
class SearchResult:
    """What was found, as lines of text, and why there may be more."""

    lines: tuple[str, ...]
    notes: tuple[str, ...] = ()


def find_names(beneath: Beneath, pattern: str, *, limits: SearchLimits) -> SearchResult:
    is_meant = file_pattern(pattern)
    search = Search(beneath, limits)
    return search.first(("/".join(names), True) for names, _ in search.files(()) if is_meant(names))


def find_lines(beneath: Beneath, start: Names, wanted: Wanted, *, limits: SearchLimits) -> SearchResult:
    """Search in another process, so that an expression that never ends can be killed."""
    if not 0 < len(wanted.pattern) <= PATTERN_CHARS_MAX:
        raise ToolError(f"A pattern has between 1 and {PATTERN_CHARS_MAX:,} characters.")
    asked = {"root": str(beneath.root), "start": start, "wanted": asdict(wanted), "limits": asdict(limits)}
    command = [sys.executable, "-I", "-S", "-c", _CHILD, str(Path(__file__).parents[3])]
    try:
        ended = subprocess.run(
            command, input=json.dumps(asked).encode(), capture_output=True,
            timeout=limits.seconds_max + _EXTRA_SECONDS, env={}, cwd="/", check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise ToolError(
            f"The search took longer than {limits.seconds_max:g} seconds. Use a simpler pattern, without one "
            "repetition inside another, or search in fewer files."
        ) from None
    except OSError as error:
        raise ToolError(f"The search could not be started: {error.strerror or error}.") from None
    if ended.returncode:
        why = ended.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        raise ToolError(f"The search ended early ({ended.returncode}): {why or 'it was killed'}.")
    found = json.loads(ended.stdout)
    if "error" in found:
        raise ToolError(found["error"])
    return SearchResult(tuple(found["lines"]), tuple(found["notes"]))


def main() -> None:
    """The other process: the question comes in, the answer goes out, both as JSON."""
    asked = json.load(sys.stdin)
    seconds = int(asked["limits"]["seconds_max"] + 2 * _EXTRA_SECONDS)
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))  # It ends also when nobody is left to kill it.
    limits = SearchLimits(**asked["limits"])
    search = Search(Beneath(Path(asked["root"])), limits)
    answer: dict[str, object]
    try:
        answer = asdict(search.first(search.lines(tuple(asked["start"]), Wanted(**asked["wanted"]))))
    except re.error as wrong:
        answer = {"error": f"The pattern is not a regular expression: {wrong}. Escape ( ) [ ] {{ }} . * + ? with \\."}
    except ToolError as wrong:
        answer = {"error": str(wrong)}
    except OSError as wrong:
        answer = {"error": str(trouble(wrong, "/".join(asked["start"]) or "."))}
    sys.stdout.write(json.dumps(answer))
