"""Skills: folders with a SKILL.md, in the Agent Skills format. The prompt names them, and their texts are read on
demand. They belong to the project, so they are read beneath its root, bounded, and quoted."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from ..errors import ToolError
from ..prompts import tell
from ..text import Told, one_line, quote, shorten
from ..workspace.files.paths import names_within, read_within
from .context import Context
from .tool import own_tool

FOLDERS = (".agents/skills", ".claude/skills")
_BYTES_MAX = 256 * 1024
_FRONT_CHARS_MAX = 8_192
_KEY = re.compile(r"([A-Za-z][\w-]*):(?:[ \t]+(.*))?")
_IS_BLOCK = re.compile(r"[>|][-+0-9]{0,2}")
_NOT_TEXT = tuple("&*!{[@`%?")  # Anchors, aliases, tags and lists of YAML.
_SKILLS_MAX = 100
_FILES_MAX = 50
_DEPTH_MAX = 4


@dataclass(frozen=True, slots=True)
class Skill:
    name: str
    description: str
    project: Path
    folder: str  # In the project.


def find_skills(project: Path) -> tuple[Skill, ...]:
    """The skills of a project. The first with a name counts. A file that cannot be read is no skill."""
    found: dict[str, Skill] = {}
    for parent in FOLDERS:
        for name, _ in names_within(project, parent, _SKILLS_MAX):
            if skill := _read(project, f"{parent}/{name}"):
                found.setdefault(skill.name, skill)
    return tuple(found.values())


def _read(project: Path, folder: str) -> Skill | None:
    try:
        front, _ = _divided(_text(project, f"{folder}/SKILL.md"))
    except (OSError, ToolError):
        return None
    head = _fields(front or [])
    name, description = head.get("name", PurePosixPath(folder).name), head.get("description")
    return Skill(one_line(name, 64), one_line(description, 1024), project, folder) if name and description else None


def _divided(text: str) -> tuple[list[str] | None, str]:
    """The lines between the first two lines of dashes, if the text begins so, and what comes after them."""
    first, _, rest = text.partition("\n")
    lines = rest[:_FRONT_CHARS_MAX].split("\n")
    end = next((at for at, line in enumerate(lines) if line.rstrip() == "---"), None)
    if first.rstrip() != "---" or end is None:
        return None, text
    return lines[:end], rest.split("\n", end + 1)[-1] if rest.count("\n", 0, _FRONT_CHARS_MAX) > end else ""


def _fields(lines: list[str]) -> dict[str, str]:
    """The texts that the front sets, by name; other values are empty. The front is a stranger's, so it is not read as
    YAML, in which a few lines can stand for gigabytes. Nothing at all if it has a line of another kind."""
    found: dict[str, list[str]] = {}
    last: list[str] | None = None
    for line in lines:
        if not line.strip() or line.startswith("#"):
            continue
        if line[0] in " \t" and last is not None:
            last.append(line.strip())
        elif key := _KEY.fullmatch(line.rstrip()):
            last = found[key[1]] = [(key[2] or "").strip()]
        else:
            return {}
    return {key: _value(*parts) for key, parts in found.items()}


def _value(first: str, *more: str) -> str:
    if _IS_BLOCK.fullmatch(first):
        return " ".join(more)
    text = " ".join((first, *more)).strip()
    if text.startswith(("'", '"')):
        return text[1:-1].replace(text[0] * 2 if text[0] == "'" else '\\"', text[0]) if text.endswith(text[0]) else ""
    return "" if text.startswith(_NOT_TEXT) or (not first and ":" in text) else text.partition(" #")[0].rstrip()


def _text(project: Path, path: str) -> str:
    data = read_within(project, path, _BYTES_MAX + 1)
    if len(data) > _BYTES_MAX:
        raise ToolError(tell("results.skill_too_large", file=path, most=_BYTES_MAX))
    return data.decode(errors="replace")


def skills_text(skills: tuple[Skill, ...]) -> Told:
    """For the prompt: each name with its description, quoted."""
    return quote("\n".join(f"- {skill.name}: {skill.description}" for skill in skills))


@own_tool(safe=True)
async def use_skill(context: Context, name: str, file: str = "SKILL.md") -> str:
    skill = next((each for each in context.skills if each.name == name), None)
    if skill is None:
        there = ", ".join(each.name for each in context.skills) or "none"
        raise ToolError(tell("results.no_skill", skill=name, skills=there))
    return await asyncio.to_thread(_shown, skill, file, context.limits.tool_chars_max - 4_000)


def _shown(skill: Skill, file: str, most: int) -> str:
    outside = ".." in PurePosixPath(file).parts or file.startswith("/")
    path = "" if outside else f"{skill.folder}/{file}"
    try:
        text = _text(skill.project, path)
    except OSError:
        raise ToolError(tell("results.no_skill_file", skill=skill.name, file=file)) from None
    others = _files(skill)
    shown = shorten((_divided(text)[1] if file == "SKILL.md" else text).strip(), most)
    return f"{shown}\n\n{tell('results.skill_files', files=', '.join(others))}" if len(others) > 1 else shown


def _files(skill: Skill) -> list[str]:
    found: list[str] = []
    left = [""]
    for above in left:  # The list grows on the way.
        if len(found) >= _FILES_MAX or len(left) > _FILES_MAX:
            break
        for name, is_folder in names_within(skill.project, f"{skill.folder}/{above}", _FILES_MAX):
            if not is_folder:
                found.append(f"{above}{one_line(name)}")
            elif above.count("/") < _DEPTH_MAX:
                left.append(f"{above}{name}/")
    return sorted(found[:_FILES_MAX])
