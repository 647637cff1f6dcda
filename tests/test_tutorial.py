"""The tutorial is run: every command of docs/tutorial.md, section by section, prints what the page says it prints.

A block of `$ command` lines is typed into one shell per section, in an empty folder that holds the files the section
gives. `…` in the page stands for anything within a line, or for any number of lines. `^C` is sent when all before it
was printed. Times and spans are not compared; an HTML comment before a block says if order and names may differ too.
"""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "tutorial.md").read_text()
SCRIPTS = ROOT / "examples" / "tutorial"
SERVER = "postgresql://dugnad@db.example.org/fair"  # As the page writes it.

_FENCE = re.compile(r"(?P<before>[^\n]*)\n+```(?P<language>yaml|toml|python|console)\n(?P<text>.*?)^```", re.M | re.S)
_FILE = re.compile(r"`([\w-]+\.(?:yaml|toml|py))`[^`]*:$")
_NAMES = re.compile(r"\b(alice|bob|carol|dave)\b")
_VARYING = (
    (re.compile(r"(\d{4}-\d\d-\d\d )?\b\d\d:\d\d:\d\d\b"), "TIME"),
    (re.compile(r"\b\d+[smh]( ago)?(?=\s)"), "SPAN"),
    (re.compile(r"[ \t]+"), " "),  # Columns are as wide as what stands in them.
)
_HANGS_SECONDS = 120.0  # No command of the page takes a tenth of this.


@dataclass
class Shown:
    """A command of the page, and what it says it prints."""

    command: str
    says: list[str] = field(default_factory=list)
    any_order: bool = False
    any_names: bool = False


@dataclass
class Section:
    title: str
    text: str
    files: dict[str, str] = field(default_factory=dict)
    commands: list[Shown] = field(default_factory=list)


def sections(page: str) -> list[Section]:
    """What is between the headings, read as files and commands."""
    found = []
    for part in re.split(r"^## ", page, flags=re.M)[1:]:
        section = Section(part.partition("\n")[0], part)
        for block in _FENCE.finditer(part):
            if block["language"] == "console":
                section.commands += commands(block["text"], block["before"])
            else:
                name = _FILE.search(block["before"])
                assert name, f"{section.title}: no file name in the line before a {block['language']} block"
                section.files[name[1]] = block["text"]
        found.append(section)
    return found


def commands(block: str, before: str) -> list[Shown]:
    found: list[Shown] = []
    for line in block.splitlines():
        if line.startswith("$ "):
            found.append(Shown(line[2:], [], "any order" in before, "any names" in before))
        else:
            found[-1].says.append(line)
    return found


# What was printed, beside what the page says.


def compared(shown: Shown, printed: str) -> bool:
    """Whether a command printed what the page says."""
    lines, says = _plain(printed.splitlines(), shown), _plain(shown.says, shown)
    if not shown.any_order:
        pattern = "".join("(?:.*\n)*?" if line == "…" else f"{_pattern(line)}\n" for line in says)
        return re.fullmatch(pattern, "".join(f"{line}\n" for line in lines)) is not None
    for line in says:
        if line != "…":
            match = next((each for each in lines if re.fullmatch(_pattern(line), each)), None)
            if match is None:
                return False
            lines.remove(match)
    return not lines or "…" in says


def _plain(lines: list[str], shown: Shown) -> list[str]:
    """Without what differs from one time to the next."""
    text = "\n".join(lines)
    for pattern, word in _VARYING:
        text = pattern.sub(word, text)
    if shown.any_names:
        text = _NAMES.sub("NAME", text)
    return [line.strip() for line in text.split("\n") if line.strip()]


def _pattern(line: str) -> str:
    return ".*".join(re.escape(part) for part in line.split("…"))


# The shell.


