"""What a command may see, touch and ask the kernel for: pure, so that each line can be taken out and tested.

A `Confinement` says what is wanted. It becomes bubblewrap's arguments and a seccomp program. Nothing here looks at the
machine: `Machine` says what matters of it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from .destinations import PROXY_PORT, parse_hosts
from .services import LOOPBACK, Service, hosts_file, names_beside

HOME = "/tmp/home"
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# A placeholder of dugnad.toml may stand in the tree, and `git add -A` must not take it for the project's.
_EXCLUDES = "/etc/gitexcludes"
_GIT = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "core.excludesFile", "GIT_CONFIG_VALUE_0": _EXCLUDES}
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
# Of /etc only what programs break without, and nothing that says who uses this machine or how.
ETC = (
    "/etc/alternatives", "/etc/crypto-policies", "/etc/fonts", "/etc/java-17-openjdk", "/etc/java-21-openjdk",
    "/etc/ld.so.cache", "/etc/localtime", "/etc/mime.types", "/etc/os-release", "/etc/pki/tls", "/etc/services",
    "/etc/ssl/certs", "/etc/ssl/openssl.cnf",
)  # fmt: skip
# Root inside is root outside to the file modes of /proc, and these steer or show the whole machine. bubblewrap covers
# some of them by itself; what it leaves out differs with its version.
PROC_READ_ONLY = ("sys", "fs", "dynamic_debug", "pressure")
PROC_HIDDEN = (
    "kcore", "keys", "key-users", "kmsg", "kallsyms", "timer_list", "timer_stats", "sched_debug", "latency_stats",
    "sysrq-trigger", "mtrr", "kpagecount", "kpageflags", "kpagecgroup", "slabinfo", "vmallocinfo",
)  # fmt: skip
PROC_EMPTY = ("acpi", "scsi", "asound", "driver")


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandLimits:
    """What one command may use up, besides its wall clock and the output that is kept."""

    cpu_seconds_max: int = 1_800  # Of one process.
    memory_bytes_max: int = 8 * 1024**3  # Of one process, and of the command where a cgroup can be made.
    file_bytes_max: int = 4 * 1024**3  # Of one file.
    processes_max: int = 512
    open_files_max: int = 4_096  # Of one process.
    streamed_bytes_max: int = 64 * 1024**2  # Of output that is told as it comes, if somebody listens.
    scratch_bytes_max: int = 2 * 1024**3  # Of /tmp and of /dev/shm, which are memory.


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What matters of the machine that commands run on."""

    architecture: str = "x86_64"
    proc: frozenset[str] = frozenset()  # The names in /proc: what is not there cannot be covered.
    links: Mapping[str, str] = field(default_factory=dict)  # Of the system's folders those that are links, and whereto.
    user: int = 1_000
    group: int = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Confinement:
    """What one command can reach: a writable tree, read-only toolchains, and what is kept from it in the tree."""

    tree: Path
    readable: tuple[Path, ...] = ()
    read_only: tuple[Path, ...] = ()  # Inside the tree; they exist by the time the command starts.
    anchored: tuple[Path, ...] = ()  # Inside the tree, writable, but not to be moved away with what is in them.
    hidden: tuple[Path, ...] = ()  # Folders inside the tree that look empty, and stay so.
    covered: tuple[Path, ...] = ()  # Sockets that others have there.
    environment: Mapping[str, str] = field(default_factory=dict)
    hosts: tuple[str, ...] = ()  # What can be reached through the proxy; the network itself is always empty.
    services: tuple[Service, ...] = ()  # What is reached directly, at its own address and port, and by the proxy too.
    limits: CommandLimits = field(default_factory=CommandLimits)
    scratch: Path | None = None  # A folder outside the tree that is /tmp. None: /tmp is empty for each command.

    @property
    def shared_scratch(self) -> Path | None:
        """The scratch folder, unless something else is mounted beneath /tmp: a command could have left a link where
        bubblewrap makes the folders for it."""
        beneath = any(each.is_relative_to("/tmp") for each in (self.tree, *self.readable))
        return None if beneath else self.scratch


