"""Attempts to get out of the sandbox, and what stands outside for them to reach.

Each attempt exits with 0 when it succeeded, and where it claims to have changed something outside, that is looked for
there. The same text runs without a sandbox first: an attempt that fails even then proves nothing.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import platform
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import psutil

from dugnad.workspace.sandbox.profile import REFUSED, Confinement, Machine, Profile, strict
from dugnad.workspace.sandbox.sandbox import Probe, Sandbox, find_bwrap

WORD = "the-secret-word"
PROCESS = "a process"
ORDINARY = 61_234  # A user that owns nothing on the machine but what it is given here.
BARE = Probe(level="none", says="None is wanted here.")
Who = Literal["root", "both"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    name: str
    code: str
    python: bool = False
    who: Who = "both"
    leaves: str = ""  # A path outside, or a process, that is there afterwards if it succeeded.
    when: str = "true"  # Whether this machine has what it is about; asked outside.
    proves: tuple[str, ...] = ()  # Options of the profile that stop it.
    filtered: bool = False  # The system call filter stops it as well.


def sh(name: str, code: str, who: Who = "both", *, proves: str = "", leaves: str = "", **more: object) -> Attempt:
    return Attempt(name=name, code=code, who=who, proves=_options(proves), leaves=leaves, **more)  # type: ignore[arg-type]


def py(name: str, code: str, who: Who = "both", *, proves: str = "", **more: object) -> Attempt:
    return Attempt(name=name, code=code, who=who, python=True, proves=_options(proves), **more)  # type: ignore[arg-type]


def call(name: str, arguments: str, who: Who = "both", *, proves: str = "filter", **more: object) -> Attempt:
    """A system call that the filter refuses; the call must be let through to count."""
    return py(f"call {name}", f"ask('{name}', {arguments})", who, proves=proves, **more)


def _options(text: str) -> tuple[str, ...]:
    return tuple(each for each in text.split("; ") if each)


PRELUDE = f"""
import ctypes, os, resource, signal, socket, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
numbers = {dict(REFUSED)!r}
def ask(name, *words):
    given = numbers[name][os.uname().machine == 'aarch64'] if isinstance(name, str) else name
    words = [ctypes.c_long(each) if isinstance(each, int) else each for each in words]
    answer = libc.syscall(ctypes.c_long(given), *words)
    if answer < 0:
        sys.exit(os.strerror(ctypes.get_errno()))
    return answer
def child():
    pid = os.fork()
    if pid == 0:
        signal.pause()
    return pid
