"""A small process that starts commands, so that the large one never forks: `python -m dugnad.workspace.starter`.

It is a child subreaper with nothing in memory or environment worth taking. It reads one JSON request a line and answers
one JSON line each; it keeps time and output within bounds, kills by SIGKILL to bubblewrap and with it the whole pid
namespace, reaps what is left, and takes away what it made. It ends when its input does, or when its parent is gone.

It knows nothing of policies: it is handed arguments, and runs them.
"""

from __future__ import annotations

import base64
import ctypes
import json
import os
import re
import select
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .bounds import Output, join_group, make_groups, remove_group, remove_stale_groups, set_limits

_PR_SET_CHILD_SUBREAPER = 36
_LOOK_SECONDS = 1.0  # Between two looks at whether the parent is still there.
_READ_BYTES = 65_536
_PLACEHOLDER_DATE = 7  # Seconds after the beginning of 1970. It tells what was made here from what somebody has.
_EXIT_CODE = re.compile(rb'"exit-code": *(\d+)')


@dataclass(slots=True)
class Job:
    """One command under way."""

    id: int
    outer: int  # The pid that was forked: bubblewrap, or the bare shell.
    output_fd: int
    status_fd: int  # Where bubblewrap tells the pid of its namespace's init, and the command's exit code.
    output: Output
    began: float
    ends: float
    holds: list[tuple[str, str | None]]
    groups: list[str]
    bare: bool
    to_stream: int  # Bytes of output that are still told as they come.
    status: bytes = b""
    ended_as: int | None = None  # The wait status of the outer process.
    timed_out: bool = False