class Terminal:
    """One shell, as a reader has it open for a section."""

    def __init__(self, folder: Path) -> None:
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "/usr/bin:/bin")])
        self._shell = subprocess.Popen(
            ["bash", "--norc"], cwd=folder,
            env={"PATH": path, "HOME": str(folder), "LANG": "C.UTF-8", "PYTHONUNBUFFERED": "1"},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        self._send("set -m\n")  # Each command has its own process group, as at a terminal.

    def type(self, shown: Shown) -> str:
        """Type a command, send `^C` where the page shows it, and return all that was printed."""
        self._send(f'{{\n{shown.command}\n}} < /dev/null\ncode=$?; echo; echo "@@end"; (exit $code)\n')
        printed = ""
        if "^C" in shown.says:
            before = Shown(shown.command, [*shown.says[: shown.says.index("^C")], "…"])
            while not compared(before, printed):
                printed += self._read(shown, printed)
            newest = max(psutil.Process(self._shell.pid).children(), key=lambda child: child.create_time())
            os.killpg(newest.pid, signal.SIGINT)
            printed += "^C\n"
        while not printed.endswith("\n@@end\n"):
            printed += self._read(shown, printed)
        own = re.compile(r"^bash: line \d+: +\d+ Killed .*\n", re.M)  # Where a shell at a terminal writes [1]+ Killed.
        return own.sub("", printed.removesuffix("@@end\n"))

    def _send(self, text: str) -> None:
        assert self._shell.stdin is not None
        self._shell.stdin.write(text.encode())
        self._shell.stdin.flush()

    def _read(self, shown: Shown, so_far: str) -> str:
        assert self._shell.stdout is not None
        ready, _, _ = select.select([self._shell.stdout], [], [], _HANGS_SECONDS)
        data = os.read(self._shell.stdout.fileno(), 65_536) if ready else b""
        assert data, f"$ {shown.command}\nhangs, or ended the shell, after it printed:\n{so_far}"
        return data.decode()

    def close(self) -> None:
        """End what the section left running, and only that."""
        left = psutil.Process(self._shell.pid).children(recursive=True)
        self._shell.kill()
        for process in left:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        self._shell.communicate()


@contextmanager
def terminal(folder: Path) -> Iterator[Terminal]:
    opened = Terminal(folder)
    try:
        yield opened
    finally:
        opened.close()


def follow(section: Section, folder: Path, *, server: str = "") -> None:
    """Do what a reader of the section does."""
    for name, text in section.files.items():
        (folder / name).write_text(text)
    with terminal(folder) as shell:
        for shown in section.commands:
            printed = shell.type(Shown(**{**vars(shown), "command": shown.command.replace(SERVER, f"'{server}'")}))
            says = "\n".join(shown.says)
            assert compared(shown, printed), f"$ {shown.command}\n{printed}\nbut the page says:\n{says}"


SECTIONS = sections(PAGE)
ON_ONE_MACHINE = [section for section in SECTIONS if SERVER not in section.text]
ON_MANY = [section for section in SECTIONS if SERVER in section.text]


@pytest.mark.parametrize("section", ON_ONE_MACHINE, ids=lambda section: section.title)
def test_the_commands_print_what_the_page_says(section: Section, folder: Path) -> None:
    follow(section, folder)


@pytest.mark.parametrize("url", ["postgres"], indirect=True)
@pytest.mark.parametrize("section", ON_MANY, ids=lambda section: section.title)
def test_the_commands_for_many_machines_print_what_the_page_says(section: Section, folder: Path, url: str) -> None:
    follow(section, folder, server=url)


def test_the_seeds_of_the_idea_are_all_there() -> None:
    assert [section.title[0] for section in SECTIONS] == list("12345678")
    assert len(ON_MANY) == 1
    assert all(section.commands for section in SECTIONS)


@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: section.title)
def test_a_section_says_what_changes_with_a_real_model(section: Section) -> None:
    assert "real model" in re.sub(r"\s+", " ", section.text)


def test_the_scripts_of_the_page_are_those_of_the_examples() -> None:
    given = {name: text for section in SECTIONS for name, text in section.files.items() if name.endswith(".yaml")}
    assert given == {path.name: path.read_text() for path in SCRIPTS.glob("*")}
    assert len(given) == sum(name.endswith(".yaml") for section in SECTIONS for name in section.files)


# The comparing itself.


def test_a_line_that_differs_is_noticed() -> None:
    shown = Shown("", ["14:00:00  #1    alice claimed it", "…", "All done."])
    assert compared(shown, "09:30:12  #1  alice claimed it\nand more\n\nAll done.\n")
    assert not compared(shown, "09:30:12  #1  bob claimed it\nAll done.\n")
    assert not compared(shown, "09:30:12  #1  alice claimed it\nSome work is not done.\n")
    assert not compared(shown, "before\n09:30:12  #1  alice claimed it\nAll done.\n")


def test_a_line_too_many_or_too_few_is_noticed_in_any_order() -> None:
    shown = Shown("", ["1  done  alice  2s ago  One", "2  done  bob  1m ago  Two"], any_order=True, any_names=True)
    assert compared(shown, "2 done carol 3s ago Two\n1 done carol 3s ago One\n")
    assert not compared(shown, "2 done carol 3s ago Two\n1 done carol 3s ago One\n3 done bob 1s ago Three\n")
    assert not compared(shown, "2 done carol 3s ago Two\n2 done carol 3s ago Two\n")
