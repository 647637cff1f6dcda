"""The policy as data: which calls the filter refuses, on both machines, and what bubblewrap is told."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from dugnad.workspace.sandbox.profile import REFUSED, Confinement, Machine, environment_for, seccomp, strict

MACHINES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
ALLOWED, KILLED, EPERM, ENOSYS, EAFNOSUPPORT = 0x7FFF0000, 0x80000000, 0x50001, 0x50026, 0x50061
# read, write, execve, exit_group, futex, mmap, connect, fork by clone.
ORDINARY = {"x86_64": (0, 1, 59, 231, 202, 9, 42, 56), "aarch64": (63, 64, 221, 94, 98, 222, 203, 220)}
POLICY = Confinement(
    tree=Path("/work/tree"),
    readable=(Path("/opt/tools"), Path("/work/tree/venv")),
    read_only=(Path("/work/tree/dugnad.toml"),),
    anchored=(Path("/work/tree/.git"),),
    hidden=(Path("/work/tree/.dugnad"),),
)


def decide(program: bytes, number: int, *arguments: int, audit: int) -> int:
    """Run the program as the kernel would."""
    data = struct.pack("=iIQ6Q", number, audit, 0, *arguments, *[0] * (6 - len(arguments)))
    steps = list(struct.iter_unpack("=HBBI", program))
    at, value = 0, 0
    while True:
        code, yes, no, operand = steps[at]
        at += 1
        if code == 0x20:
            value = struct.unpack_from("=I", data, operand)[0]
        elif code == 0x06:
            return int(operand)
        else:
            holds = {0x15: value == operand, 0x35: value >= operand, 0x45: bool(value & operand)}[code]
            at += yes if holds else no


@pytest.mark.parametrize("machine", MACHINES)
def test_the_filter_refuses_what_is_named_and_lets_ordinary_calls_through(machine: str) -> None:
    program, audit = seccomp(machine), MACHINES[machine]
    for numbers in REFUSED.values():
        number = numbers[machine == "aarch64"]
        assert number is None or decide(program, number, audit=audit) == EPERM
    for number in ORDINARY[machine]:
        assert decide(program, number, 17, audit=audit) == ALLOWED


@pytest.mark.parametrize("machine", MACHINES)
def test_the_filter_looks_at_flags_modes_and_families(machine: str) -> None:
    program, audit = seccomp(machine), MACHINES[machine]
    clone, socket, fchmod, openat = (56, 41, 91, 257) if machine == "x86_64" else (220, 198, 52, 56)
    assert decide(program, clone, 0x10000000 | 17, audit=audit) == EPERM  # A user namespace.
    assert decide(program, clone, 0x003D0F00, audit=audit) == ALLOWED  # A thread.
    assert decide(program, 435, audit=audit) == ENOSYS  # clone3: programs fall back to clone.
    for family in (1, 2, 10, 16):
        assert decide(program, socket, family, audit=audit) == ALLOWED
    for family in (17, 38, 40):
        assert decide(program, socket, family, audit=audit) == EAFNOSUPPORT
    assert decide(program, fchmod, 3, 0o755, audit=audit) == ALLOWED
    assert decide(program, fchmod, 3, 0o4755, audit=audit) == EPERM
    assert decide(program, openat, 0, 0, 0o100, 0o2755, audit=audit) == EPERM
    assert decide(program, openat, 0, 0, 0, 0o6777, audit=audit) == ALLOWED  # It makes no file: the mode is noise.


def test_calls_by_another_entry_are_not_let_through() -> None:
    program = seccomp("x86_64")
    assert decide(program, 1, audit=0x40000003) == KILLED  # The 32-bit entry.
    assert decide(program, 0x40000000 | 1, audit=MACHINES["x86_64"]) == ENOSYS  # The x32 numbers.
    with pytest.raises(ValueError, match="riscv64"):
        seccomp("riscv64")


def test_a_toolchain_inside_the_tree_is_read_only_and_covers_it() -> None:
    said = [" ".join(each) for each in strict(POLICY, Machine()).arguments]
    tree = said.index("--bind /work/tree /work/tree")
    assert (
        said.index("--ro-bind /opt/tools /opt/tools") < tree < said.index("--ro-bind /work/tree/venv /work/tree/venv")
    )
    assert said.index("--ro-bind /work/tree/dugnad.toml /work/tree/dugnad.toml") > tree


def test_variables_are_the_sandboxes_own_and_those_that_are_named() -> None:
    found = environment_for(Confinement(tree=Path("/work/tree"), environment={"COLOUR": "green"}))
    assert sorted(found) == ["COLOUR", "HOME", "LANG", "LOGNAME", "PATH", "TERM", "TMPDIR", "USER"]
