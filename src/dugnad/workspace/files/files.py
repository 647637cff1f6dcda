"""The files of a workspace, as a teammate reads and changes them.

Everything is opened strictly beneath the root. A file is replaced as a whole or not at all. A file that somebody else
changed since it was read is not overwritten. Git's and dugnad's own files can be read and not written. Every error is a
ToolError that says what to do. All calls block, so call them from a thread.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import threading
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from difflib import get_close_matches
from hashlib import blake2b
from itertools import islice
from pathlib import Path

from ...clock import new_id
from ...errors import ToolError
from ...text import counted
from .content import Text, binary_kind, decode
from .edit import PLACES_MAX, Edit, replace_texts
from .paths import Beneath, OpenedPath, check_kind, kind_of, parts_of, read_from, trouble
from .search import TEMPORARY, SearchLimits, SearchResult, Wanted, find_lines, find_names, is_temporary

PROTECTED = (".git", ".dugnad", "dugnad.toml")  # Wherever in the tree they lie, and also where they do not exist yet.
LINES_MAX = 2_000
CONTEXT_LINES_MAX = 20
_LINE_CHARS_MAX = 2_000
_ENTRIES_MAX = 1_000  # Of one folder that is shown.
_SEEN_MAX = 10_000
# What would break a line, or make a terminal do something.
_CONTROLS = re.compile("[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")


class Files:
    """The tree beneath a root."""

    def __init__(
        self, root: Path, *, output_chars_max: int = 15_000, file_bytes_max: int = 16 * 1024 * 1024,
        search: SearchLimits | None = None, new_id: Callable[[], str] = new_id,
    ) -> None:  # fmt: skip
        self.beneath = Beneath(root)
        self._output_chars_max = output_chars_max
        self._file_bytes_max = file_bytes_max
        self._search = search or SearchLimits()
        self._new_id = new_id
        self._changing = threading.Lock()  # Our own changes go one by one.
        self._seen: dict[tuple[str, ...], str] = {}  # Files that were read or written, and their marks since then.

    # Reading.

    def read(self, path: str, *, first_line: int = 1, lines: int = LINES_MAX) -> str:
        """Lines of a text file with their numbers; of anything else its kind and size."""
        if first_line < 1 or lines < 1:
            raise ToolError("first_line and lines count from 1.")
        parts = parts_of(path, self.beneath.root)
        with self._told(path), self.beneath.follow(parts) as opened:
            descriptor = opened.open_file("/".join(parts) or ".")
            found = os.fstat(descriptor)
            data = read_from(descriptor, self._file_bytes_max + 1)
            self._remember(opened.real, found, data)
        if kind := binary_kind(data):
            return f"[{path} is {kind} of {found.st_size:,} bytes; it is not shown.]"
        if not data:
            return f"[{path} is empty.]"
        notes = []
        if len(data) > self._file_bytes_max:
            data = data[: data.rfind(b"\n", 0, self._file_bytes_max) + 1 or self._file_bytes_max]
            notes.append(f"only the first {len(data):,} of {found.st_size:,} bytes can be read here")
        return self._numbered(path, decode(data), notes, first_line=first_line, lines=lines)

    def _numbered(self, path: str, text: Text, notes: list[str], *, first_line: int, lines: int) -> str:
        every = text.lines
        if first_line > len(every):
            raise ToolError(f"{path} has only {counted(len(every), 'line')}{''.join(f'; {note}' for note in notes)}.")
        wanted = enumerate(every[first_line - 1 : first_line - 1 + min(lines, LINES_MAX)], first_line)
        shown = self._that_fit(f"{number:>6}\t{_cut(line)}" for number, line in wanted)
        last = first_line + len(shown) - 1
        if last < len(every):
            notes.insert(0, f"lines {first_line:,} to {last:,} of {len(every):,}; go on with first_line={last + 1}")
        notes += text.told
        return "\n".join((*shown, *_note(notes)))

    def _that_fit(self, rows: Iterable[str]) -> list[str]:
        """As many as one answer may hold, and at least one."""
        shown: list[str] = []
        chars = 0
        for row in rows:
            chars += len(row) + 1
            if shown and chars > self._output_chars_max:
                break
            shown.append(row)
        return shown

    def list_dir(self, path: str = ".") -> str:
        """The names in a folder: folders with a slash, files with their size, links with where they point."""
        parts = parts_of(path, self.beneath.root)
        rows: list[str] = []
        with self._told(path), self.beneath.folder(parts) as held:
            with os.scandir(held) as entries:
                names = sorted(entry.name for entry in islice(entries, _ENTRIES_MAX * 20))
            names = [name for name in names if not is_temporary(name)]
            for name in names[:_ENTRIES_MAX]:
                with suppress(FileNotFoundError):
                    rows.append(_row(name, held))
        notes = [f"only {_ENTRIES_MAX:,} of {len(names):,} names are shown"] if len(names) > _ENTRIES_MAX else []
        return self._listing(SearchResult(tuple(rows), tuple(notes)), f"[{path} is empty.]")

    def glob(self, pattern: str) -> str:
        """The files whose path is as the pattern says, one a line."""
        root = f"{self.beneath.root}/"
        with self._told("."):
            found = find_names(self.beneath, pattern.removeprefix(root), limits=self._search)
        return self._listing(found, f"[No file is like {pattern!r}.]")

    def grep(
        self, pattern: str, path: str = ".", *, include: str = "", ignore_case: bool = False, context: int = 0
    ) -> str:
        """The lines that match a regular expression, as `path:line:text`."""
        if not 0 <= context <= CONTEXT_LINES_MAX:
            raise ToolError(f"context is between 0 and {CONTEXT_LINES_MAX}.")
        with self._told(path), self.beneath.follow(parts_of(path, self.beneath.root)) as opened:
            if opened.stat() is None:
                raise FileNotFoundError(errno.ENOENT, "")
            start = opened.real
        wanted = Wanted(pattern=pattern, include=include, ignore_case=ignore_case, context=context)
        found = find_lines(self.beneath, start, wanted, limits=self._search)
        return self._listing(found, f"[No line matches {pattern!r}.]")

    def _listing(self, found: SearchResult, nothing: str) -> str:
        notes = list(found.notes)
        shown = self._that_fit(map(_shown, found.lines))
        if len(shown) < len(found.lines):
            notes.insert(0, f"{len(shown):,} of {len(found.lines):,} are shown; ask for less at once")
        return "\n".join((*(shown or [nothing]), *_note(notes)))

    # Changing.

    def write(self, path: str, text: str) -> str:
        """Make a file, and the folders it needs, or replace it as a whole."""
        data = Text(text).encode()
        with self._change(path) as (opened, before):
            seen = self._seen.get(opened.real) if before else None
            self._check_unchanged(path, opened, seen)
            self._replace(path, opened, data, before=before, seen=seen)
        size = f"{counted(len(Text(text).lines), 'line')}, {counted(len(data), 'byte')}"
        return f"{'Made' if before is None else 'Replaced'} {path}: {size}."

    def edit(self, path: str, old: str, new: str, *, every: bool = False) -> str:
        """Replace a text that is in the file exactly once, or with `every` wherever it is."""
        return self.edit_all(path, [Edit(old, new, every)])

    def edit_all(self, path: str, edits: Sequence[Edit]) -> str:
        """Make all edits of a file, or none."""
        with self._change(path) as (opened, before):
            if before is None:
                raise FileNotFoundError(errno.ENOENT, "")
            if before.st_size > self._file_bytes_max:
                raise ToolError(f"{path} has {before.st_size:,} bytes; no more than {self._file_bytes_max:,} can be.")
            seen, data = self._seen.get(opened.real), self._load(path, opened)
            if any(each.every for each in edits):  # Otherwise each text is there once, and was meant.
                self._check_unchanged(path, opened, seen)
            if kind := binary_kind(data):
                raise ToolError(f"{path} is {kind}, not a text.")
            edited = replace_texts(decode(data), edits, path=path)
            now = self._mark(before, data)
            self._replace(path, opened, edited.text.encode(), before=before, seen=now)
            if seen not in (None, now):
                self._seen[opened.real] = seen or ""  # What others wrote is still unread, so write_file must refuse.
        where = ", ".join(map(str, edited.lines)) + (" and more" if edited.count > len(edits) * PLACES_MAX else "")
        lines = "line" if len(edited.lines) == 1 else "lines"
        return f"Changed {path} in {counted(edited.count, 'place')}, at {lines} {where}."

    @contextmanager
    def _change(self, path: str) -> Iterator[tuple[OpenedPath, os.stat_result | None]]:
        """A path that may be written, and what is there."""
        with self._told(path), self._changing, self.beneath.follow(parts_of(path, self.beneath.root)) as opened:
            if is_protected("/".join(opened.real)):
                raise ToolError(f"{path} belongs to git or to dugnad itself; it can be read, and not changed.")
            before = opened.stat()
            if before is not None:
                check_kind(before.st_mode, path)
                # Replacing a file takes only a writable folder; but somebody made this file read-only on purpose.
                if not before.st_mode & 0o222 or not os.access(opened.name, os.W_OK, dir_fd=opened.folder):
                    raise ToolError(f"{path} is read-only; it was not changed.")
            yield opened, before

    def _replace(
        self, path: str, opened: OpenedPath, data: bytes, *, before: os.stat_result | None, seen: str | None
    ) -> None:
        """Write a second file, then rename it: a reader sees the old file or the new one, also after a crash."""
        if len(data) > self._file_bytes_max:
            raise ToolError(f"The text is longer than {self._file_bytes_max:,} bytes; {path} was not changed.")
        opened.make_folders()
        temporary = f"{TEMPORARY}{self._new_id()}.tmp"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(temporary, flags, 0o600 if before else 0o666, dir_fd=opened.folder)
        try:
            with open(descriptor, "wb") as file:
                file.write(data)
                file.flush()
                if before is not None:
                    _take_after(descriptor, before)
                os.fsync(descriptor)
                now = os.fstat(descriptor)
            self._check_unchanged(path, opened, seen)  # Again, as late as can be.
            _put(opened, temporary, over=before is not None)
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary, dir_fd=opened.folder)
            raise
        self._remember(opened.real, now, data)
        _sync_folder(opened.folder)

    def _load(self, path: str, opened: OpenedPath) -> bytes:
        return read_from(opened.open_file(path), self._file_bytes_max + 1)

    # What was seen.

    def _remember(self, real: tuple[str, ...], found: os.stat_result, data: bytes) -> None:
        self._seen.pop(real, None)  # So that it counts as the newest.
        self._seen[real] = self._mark(found, data)
        if len(self._seen) > _SEEN_MAX:
            with suppress(StopIteration, KeyError, RuntimeError):  # Another thread may be doing the same.
                del self._seen[next(iter(self._seen))]

    def _mark(self, found: os.stat_result, data: bytes) -> str:
        """What tells whether a file has changed: its content, because time stamps can be equal by chance and different
        for nothing. A file that is too large to be read goes by its time stamp and size."""
        if len(data) > self._file_bytes_max:
            return f"{found.st_mtime_ns} {found.st_size}"
        return blake2b(data, digest_size=16).hexdigest()

    def _check_unchanged(self, path: str, opened: OpenedPath, seen: str | None) -> None:
        if seen is None or (found := opened.stat()) is None:
            return  # It was never read, or nothing is there that could be lost.
        if self._mark(found, self._load(path, opened)) != seen:
            raise ToolError(
                f"{path} has changed since you read it: a command or somebody else wrote it. It was not overwritten. "
                "Read it again, then make your change to what is there now."
            )

    # What goes wrong.

    @contextmanager
    def _told(self, path: str) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError as error:
            raise ToolError(f"{trouble(error, path)}{self._did_you_mean(path)}") from None
        except OSError as error:
            raise trouble(error, path) from None

    def _did_you_mean(self, path: str) -> str:
        with suppress(OSError, ToolError):
            *above, name = parts_of(path, self.beneath.root)
            with self.beneath.folder(tuple(above)) as held, os.scandir(held) as entries:
                names = [entry.name for entry in islice(entries, _ENTRIES_MAX)]
            if near := get_close_matches(name, names, n=3):
                return f" Did you mean {' or '.join(_shown('/'.join((*above, each))) for each in near)}?"
        return ""


def is_protected(path: str) -> bool:
    """Whether a path in a workspace belongs to git or to dugnad itself, or lies in what does."""
    return any(_folded(name) in PROTECTED for name in path.split("/"))


def _folded(name: str) -> str:
    """As the most forgiving disk compares names: without case, and without invisible characters."""
    plain = "".join(each for each in name if unicodedata.category(each) != "Cf")
    return unicodedata.normalize("NFKC", plain).casefold().rstrip(". ")


def _cut(line: str) -> str:
    cut = len(line) - _LINE_CHARS_MAX
    return line if cut <= 0 else f"{line[:_LINE_CHARS_MAX]}… [{cut:,} characters more]"


def _shown(line: str) -> str:
    """On one line, whatever a name or a text has in it."""
    return _CONTROLS.sub("\ufffd", line.encode(errors="surrogateescape").decode(errors="replace"))


def _note(notes: list[str]) -> tuple[str, ...]:
    text = "; ".join(notes)
    return (f"[{text[0].upper()}{text[1:]}.]",) if text else ()


def _row(name: str, held: int) -> str:
    found = os.stat(name, dir_fd=held, follow_symlinks=False)
    if stat.S_ISDIR(found.st_mode):
        return f"{name}/"
    if stat.S_ISLNK(found.st_mode):
        return f"{name} -> {os.readlink(name, dir_fd=held)}"
    if stat.S_ISREG(found.st_mode):
        return f"{name}  {counted(found.st_size, 'byte')}"
    return f"{name}  ({kind_of(found.st_mode)})"


def _put(opened: OpenedPath, temporary: str, *, over: bool) -> None:
    """Give the written file its name; a new one only if nobody was faster, where the disk can tell."""
    folder = opened.folder
    if not over:
        try:
            os.link(temporary, opened.name, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
        except FileExistsError:
            raise
        except OSError:
            pass  # A disk without hard links.
        else:
            os.unlink(temporary, dir_fd=folder)
            return
    os.rename(temporary, opened.name, src_dir_fd=folder, dst_dir_fd=folder)


def _take_after(descriptor: int, before: os.stat_result) -> None:
    """Copy the owner, where that is allowed, and the permissions; not the set-uid bits, which a write clears too."""
    if (before.st_uid, before.st_gid) != (os.geteuid(), os.getegid()):
        with suppress(OSError):
            os.fchown(descriptor, before.st_uid, before.st_gid)
    os.fchmod(descriptor, stat.S_IMODE(before.st_mode) & 0o777)


def _sync_folder(folder: int) -> None:
    """Put the new name on the disk as well. Not every file system can; the file itself is safe by then."""
    with suppress(OSError):
        held = os.open(".", os.O_RDONLY | os.O_DIRECTORY, dir_fd=folder)
        try:
            os.fsync(held)
        finally:
            os.close(held)
