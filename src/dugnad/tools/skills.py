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
_FRONT = re.compile(r"\A---\s*\n(.{0,8192}?)\n---\s*\n?(.*)\Z", re.S)
_BYTES_MAX = 256 * 1024
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
    import yaml

    try:
        front = _FRONT.match(_text(project, f"{folder}/SKILL.md"))
        head = yaml.safe_load(front[1]) if front else None
    except (OSError, ToolError, yaml.YAMLError, ValueError, RecursionError):
        return None
    if not isinstance(head, dict) or not isinstance(head.get("description"), str) or not head["description"]:
        return None
    name = one_line(str(head.get("name") or PurePosixPath(folder).name)[:_BYTES_MAX], 64)
    return Skill(name, one_line(head["description"], 1024), project, folder)


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
    front = _FRONT.match(text) if file == "SKILL.md" else None
    others = _files(skill)
    shown = shorten((front[2] if front else text).strip(), most)
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
