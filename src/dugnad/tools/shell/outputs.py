"""The output of commands: whole in files of the runtime, shortened for the model, and its last line for people.

The folder of a task has one file for each command, named after the call or the background job. Only the runtime writes
there, and no command can see it: the sandbox hides `.dugnad`. Such a folder may have come with the project, so every
file is opened in a folder that is held open, and no link is followed.
"""

from __future__ import annotations

import asyncio
import codecs
import itertools
import math
import os
import re
import stat
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

from ...prompts import tell
from ...safe_open import held
from ...settings import ShellLimits
from ...text import clean, one_line
from ...workspace.files.kept import files_in, make_file, open_file, remove_files
from ...workspace.sandbox.sandbox import CommandResult
from ..context import Piece
from ..note_tools import no_such_start

TAIL_BYTES = 64 * 1024
KEPT_BYTES = 2 * TAIL_BYTES  # Of an output that is whole on disk: its beginning and its end.
_AROUND_CHARS = 400  # For the text around an output in a result.
_ECHO_SECONDS = 0.25
_ECHO_BYTES = 2_048
_ECHO_CHARS = 120
_BLOCK_BYTES = 1024 * 1024
_NAME = re.compile(r"[0-9A-Za-z][0-9A-Za-z.-]{0,99}")
_CALL = re.compile(r"t[0-9]+\.e")  # How the key of a call begins; the folder is named after the task already.
# Whole sequences that a terminal obeys: colours, movements, window titles.
_ESCAPES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b[@-_]")


