"""Patterns for paths: those that a model gives, and those of `.gitignore` files. They work on names alone."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable
from dataclasses import dataclass

from ...errors import ToolError

PATTERN_CHARS_MAX = 1_000
_ALTERNATIVES_MAX = 64
_BRACES = re.compile(r"\{([^{}]*,[^{}]*)\}")

Names = tuple[str, ...]
Pattern = tuple[re.Pattern[str] | None, ...]  # One for each name of a path; None: any number of names.


def compile_pattern(text: str) -> Pattern:
    """`*`, `?` and `[a-z]` within a name, `**` for any folders. fnmatch makes expressions that cannot run away."""
    names = [name for name in text.split("/") if name not in ("", ".")]
    found: list[re.Pattern[str] | None] = [
        None if name == "**" else re.compile(fnmatch.translate(re.sub(r"\\(.)", r"[\1]", name))) for name in names
    ]
    if found and found[-1] is None:
        found.append(re.compile(".+", re.S))  # What is in the folder, not the folder.
    return tuple(found)


def fits(pattern: Pattern, names: Names) -> bool:
    """Whether a path matches the pattern, in a time that only grows with their lengths."""
    reached = _skipping(pattern, {0})
    for name in names:
        ahead: set[int] = set()
        for at in reached:
            if at < len(pattern):
                part = pattern[at]
                if part is None:
                    ahead.add(at)
                elif part.match(name):
                    ahead.add(at + 1)
        reached = _skipping(pattern, ahead)
    return len(pattern) in reached


def _skipping(pattern: Pattern, reached: set[int]) -> set[int]:
    for at in sorted(reached):
        here = at
        while here < len(pattern) and pattern[here] is None:
            here += 1
            reached.add(here)
    return reached


def alternatives(text: str) -> list[str]:
    """`*.{js,ts}` as `*.js` and `*.ts`."""
    found, done = [text], []
    while found:
        each = found.pop(0)
        braces = _BRACES.search(each)
        if braces is None:
            done.append(each)
            continue
        found += [each[: braces.start()] + choice + each[braces.end() :] for choice in braces[1].split(",")]
        if len(found) + len(done) > _ALTERNATIVES_MAX:
            raise ToolError("The pattern has too many alternatives; ask for fewer at once.")
    return list(dict.fromkeys(done))


def file_pattern(text: str) -> Callable[[Names], bool]:
    """A function that tells whether a file matches. A pattern without a slash matches names in any folder."""
    if not text or len(text) > PATTERN_CHARS_MAX or "\0" in text:
        raise ToolError(f"A pattern has between 1 and {PATTERN_CHARS_MAX:,} characters, like 'src/**/*.py'.")
    patterns = []
    for each in alternatives(text.removeprefix("./")):
        if each.startswith("/") or ".." in each.split("/"):
            raise ToolError("The pattern leads out of the workspace; it is matched against paths like 'src/app.py'.")
        patterns.append(compile_pattern(each if "/" in each else f"**/{each}"))
    return lambda names: any(fits(pattern, names) for pattern in patterns)


@dataclass(frozen=True, slots=True)
class Rule:
    folder: Names  # Where the .gitignore lies.
    pattern: Pattern
    ignores: bool
    only_folders: bool


def read_rules(text: str, folder: Names) -> tuple[Rule, ...]:
    """The rules of one .gitignore."""
    rules = []
    for line in text.splitlines():
        rule = line if line.endswith("\\ ") else line.rstrip()
        if not rule or rule.startswith("#") or len(rule) > PATTERN_CHARS_MAX:
            continue
        ignores = not rule.startswith("!")
        rule = rule.removeprefix("!")
        anchored = "/" in rule.rstrip("/")
        pattern = compile_pattern(rule if anchored else f"**/{rule}")
        rules.append(Rule(folder, pattern, ignores, rule.endswith("/")))
    return tuple(rules)


def is_ignored(names: Names, rules: tuple[Rule, ...], *, is_folder: bool) -> bool:
    for rule in reversed(rules):
        if (is_folder or not rule.only_folders) and fits(rule.pattern, names[len(rule.folder) :]):
            return rule.ignores
    return False