room = ctypes.create_string_buffer(4096)
"""

FILES = (
    sh("read a file outside", "grep -q {word} {out}/secret"),
    sh("read a file beside the tree", "grep -q {word} ../outside/secret"),
    sh("read through a symbolic link", "ln -s {out}/secret link; grep -q {word} link"),
    sh("read through a hard link", "ln {out}/secret link && grep -q {word} link"),
    sh("read through another process", "grep -q {word} /proc/{victim}/root{out}/secret"),
    sh("read a key in a home", "grep -q {word} {out}/home/.ssh/id_ed25519"),
    sh("read who uses the machine", "grep -q ^daemon: /etc/passwd"),
    sh("read the password file", "grep -q ^root: /etc/shadow", "root"),
    sh("see that a file is there", "test -e {out}/secret"),
    sh("change the mode of a file outside", "chmod 640 {out}/secret"),
    sh("change the date of a file outside", "test -e {out}/secret && touch -c {out}/secret"),
    sh("write outside", "echo x > {out}/{unique}", leaves="{out}/{unique}"),
    sh("write beside the tree", "echo x > ../outside/{unique}", leaves="{out}/{unique}"),
    sh("move a file out", "echo x > it && mv it {out}/{unique}", leaves="{out}/{unique}"),
    sh("write through a symbolic link", "ln -s {out} link; echo x > link/{unique}", leaves="{out}/{unique}"),
    sh("write into the shared /tmp", "echo x > /tmp/{unique}", leaves="/tmp/{unique}"),
    sh("write into shared memory", "echo x > /dev/shm/{unique}", leaves="/dev/shm/{unique}", when="test -w /dev/shm"),
    sh("install a program", "echo x > /usr/local/{unique}", "root", leaves="/usr/local/{unique}"),
    sh("change the system's settings", "echo x > /etc/{unique}", "root", leaves="/etc/{unique}"),
    sh("write at the root", "echo x > /{unique} && rm /{unique}", "root", proves="--remount-ro /"),
    sh("leave a set-user-ID file", "cp /bin/true it; chmod u+s it && test -u it", proves="filter"),
    py("make a set-user-ID file", "it = os.open('it', os.O_CREAT, 0o4755); sys.exit(not os.fstat(it).st_mode & 0o4000)",
       proves="filter"),
    sh("make a device", "mknod it c 1 3", "root"),
)  # fmt: skip

PROTECTED = (
    sh("configure dugnad", "echo x > dugnad.toml", proves="--ro-bind {tree}/dugnad.toml"),
    sh("swap dugnad's settings", "echo x > it && mv -f it dugnad.toml", proves="--ro-bind {tree}/dugnad.toml"),
    sh("read the board", "grep -q {word} .dugnad/board.db", proves="{tree}/.dugnad"),
    sh("write on the board", "echo x > .dugnad/{unique}", proves="{tree}/.dugnad", leaves="{tree}/.dugnad/{unique}"),
    sh("plant a hook", "mkdir -p .git/hooks; echo x > .git/hooks/pre-commit", proves="--ro-bind {tree}/.git/hooks"),
    sh("swap the hooks", "rm -rf .git/hooks; ln -s / .git/hooks", proves="--ro-bind {tree}/.git/hooks"),
    sh("configure git", "echo x >> .git/config", proves="--ro-bind {tree}/.git/config"),
    sh("move git's folder away", "mv .git it && mkdir .git && echo x > .git/config", proves="--bind {tree}/.git"),
    sh("lend git another folder", "echo ../it > .git/commondir", proves="--ro-bind {tree}/.git/commondir"),
    sh("configure a worktree", "echo x > .git/config.worktree", proves="--ro-bind {tree}/.git/config.worktree"),
    sh("configure a submodule", "mkdir -p .git/modules/it", proves="--ro-bind {tree}/.git/modules"),
    sh("redirect a worktree", "mkdir -p .git/worktrees/it", proves="--ro-bind {tree}/.git/worktrees"),
    sh(
        "lend git a folder outside",
        "rm -f .git/shallow; ln -s {out} .git/shallow",
        proves="--ro-bind {tree}/.git/shallow",
    ),
    sh(
        "have git exclude a secret",
        "mkdir -p .git/info && ln -s {out}/secret .git/info/exclude",
        proves="--ro-bind {tree}/.git/info",
    ),
    sh("configure our own git", "mkdir -p .git/dugnad/git", proves="--ro-bind {tree}/.git/dugnad"),
)

PROCESSES = (
    sh("see another process", "grep -q {word} /proc/{victim}/cmdline", proves="--unshare-pid"),
    sh("read its environment", "grep -q {word} /proc/{victim}/environ"),
    py("read its memory", "open('/proc/{victim}/mem', 'rb')"),
    sh("signal it", "kill -CONT {victim}", proves="--unshare-pid"),
    py("hold on to it", "signal.pidfd_send_signal(os.pidfd_open({victim}), signal.SIGCONT)", proves="--unshare-pid"),
    py("starve it", "os.setpriority(os.PRIO_PROCESS, {victim}, 19)", proves="--unshare-pid"),
    py("limit it", "resource.prlimit({victim}, resource.RLIMIT_CORE, (0, 0))"),
    py("bind it to a core", "os.sched_setaffinity({victim}, {{0}})", proves="--unshare-pid"),
    sh("see its files", "ls /proc/{victim}/fd"),
    sh("see its memory", "grep -q . /proc/{victim}/maps"),
    sh("see where it works", "ls /proc/{victim}/cwd/"),
    sh("offer it to the kernel", "echo 1000 > /proc/{victim}/oom_score_adj", proves="--unshare-pid"),
    sh("stay behind", "mkfifo it; setsid sh -c 'echo up > it; sleep 600; : {unique}' >/dev/null 2>&1 & read up < it",
       proves="--unshare-pid", leaves=PROCESS),
    py("read shared memory", "libc.shmat.restype = ctypes.c_void_p; at = libc.shmat({shm}, None, 0o10000)\n"
       "sys.exit(at == ctypes.c_void_p(-1).value or ctypes.string_at(at) != b'{word}')", proves="--unshare-ipc"),
    sh("list shared memory", "grep -q ' {shm} ' /proc/sysvipc/shm", proves="--unshare-ipc"),
)  # fmt: skip

NETWORK = (
    py("reach a local server", "socket.create_connection(('127.0.0.1', {port}), 2)", proves="--unshare-net"),
    py("reach an abstract socket", "socket.socket(1).connect(chr(0) + '{unique}')", proves="--unshare-net"),
    py("reach a socket outside", "socket.socket(1).connect('{out}/socket')"),
    py("reach a socket in the tree", "socket.socket(1).connect('below/socket')", proves="{tree}/below/socket"),
    py("reach it under another name", "os.link('below/socket', 'it'); socket.socket(1).connect('it')",
       proves="{tree}/below/socket"),
    py("send to a socket in the tree", "socket.socket(1, 2).sendto(b'x', 'below/letters')",
       proves="{tree}/below/letters"),
    py("reach a socket of the board", "socket.socket(1).connect('.dugnad/socket')", proves="{tree}/.dugnad"),
    sh("see who listens", "grep -qi ':{port:04x} ' /proc/net/tcp", proves="--unshare-net"),
    sh("read the host's name", 'test "$(uname -n)" = "{host}"', proves="--hostname sandbox; --unshare-uts"),
    sh("read which group it is in", "grep -vE ':(/|/\\.\\..*)$' /proc/self/cgroup | grep -q :/",
       proves="--unshare-cgroup", when="grep -v ':/$' /proc/self/cgroup | grep -q :/"),
    py("talk to the hypervisor", "socket.socket(40, socket.SOCK_STREAM)", proves="filter",
       when="{python} -c 'import socket; socket.socket(40, 1)'"),
    py("listen to the wire", "socket.socket(17, socket.SOCK_RAW)", "root"),
    py("forge packets", "socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)", "root"),
    sh("look at the network's devices", "ls /sys/class/net | grep -q ."),
)  # fmt: skip

KERNEL = (
    sh("make a user namespace", "unshare -U true", proves="--unshare-user; --disable-userns", filtered=True),
    sh("make a network namespace", "unshare -n true", "root"),
    py("clone into a user namespace", "pid = ask({clone}, 0x10000000 | 17, 0, 0, 0, 0)\nos._exit(0)",
       proves="--disable-userns", filtered=True),
    sh("mount something", "mkdir it && mount -t tmpfs none it && umount it", "root"),
    py("name the machine", "socket.sethostname(socket.gethostname())", "root"),
    py("change the root", "os.chroot('.')", "root", proves="--cap-drop ALL", filtered=True),
    sh("set where cores go", ": >> /proc/sys/kernel/core_pattern", "root", proves="--ro-bind /proc/sys"),
    sh("drop the caches", ": >> /proc/sys/vm/drop_caches", "root", proves="--ro-bind /proc/sys"),
    sh("press a magic key", ": >> /proc/sysrq-trigger", "root", when="test -e /proc/sysrq-trigger"),
    sh("steer interrupts", ": >> /proc/irq/default_smp_affinity", "root", when="test -e /proc/irq"),
    sh("read the kernel's timers", "test -s /proc/timer_list || grep -q . /proc/timer_list", "root",
       proves="--ro-bind /dev/null /proc/timer_list", when="test -e /proc/timer_list"),
    sh("read the kernel's symbols", "head -1 /proc/kallsyms | grep -q .", proves="--ro-bind /dev/null /proc/kallsyms",
       when="test -e /proc/kallsyms"),
    *(sh(f"read /proc/{name}", f"head -c1 /proc/{name} | grep -q .", "root", proves=f"--ro-bind /dev/null /proc/{name}",
         when=f"head -c1 /proc/{name} | grep -q .") for name in ("keys", "key-users", "slabinfo", "vmallocinfo")),
    sh("steer the wake-up", ": >> /proc/acpi/wakeup", "root", proves="/proc/acpi", when="test -e /proc/acpi/wakeup"),
    sh("see the drivers", "ls /proc/driver | grep -q .", proves="/proc/driver", when="ls /proc/driver | grep -q ."),
    sh("set a trap on pressure", ": >> /proc/pressure/memory", "root", proves="--ro-bind /proc/pressure",
       when="test -e /proc/pressure/memory"),
    sh("turn on debugging", ": >> /proc/dynamic_debug/control", "root", proves="--ro-bind /proc/dynamic_debug",
       when="test -e /proc/dynamic_debug/control"),
    sh("read a disk", "for it in /dev/[svx][dv]? /dev/nvme?n?; do head -c1 $it && exit 0; done; exit 1", "root",
       when="for it in /dev/[svx][dv]? /dev/nvme?n?; do head -c1 $it && exit 0; done; exit 1"),
    sh("write to the kernel's log", ": >> /dev/kmsg", "root", when="test -e /dev/kmsg"),
    sh("make a loop device", ": < /dev/loop-control", "root", when="test -e /dev/loop-control"),
    py("read the kernel's log", "sys.exit(libc.klogctl(10, None, 0) < 0)", "root"),
    call("add_key", "b'user', b'it', b'x', 1, -3"), call("keyctl", "0, -3, 1"),
    call("process_vm_readv", "child(), struct.pack('QQ', ctypes.addressof(room), 8), 1, "
         "struct.pack('QQ', ctypes.addressof(room), 8), 1, 0"),
    py("make a namespace by the old entry", "import mmap\nit = mmap.mmap(-1, 4096, prot=7)\n"
       "it.write(bytes.fromhex('53b836010000bb00000010cd805bc3'))\n"
       "sys.exit(ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(it)))() != 0)",
       when="test $(uname -m) = x86_64 && zgrep -q IA32_EMULATION=y /proc/config.gz"),
    call("ptrace", "0x4206, child(), 0, 0"), call("kcmp", "os.getpid(), os.getpid(), 1, 0, 0"),
    call("name_to_handle_at", "-100, b'.', struct.pack('iI', 128, 0) + bytes(128), room, 0"),
    call("pidfd_getfd", "os.pidfd_open(child()), 0, 0"), call("userfaultfd", "1"),
    call("modify_ldt", "0, room, 64", when="test $(uname -m) = x86_64"),
    call("io_uring_setup", "4, room", when="test 0 = $(cat /proc/sys/kernel/io_uring_disabled || echo 0)"),
    call("bpf", "0, struct.pack('IIII', 2, 4, 4, 1) + bytes(112), 128", "root", proves=""),
    call("fanotify_init", "0, 0", "root", proves=""), call("acct", "0", "root", proves=""),
    call("perf_event_open", "struct.pack('IIQ', 1, 128, 0) + bytes(112), 0, -1, -1, 0", "root", proves=""),
    call("quotactl", "0x80000101, 0, 0, 0", "root", proves=""),
)  # fmt: skip

ATTEMPTS = (*FILES, *PROTECTED, *PROCESSES, *NETWORK, *KERNEL)


def find_python() -> str:
    """One that an ordinary user can run, and that is inside the sandbox too."""
    return next(each for each in ("/usr/bin/python3", "/usr/local/bin/python3") if os.access(each, os.X_OK))


def without(option: str, *, filtered: bool) -> Callable[[Confinement, Machine], Profile]:
    """The strict profile with an option taken out; and the filter, where it would stand in for the option."""

    def made(policy: Confinement, machine: Machine) -> Profile:
        whole = strict(policy, machine)
        gone = option.format(tree=policy.tree)
        needs = {"--unshare-user": ("--disable-userns",), "--unshare-uts": ("--hostname",)}.get(option, ())
        kept = tuple(
            each
            for each in whole.arguments
            if not _is(each, gone) and each[0] not in needs
        )  # fmt: skip
        assert option == "filter" or len(kept) < len(whole.arguments), f"the profile has no {option}"
        return Profile(kept, whole.files, b"" if filtered or option == "filter" else whole.filter)

    return made


def _is(words: tuple[str, ...], option: str) -> bool:
    """Whether it is the option, or a mount at that place."""
    return " ".join(words) == option or words[-1] == option or " ".join(words[:2]) == option


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """What stands outside: a secret, a process, servers, shared memory; all of one user."""

    folder: Path
    user: int | None
    words: dict[str, object]
    bwrap: Path

    def sandbox(self, profile: Callable[[Confinement, Machine], Profile] = strict, *, bare: bool = False) -> Sandbox:
        found = BARE if bare else Probe(level="strict", says="", bwrap=self.bwrap)
        return Sandbox(found, unsafe=bare, user=self.user, profile=profile)

    async def gets_out(self, attempt: Attempt, sandbox: Sandbox, *, number: str) -> bool:
        """Make the attempt in a tree of its own."""
        tree = self.folder / f"tree-{number}"
        words = {**self.words, "tree": tree}
        await asyncio.to_thread(make_tree, tree, self.user)
        listeners = []
        for name, kind in ((".dugnad/socket", 1), ("below/socket", 1), ("below/letters", 2)):
            listeners.append(socket.socket(socket.AF_UNIX, kind))
            listeners[-1].bind(f"{tree}/{name}")
            if kind == 1:
                listeners[-1].listen()
            own(tree / name, self.user)
        text = attempt.code.format(**words)
        if attempt.python:
            (tree / "attempt.py").write_text(PRELUDE + text)
            text = f"{words['python']} {tree}/attempt.py"
        try:
            ran = await sandbox.run(text, tree=tree, seconds=30, output_bytes_max=4_000)
            return find_left(attempt.leaves.format(**words), words) if attempt.leaves else ran.code == 0
        finally:
            for listener in listeners:
                listener.close()
            shutil.rmtree(tree, ignore_errors=True)

    def applies(self, attempt: Attempt) -> bool:
        if attempt.who == "root" and (os.getuid() != 0 or self.user is not None):
            return False
        asked = attempt.when.format(**self.words)
        return subprocess.run(["/bin/sh", "-c", asked], capture_output=True, check=False).returncode == 0


def find_left(what: str, words: dict[str, object]) -> bool:
    """Whether an attempt left something, and away with it."""
    if what != PROCESS:
        found = os.path.exists(what)
        Path(what).unlink(missing_ok=True)
        return found
    mark = f": {words['unique']}".encode()
    left = [each.pid for each in psutil.process_iter() if mark in " ".join(command_of(each)).encode()]
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    return bool(left)


def command_of(process: psutil.Process) -> list[str]:
    try:
        return list(process.cmdline())
    except psutil.Error:
        return []


def own(path: Path, user: int | None) -> None:
    if user is not None:
        os.chown(path, user, user, follow_symlinks=False)


def make_tree(tree: Path, user: int | None) -> None:
    """A tree with the beginnings of a repository, and a board."""
    for each in (tree, tree / ".git", tree / ".dugnad", tree / "below"):
        each.mkdir()
        own(each, user)
    for file in (tree / ".git" / "HEAD", tree / ".dugnad" / "board.db"):
        file.write_text(WORD)
        own(file, user)


def start_victim(user: int | None) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        ["/bin/sh", "-c", "while :; do sleep 600; done", WORD], env={"TOKEN": WORD}, cwd="/", start_new_session=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        user=user, group=user, extra_groups=None if user is None else [],
    )  # fmt: skip


@asynccontextmanager
async def stage(user: int | None) -> AsyncIterator[Stage]:
    folder = Path(await asyncio.to_thread(tempfile.mkdtemp, prefix="dugnad-stage-"))
    bwrap = find_bwrap(os.environ["PATH"], outside=Path("/nonexistent"))
    assert bwrap is not None, "bubblewrap is missing: run make setup, or install it"
    unique = f"{folder.name}-left"
    out = folder / "outside"
    for each in (folder, out, out / "home", out / "home" / ".ssh"):
        os.makedirs(each, exist_ok=True)
        os.chmod(each, 0o755)
        own(each, user)
    for secret in (out / "secret", out / "home" / ".ssh" / "id_ed25519"):
        secret.write_text(WORD)
        own(secret, user)
    victim = start_victim(user)
    listeners = [socket.socket(), socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)]
    for listener, address in zip(listeners, (("127.0.0.1", 0), f"\0{unique}", f"{out}/socket"), strict=True):
        listener.bind(address)
        listener.listen(64)
    own(out / "socket", user)
    libc = ctypes.CDLL(None, use_errno=True)
    libc.shmat.restype = ctypes.c_void_p
    shm = libc.shmget(0, 4096, 0o1666)
    ctypes.memmove(libc.shmat(shm, None, 0), WORD.encode(), len(WORD))
    words = {
        "word": WORD, "out": out, "unique": unique, "victim": victim.pid, "port": listeners[0].getsockname()[1],
        "shm": shm, "host": platform.node(), "python": find_python(),
        "clone": 56 if platform.machine() == "x86_64" else 220,
    }  # fmt: skip
    try:
        yield Stage(folder=folder, user=user, words=words, bwrap=bwrap)
    finally:
        os.killpg(victim.pid, signal.SIGKILL)
        victim.wait()
        libc.shmctl(shm, 0, None)
        for listener in listeners:
            listener.close()
        shutil.rmtree(folder, ignore_errors=True)