class Log:
    """Writes one command's output to the disk: the beginning as it comes, and of an output that is too long the end."""

    def __init__(self, folder: Path, name: str, bytes_max: int) -> None:
        self.name = name
        self.heard = 0  # Bytes, kept or not.
        self.trouble = ""  # Why it is not whole on disk.
        self._tail_max = min(TAIL_BYTES, bytes_max // 2)
        self._room = bytes_max - self._tail_max
        self._tail = bytearray()
        self._left_out = 0
        self._fd: int | None = None
        try:
            self._fd = make_file(folder, name)
        except FileExistsError:
            raise
        except OSError as error:
            self.trouble = error.strerror or str(error)

    @property
    def output(self) -> str:
        """The name it is read by."""
        return self.name.removesuffix(".log")

    def add(self, data: bytes) -> None:
        self.heard += len(data)
        self._write(data[: self._room])
        beyond = data[self._room :]
        self._room = max(0, self._room - len(data))
        self._tail += beyond
        if (over := len(self._tail) - self._tail_max) > 0:
            del self._tail[:over]
            self._left_out += over

    def close(self, ran: CommandResult | None = None, streamed_bytes_max: float = math.inf) -> None:
        """With the result, which has the end of the output also where not all of it was heard."""
        tail, left_out = bytes(self._tail), f"{self._left_out:,} bytes" if self._left_out else ""
        if ran is not None and ran.shortened and self.heard >= streamed_bytes_max:
            tail, left_out = ran.output[-self._tail_max :], "some part"
        if left_out:
            self._write(f"\n[... {left_out} left out: more than is kept ...]\n".encode())
        self._write(tail)
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _write(self, data: bytes) -> None:
        """A full disk does not end the command. Its result says that the output is not whole."""
        try:
            while data and self._fd is not None and not self.trouble:
                data = data[os.write(self._fd, data) :]
        except OSError as error:
            self.trouble = error.strerror or str(error)


class Outputs:
    """The folder of one task."""

    def __init__(self, folder: Path, limits: ShellLimits, streamed_bytes_max: float = math.inf) -> None:
        self.folder, self.limits = folder, limits
        self._streamed_max = streamed_bytes_max  # More of one output is not heard.
        self._writing: set[str] = set()

    def log_of_call(self, key: str) -> Log:
        name = re.sub(r"[^0-9A-Za-z.-]", "-", _CALL.sub("", key, count=1))
        # The same call a second time gets another name, so its first output stays what it was.
        return self._first_free([name, *(f"{name}-{again}" for again in range(1, 1_000))])

    def log_of_job(self, number: int) -> tuple[int, Log]:
        """With the first number from this one on that no job of the task has had, so that no name is used twice."""
        log = self._first_free(f"b{each}" for each in itertools.count(number))
        return int(log.output[1:]), log

    def _first_free(self, names: Iterable[str]) -> Log:
        for name in names:
            with suppress(FileExistsError):
                return self._open(f"{name}.log")
        raise FileExistsError(str(self.folder))

    def _open(self, name: str) -> Log:
        with suppress(OSError):  # The log says what is wrong; or another process makes room at the same moment.
            if not self.folder.is_dir():
                with held(self.folder, make=True):
                    pass
                self._make_room_among_tasks()
            self._make_room(self.limits.output_bytes_max)
        log = Log(self.folder, name, self.limits.output_bytes_max)
        self._writing.add(name)
        return log

    def close(self, log: Log, ran: CommandResult | None = None) -> None:
        log.close(ran, self._streamed_max)
        self._writing.discard(log.name)
        with suppress(OSError):
            self._make_room(0)

    def _make_room(self, more: int) -> None:
        """Remove the oldest files until this many bytes fit. Files that are being written stay."""
        found = files_in(self.folder, ".log")
        size = sum(about.st_size for about, _ in found) + more
        for about, name in sorted(found, key=lambda each: (each[0].st_mtime_ns, each[1])):
            if size <= self.limits.outputs_bytes_max:
                return
            if name not in self._writing:
                remove_files(self.folder, name)
                size -= about.st_size

    def _make_room_among_tasks(self) -> None:
        """Remove the outputs of the oldest other tasks. This runs for each new task: nothing else removes them."""
        tasks: list[tuple[int, int, Path, list[str]]] = []  # When it was last written to, its size, its files.
        for about, name in files_in(self.folder.parent, ""):
            if name.isdigit() and name != self.folder.name and stat.S_ISDIR(about.st_mode):
                found = files_in(self.folder.parent / name, ".log")
                last = max((each.st_mtime_ns for each, _ in found), default=0)
                size = sum(each.st_size for each, _ in found)
                tasks.append((last, size, self.folder.parent / name, [log for _, log in found]))
        size = sum(each for _, each, *_ in tasks) + self.limits.output_bytes_max
        for _, each, folder, logs in sorted(tasks):
            if size <= self.limits.all_outputs_bytes_max:
                return
            remove_files(folder, *logs)
            size -= each

    def has(self, output: str) -> bool:
        try:
            return f"{output}.log" in [name for _, name in files_in(self.folder, ".log")]
        except OSError:
            return False

    def piece(self, output: str, start: int, most: int) -> Piece | None:
        """Counted in characters, as for every other output. The file is read in blocks, since it may be long."""
        if not _NAME.fullmatch(output):
            return None
        try:
            file = open_file(self.folder, f"{output}.log")
        except OSError:
            return None
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        passed, kept = 0, ""
        with file:
            while len(kept) <= most:
                block = file.read(_BLOCK_BYTES)
                text = decoder.decode(block, final=not block)
                if start >= 0:
                    kept += text[max(0, start - passed) :][: most + 1 - len(kept)]
                passed += len(text)
                if not block:
                    break
        if not kept:
            raise no_such_start(output, passed)
        return Piece(kept[:most], len(kept) > most)


def in_short(text: str, most: int, *, size: int, output: str) -> str:
    """The beginning and the end of an output of `size` bytes that is kept whole under a name. The middle of `text` may
    be left out already."""
    most = room_for(most)
    if len(text) <= most and len(text.encode()) >= size:
        return text
    head, tail = text[: most * 2 // 3], text[-(most // 3) :]
    left_out = size - len(head.encode()) - len(tail.encode())
    note = tell("results.bytes_left_out", bytes=max(1, left_out), output=output, start=len(head))
    return f"{head}\n{note}\n{tail}"


def room_for(most: int) -> int:
    """How many characters of an output fit into a result of `most`. There are always as many in memory."""
    return max(300, min(most - _AROUND_CHARS, KEPT_BYTES * 3 // 16))


def not_kept(log: Log) -> str:
    return f"\n{tell('results.not_kept', trouble=log.trouble)}" if log.trouble else ""


def last_line(data: bytes, most: int = _ECHO_CHARS) -> str:
    """The last line that is not empty, or the end of it, harmless to a terminal."""
    plain = _ESCAPES.sub("", data.decode(errors="replace"))
    line = next((each for each in reversed(re.split(r"[\r\n]+", plain)) if each.strip()), "")
    flat = one_line(clean(line), _ECHO_BYTES)
    return flat if len(flat) <= most else f"…{flat[1 - most :]}"


class Echo:
    """Says the last line of the output: at once, and then at most a few times a second."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._heard = b""
        self._news = False
        self._pause: asyncio.TimerHandle | None = None

    def hear(self, data: bytes) -> None:
        self._heard = (self._heard + data[-_ECHO_BYTES:])[-_ECHO_BYTES:]
        self._news = True
        if self._pause is None:
            self._speak()

    def _speak(self) -> None:
        self._pause = None
        if self._news:
            self._news = False
            self._say(last_line(self._heard))
            self._pause = asyncio.get_running_loop().call_later(_ECHO_SECONDS, self._speak)

    def close(self) -> None:
        if self._pause is not None:
            self._pause.cancel()
