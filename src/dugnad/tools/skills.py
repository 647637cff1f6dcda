"""Skills: folders with a SKILL.md, in the Agent Skills format. Their names stand in the prompt, their bodies come on
demand."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from ..errors import ToolError
from ..text import Told, one_line, quote, shorten
from .context import Context
from .tool import own_tool

FOLDERS = (".agents/skills", ".claude/skills")
_FRONT = re.compile(r"\A---\s*\n(.*?)\n---\s*\n?(.*)\Z", re.S)
_BYTES_MAX = 256 * 1024
_SKILLS_MAX = 100


@dataclass(frozen=True, slots=True)
class Skill:
    name: str
    description: str
    folder: Path


def find_skills(project: Path) -> tuple[Skill, ...]:
    """The skills of a project. The first of a name counts; what cannot be read is not a skill."""
    found: dict[str, Skill] = {}
    for parent in FOLDERS:
        for path in sorted((project / parent).glob("*/SKILL.md"))[:_SKILLS_MAX]:
            skill = _read(path, project)
            if skill is not None:
                found.setdefault(skill.name, skill)
    return tuple(found.values())


def _read(path: Path, project: Path) -> Skill | None:
    import yaml

    # A link that leads out of the project could show a teammate the rest of the disk.
    if not path.resolve().is_relative_to(project.resolve()) or path.stat().st_size > _BYTES_MAX:
        return None
    front = _FRONT.match(path.read_text(errors="replace"))
    try:
        head = yaml.safe_load(front[1]) if front else None
    except yaml.YAMLError:
        return None
    if not isinstance(head, dict) or not head.get("description"):
        return None
    name = one_line(str(head.get("name") or path.parent.name), 64)
    return Skill(name, one_line(str(head["description"]), 1024), path.parent)


def skills_text(skills: tuple[Skill, ...]) -> Told:
    """For the prompt: names and what they are good for, in the project's words."""
    return quote("\n".join(f"- {skill.name}: {skill.description}" for skill in skills))


@own_tool(safe=True)
async def use_skill(context: Context, name: str, file: str = "SKILL.md") -> str:
    """Read a skill of this project: how something is done here. Read it before you do such a thing.

    Args:
        name: The skill's name.
        file: A file of the skill that its text points to.
    """
    skill = next((each for each in context.skills if each.name == name), None)
    if skill is None:
        raise ToolError(f"There is no skill {name!r}; there are {', '.join(s.name for s in context.skills) or 'none'}.")
    try:
        path = (skill.folder / file).resolve()
        found = path.is_relative_to(skill.folder.resolve()) and path.is_file()
    except (OSError, ValueError):  # A name no disk could hold.
        found = False
    if not found:
        raise ToolError(f"The skill {name} has no file {one_line(file)!r}.")
    if path.stat().st_size > _BYTES_MAX:
        raise ToolError(f"{file} is larger than {_BYTES_MAX:,} bytes.")
    text = path.read_text(errors="replace")
    front = _FRONT.match(text) if file == "SKILL.md" else None
    body = front[2] if front else text
    others = sorted(str(p.relative_to(skill.folder)) for p in skill.folder.rglob("*") if p.is_file())[:50]
    listing = f"\n\nFiles of this skill: {', '.join(others)}" if len(others) > 1 else ""
    return shorten(body.strip(), context.limits.tool_chars_max - 4_000) + listing