class Starter:
    """The loop of the process."""

    def __init__(self) -> None:
        self.parent = os.getppid()
        self.jobs: dict[int, Job] = {}
        self.held: dict[str, int] = {}  # How many commands need a placeholder that was made for them.
        self.busy: list[str] = []  # Groups that something in them outlived; only bare commands leave such.
        self.pending = b""
        self.poll = select.epoll()
        self.wake_read, self.wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def run(self) -> None:
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        signal.signal(signal.SIGCHLD, lambda *_: None)  # Wakes the loop; the work is done there.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        signal.set_wakeup_fd(self.wake_write, warn_on_full_buffer=False)
        for fd in (0, self.wake_read):
            os.set_blocking(fd, False)
            self.poll.register(fd, select.EPOLLIN)
        remove_stale_groups()
        try:
            while self.step():
                pass
        finally:
            self.end()

    def step(self) -> bool:
        """One round: what was asked, what was said, what ended, whose time is up. False: there is nobody to serve."""
        now = time.monotonic()
        soonest = min((job.ends for job in self.jobs.values()), default=now + _LOOK_SECONDS)
        ready = dict(self.poll.poll(max(0.0, min(soonest - now, _LOOK_SECONDS))))
        if self.wake_read in ready:
            _drain(self.wake_read)
        if 0 in ready and not self.take_requests():
            return False
        for job in list(self.jobs.values()):
            if job.output_fd in ready:
                self.hear(job)
        self.reap()
        now = time.monotonic()
        for job in list(self.jobs.values()):
            if job.ended_as is not None:
                self.finish(job)
            elif now >= job.ends:
                job.timed_out, job.ends = True, now + _LOOK_SECONDS
                self.kill(job)
        return os.getppid() == self.parent

    # Requests.

    def take_requests(self) -> bool:
        try:
            data = os.read(0, 1 << 20)
        except BlockingIOError:
            return True
        if not data:
            return False
        *lines, self.pending = (self.pending + data).split(b"\n")
        for line in lines:
            request = json.loads(line)
            if "end" in request:
                if job := self.jobs.get(request["end"]):
                    self.kill(job)
                continue
            try:
                self.start(request)
            except OSError as error:
                _say({"id": request["id"], "trouble": f"{error.strerror}: {error.filename or 'the command'}"})
        return True

    def start(self, request: dict[str, Any]) -> None:
        holds: list[tuple[str, str | None]] = []
        groups: list[str] = []
        fds: list[int] = []
        output_read, output_write = os.pipe2(os.O_CLOEXEC)
        status_read, status_write = os.pipe2(os.O_CLOEXEC)
        try:
            for path, content in request["holds"]:
                self.hold(path, content, request.get("user"))
                holds.append((path, content))
            groups = make_groups(f"dugnad-{os.getpid()}-{request['id']}", request["limits"])
            program = os.open(request["program"], os.O_RDONLY | os.O_CLOEXEC)
            fds.append(program)
            argv = list(request["argv"])
            if not request["bare"]:
                argv = [argv[0], *self.options(request, status_write, fds), *argv[1:]]
            pid = os.fork()
        except OSError:
            for fd in (output_read, output_write, status_read, status_write, *fds):
                os.close(fd)
            self.let_go(holds, groups)
            raise
        if pid == 0:
            _become(request, program, argv, output_write, [status_write, *fds[1:]], groups)
        for fd in (output_write, status_write, *fds):
            os.close(fd)
        for fd in (output_read, status_read):
            os.set_blocking(fd, False)
        now = time.monotonic()
        output = Output(request["output_bytes_max"])
        ends = now + request["seconds"]
        self.jobs[request["id"]] = Job(
            request["id"], pid, output_read, status_read, output, now, ends, holds, groups, request["bare"],
            request["streamed_bytes_max"],
        )  # fmt: skip
        self.poll.register(output_read, select.EPOLLIN)

    def options(self, request: dict[str, Any], status_fd: int, fds: list[int]) -> list[str]:
        """Bubblewrap's options go through a file: on its command line everybody on the machine could read them."""
        given = list(request["options"])
        for path, content in request["files"]:
            fds.append(_file_of(base64.b64decode(content)))
            # First of all, so that a later mount can only cover it, and the read-only root holds.
            given[:0] = ["--ro-bind-data", str(fds[-1]), path]
        if request["filter"]:
            fds.append(_file_of(base64.b64decode(request["filter"])))
            given += ["--seccomp", str(fds[-1])]
        given += ["--json-status-fd", str(status_fd)]
        fds.append(_file_of("\0".join(given).encode("utf-8", "surrogateescape") + b"\0"))
        return ["--args", str(fds[-1])]

    # Placeholders: what must not be made by a command exists while one runs.

    def hold(self, path: str, content: str | None, user: int | None) -> None:
        """Make what is protected and not there: a folder, or a file with this content."""
        if path not in self.held:
            try:
                if content is None:
                    os.mkdir(path, 0o755)
                else:
                    fd = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW, 0o644)
                    os.write(fd, content.encode())
                    os.close(fd)
                if user is not None:
                    os.chown(path, user, -1, follow_symlinks=False)
                os.utime(path, (_PLACEHOLDER_DATE, _PLACEHOLDER_DATE), follow_symlinks=False)
            except FileExistsError:
                pass
        self.held[path] = self.held.get(path, 0) + 1

    def let_go(self, holds: list[tuple[str, str | None]], groups: list[str]) -> None:
        """Take placeholders away with the last command that needed them, also those an ended starter left."""
        for path, content in reversed(holds):
            self.held[path] -= 1
            if self.held[path]:
                continue
            del self.held[path]
            try:
                if os.lstat(path).st_mtime != _PLACEHOLDER_DATE:
                    continue
                if content is None:
                    os.rmdir(path)
                elif Path(path).read_text() == content:
                    os.unlink(path)
            except OSError:
                pass  # Not empty, or gone: then it is not ours any more.
        self.busy += [group for group in groups if not remove_group(group)]

    # Ends.

    def hear(self, job: Job) -> None:
        try:
            data = os.read(job.output_fd, _READ_BYTES)
        except BlockingIOError:
            return
        self.keep(job, data)
        if not data:
            self.poll.unregister(job.output_fd)

    def keep(self, job: Job, data: bytes) -> None:
        job.output.add(data)
        if told := data[: job.to_stream]:
            job.to_stream -= len(told)
            _say({"id": job.id, "said": base64.b64encode(told).decode()})

    def kill(self, job: Job) -> None:
        if job.ended_as is None:
            os.kill(job.outer, signal.SIGKILL)

    def reap(self) -> None:
        outers = {job.outer: job for job in self.jobs.values()}
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if job := outers.get(pid):
                job.ended_as = status

    def finish(self, job: Job) -> None:
        """Answer when nothing of the command lives; until then it is asked again with every child that ends."""
        job.status += _drain(job.status_fd)
        known = {each.outer for each in self.jobs.values() if each.ended_as is None}
        # Bubblewrap may end before the namespace it made; its init is then left to us, and takes all others with it.
        left = _processes(3, job.outer) if job.bare else [pid for pid in _children() if pid not in known]
        if left:
            for pid in left:
                _kill(pid)
            job.ends = time.monotonic() + 0.02
            return
        self.keep(job, _drain(job.output_fd))
        self.poll_forget(job.output_fd)
        os.close(job.output_fd)
        os.close(job.status_fd)
        self.let_go(job.holds, job.groups)
        del self.jobs[job.id]
        assert job.ended_as is not None
        code: int | None = (ended := os.waitstatus_to_exitcode(job.ended_as))
        if not job.bare:
            found = _EXIT_CODE.search(job.status)
            # Without one the command was never started, unless bubblewrap was killed on the way, as memory ran out.
            code = int(found[1]) if found else 128 - ended if ended < 0 and b"child-pid" in job.status else None
        output = base64.b64encode(job.output.whole()).decode()
        _say(
            {
                "id": job.id, "code": code, "output": output, "timed_out": job.timed_out,
                "shortened": job.output.left_out > 0, "seconds": time.monotonic() - job.began,
            }
        )  # fmt: skip

    def poll_forget(self, fd: int) -> None:
        try:
            self.poll.unregister(fd)
        except FileNotFoundError:
            pass

    def end(self) -> None:
        """Leave nothing behind: commands, their namespaces, placeholders, cgroups."""
        for job in self.jobs.values():
            self.kill(job)
        for child in _children():
            _kill(child)
        for _ in range(500):
            try:
                if os.waitpid(-1, os.WNOHANG) == (0, 0):
                    for child in _children():  # Also what only now became ours, its parent being gone.
                        _kill(child)
                    time.sleep(0.01)
            except ChildProcessError:
                break
        for job in self.jobs.values():
            self.let_go(job.holds, job.groups)
        for group in self.busy:
            remove_group(group)