@dataclass(frozen=True, slots=True)
class Profile:
    """Bubblewrap's arguments, the files that it makes from bytes, and its seccomp program."""

    arguments: tuple[tuple[str, ...], ...]
    files: tuple[tuple[str, bytes], ...]
    filter: bytes


def environment_for(policy: Confinement) -> dict[str, str]:
    """All variables a command sees. The caller's own environment is not among the sources."""
    found = [str(each / "bin") for each in policy.readable]
    own = {"HOME": HOME, "PATH": ":".join([*found, _PATH]), "TMPDIR": "/tmp", "TERM": "dumb", "USER": "teammate"}
    if policy.hosts or policy.services:
        # Programs differ in which of them they read, and in which case; what runs on the loopback is reached directly.
        proxy = f"http://127.0.0.1:{PROXY_PORT}"
        direct = ("localhost", *LOOPBACK, *names_beside(policy.services, parse_hosts(policy.hosts)))
        own |= {name: proxy for word in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY") for name in (word, word.lower())}
        own |= dict.fromkeys(("NO_PROXY", "no_proxy"), ",".join(dict.fromkeys(direct)))
    return {**own, "LOGNAME": "teammate", "LANG": "C.UTF-8", **policy.environment}


def strict(policy: Confinement, machine: Machine) -> Profile:
    """The tightest world in which ordinary work still runs. The order matters: later mounts cover earlier ones."""
    tree = str(policy.tree)
    arguments: list[tuple[str, ...]] = [
        ("--unshare-user",), ("--unshare-pid",), ("--unshare-ipc",), ("--unshare-uts",), ("--unshare-cgroup",),
        ("--unshare-net",), ("--disable-userns",), ("--cap-drop", "ALL"), ("--die-with-parent",), ("--new-session",),
        ("--clearenv",), ("--hostname", "sandbox"),
    ]  # fmt: skip
    arguments += [("--setenv", name, value) for name, value in {**_GIT, **environment_for(policy)}.items()]
    arguments += [("--ro-bind-try", each, each) for each in (*SYSTEM, *ETC) if each not in machine.links]
    arguments += [("--symlink", target, each) for each, target in machine.links.items()]
    arguments += [("--proc", "/proc"), *_proc_covers(machine), ("--dev", "/dev")]
    size = str(policy.limits.scratch_bytes_max)
    # A size stands before the mount it is for, so the two are one.
    scratch = policy.shared_scratch
    own = ("--size", size, "--tmpfs", "/tmp") if scratch is None else ("--bind", str(scratch), "/tmp")
    arguments += [("--size", size, "--tmpfs", "/dev/shm"), own, ("--dir", HOME)]
    within = [each for each in policy.readable if each.is_relative_to(policy.tree)]
    arguments += [("--ro-bind", str(each), str(each)) for each in policy.readable if each not in within]
    arguments += [("--bind", tree, tree), *(("--ro-bind", str(each), str(each)) for each in within)]
    arguments += [("--bind", str(each), str(each)) for each in policy.anchored]
    arguments += [("--ro-bind", str(each), str(each)) for each in policy.read_only]
    arguments += [("--ro-bind", "/dev/null", str(each)) for each in policy.covered]
    arguments += [argument for each in policy.hidden for argument in _emptied(str(each))]
    arguments += [("--remount-ro", "/dev"), ("--remount-ro", "/"), ("--chdir", tree)]
    return Profile(tuple(arguments), _files(machine, policy.services), seccomp(machine.architecture))


def _proc_covers(machine: Machine) -> Iterator[tuple[str, ...]]:
    for name in (*PROC_READ_ONLY, *PROC_HIDDEN, *PROC_EMPTY):
        path = f"/proc/{name}"
        if name in machine.proc and name in PROC_EMPTY:
            yield from _emptied(path)
        elif name in machine.proc:
            yield "--ro-bind", "/dev/null" if name in PROC_HIDDEN else path, path


def _emptied(folder: str) -> Iterator[tuple[str, ...]]:
    yield "--size", "4096", "--tmpfs", folder
    yield "--remount-ro", folder


def _files(machine: Machine, services: tuple[Service, ...]) -> tuple[tuple[str, bytes], ...]:
    """A user list with nobody in it but the command's own user."""
    passwd = f"teammate:x:{machine.user}:{machine.group}::{HOME}:/bin/sh\n"
    return (
        ("/etc/passwd", passwd.encode()),
        ("/etc/group", f"teammate:x:{machine.group}:\n".encode()),
        (_EXCLUDES, b"/dugnad.toml\n"),
        ("/etc/hosts", hosts_file(services)),
        ("/etc/nsswitch.conf", b"passwd: files\ngroup: files\nhosts: files dns\n"),
    )


# The seccomp program. Numbers as in the kernel's tables: x86_64, aarch64; None where it has no such call.

REFUSED: Mapping[str, tuple[int | None, int | None]] = {
    # Namespaces and mounts.
    "unshare": (272, 97), "setns": (308, 268), "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41),
    "chroot": (161, 51), "open_tree": (428, 428), "move_mount": (429, 429), "fsopen": (430, 430),
    "fsconfig": (431, 431), "fsmount": (432, 432), "fspick": (433, 433), "mount_setattr": (442, 442),
    "open_tree_attr": (467, 467), "open_by_handle_at": (304, 265), "name_to_handle_at": (303, 264),
    # Other processes, and what the kernel keeps for a user rather than for a namespace.
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "kcmp": (312, 272),
    "pidfd_getfd": (438, 438), "add_key": (248, 217), "request_key": (249, 218), "keyctl": (250, 219),
    # Large surfaces that have been ways into the kernel.
    "bpf": (321, 280), "perf_event_open": (298, 241), "userfaultfd": (323, 282), "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426), "io_uring_register": (427, 427), "fanotify_init": (300, 262),
    "modify_ldt": (154, None), "lookup_dcookie": (212, 18),
    # The machine as a whole.
    "acct": (163, 89), "init_module": (175, 105), "finit_module": (313, 273), "delete_module": (176, 106),
    "kexec_load": (246, 104), "kexec_file_load": (320, 294), "reboot": (169, 142), "swapon": (167, 224),
    "swapoff": (168, 225), "sethostname": (170, 161), "setdomainname": (171, 162), "settimeofday": (164, 170),
    "clock_settime": (227, 112), "adjtimex": (159, 171), "clock_adjtime": (305, 266), "iopl": (172, None),
    "ioperm": (173, None), "quotactl": (179, 60), "quotactl_fd": (443, 443), "syslog": (103, 116),
    "nfsservctl": (180, 42), "vhangup": (153, 58),
}  # fmt: skip
# Asked for by pointer, so they cannot be looked into; programs fall back to the older call when it seems not to exist.
_UNKNOWN: Mapping[str, tuple[int | None, int | None]] = {"clone3": (435, 435), "openat2": (437, 437)}
# Which argument holds the mode: a set-user-ID file that root makes in the tree would be one outside as well.
_MODES: Mapping[str, tuple[int | None, int | None, int]] = {
    "chmod": (90, None, 1), "fchmod": (91, 52, 1), "fchmodat": (268, 53, 2), "fchmodat2": (452, 452, 2),
    "open": (2, None, 2), "openat": (257, 56, 3), "creat": (85, None, 1), "mknod": (133, None, 1),
    "mknodat": (259, 33, 2),
}  # fmt: skip
_CLONE, _SOCKET = (56, 220), (41, 198)
_NEW_NAMESPACES = 0x7E020000  # CLONE_NEWNS, CGROUP, UTS, IPC, USER, PID, NET. TIME is for unshare alone.
_FORK, _CLONE_THREAD, _CLONE_VFORK = 57, 0x10000, 0x4000
_SET_ID_BITS = 0o6000
_MAKES_A_FILE = 0o20000100  # O_CREAT, O_TMPFILE. Without them the mode is whatever was left in the register.
_FAMILIES = (1, 2, 10, 16)  # AF_UNIX, AF_INET, AF_INET6, AF_NETLINK. AF_VSOCK would reach past every namespace.
_AUDIT = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_X32 = 0x40000000  # x86_64 has a second set of numbers from here on.

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
_EPERM, _ENOSYS, _EAFNOSUPPORT = 1, 38, 97


def _step(code: int, value: int, yes: int = 0, no: int = 0) -> bytes:
    return struct.pack("=HBBI", code, yes, no, value)


def _when(number: int, block: bytes) -> bytes:
    """Run the block if the call has this number, and skip it otherwise. The number is loaded already."""
    return _step(_EQUAL, number, 0, len(block) // 8) + block


def _refuse(errno: int) -> bytes:
    return _step(_RETURN, _ERRNO | errno)


def _argument(index: int) -> bytes:
    return _step(_LOAD, 16 + 8 * index)  # The low half; what is looked at fits into it.


def _begin(architecture: str) -> tuple[int, bytes]:
    """Which column of numbers holds, and the steps that see to it that no other does. They load the call's number."""
    if architecture not in _AUDIT:
        raise ValueError(f"There is no system call filter for {architecture}.")
    program = _step(_LOAD, 4) + _step(_EQUAL, _AUDIT[architecture], 1, 0) + _step(_RETURN, _KILL) + _step(_LOAD, 0)
    if architecture == "x86_64":
        return 0, program + _step(_AT_LEAST, _X32, 0, 1) + _refuse(_ENOSYS)
    return 1, program


def seccomp(architecture: str) -> bytes:
    """A program that refuses what no ordinary job asks the kernel for. ValueError: no numbers for this machine."""
    column, program = _begin(architecture)
    for calls, errno in ((REFUSED, _EPERM), (_UNKNOWN, _ENOSYS)):
        for numbers in calls.values():
            if (number := numbers[column]) is not None:
                program += _when(number, _refuse(errno))
    allow = _step(_RETURN, _ALLOW)
    for name, (*pair, index) in _MODES.items():
        if (number := pair[column]) is not None:
            block = _argument(index) + _step(_ANY_BIT, _SET_ID_BITS, 0, 1) + _refuse(_EPERM) + allow
            if name in ("open", "openat"):
                block = _argument(index - 1) + _step(_ANY_BIT, _MAKES_A_FILE, 1, 0) + allow + block
            program += _when(number, block)
    fresh = _argument(0) + _step(_ANY_BIT, _NEW_NAMESPACES, 0, 1) + _refuse(_EPERM) + allow
    program += _when(_CLONE[column], fresh)
    known = b"".join(_step(_EQUAL, family, len(_FAMILIES) - at) for at, family in enumerate(_FAMILIES))
    program += _when(_SOCKET[column], _argument(0) + known + _refuse(_EAFNOSUPPORT) + allow)
    return program + allow


def childless(architecture: str) -> bytes:
    """A filter under which no program can be started and no socket made. ValueError: no numbers for this machine.

    Git itself is started under it: by vfork, which has a number of its own on x86_64, and which git never calls.
    Threads can be made.
    """
    column, program = _begin(architecture)
    if column == 0:
        program += _when(_FORK, _refuse(_EPERM))
    allowed = (_CLONE_THREAD, _CLONE_THREAD | _CLONE_VFORK)[column]
    program += _when(_UNKNOWN["clone3"][column] or 0, _refuse(_ENOSYS))
    allow = _step(_RETURN, _ALLOW)
    program += _when(_CLONE[column], _argument(0) + _step(_ANY_BIT, allowed, 1, 0) + _refuse(_EPERM) + allow)
    return program + _when(_SOCKET[column], _refuse(_EAFNOSUPPORT)) + allow