def _become(
    request: dict[str, Any], program: int, argv: list[str], output: int, keep: list[int], groups: list[str]
) -> None:
    """In the child: join the cgroups, take on the limits and the user, and turn into the command. Never returns."""
    try:
        for group in groups:
            join_group(group)
        null = os.open("/dev/null", os.O_RDONLY)
        os.dup2(null, 0)
        os.dup2(output, 1)
        os.dup2(output, 2)
        if request.get("user") is not None:
            os.setgroups([])
            os.setgid(request["user"])
            os.setuid(request["user"])
        set_limits(request["limits"])
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        if request["bare"]:
            os.setsid()
            os.chdir(request["tree"])
            keep = []
        for fd in keep:
            os.set_inheritable(fd, True)
        os.execve(program, argv, request["environment"] if request["bare"] else {})
    except BaseException as error:
        os.write(2, f"dugnad: the command could not be started: {error}\n".encode())
    os._exit(126)


def _file_of(content: bytes) -> int:
    fd = os.memfd_create("dugnad", os.MFD_CLOEXEC)
    os.write(fd, content)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def _drain(fd: int) -> bytes:
    found = b""
    while True:
        try:
            data = os.read(fd, _READ_BYTES)
        except BlockingIOError:
            return found
        if not data:
            return found
        found += data


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def _children() -> list[int]:
    try:
        return [int(pid) for pid in Path("/proc/thread-self/children").read_text().split()]
    except OSError:
        return _processes(1, os.getpid())


def _processes(field: int, value: int) -> list[int]:
    """The living processes with this value in their stat: the parent is in field 1, the session in field 3."""
    found: list[int] = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                about = Path("/proc", entry, "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(about[field]) == value and about[0] not in "ZX":
                found.append(int(entry))
    return found


def _say(answer: dict[str, Any]) -> None:
    data = json.dumps(answer).encode() + b"\n"
    while data:
        data = data[os.write(1, data) :]


if __name__ == "__main__":
    Starter().run()
