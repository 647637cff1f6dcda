"""What each of many small tasks does: a line in a file, a note, a follow-up now and then, a result."""

from __future__ import annotations

from dugnad.models.port import Request, ToolResult
from dugnad.models.scripted import Step


def script(request: Request) -> Step:
    """By the results heard so far: write the task's line, look if in doubt, note it, put a follow-up, finish."""
    heard = {message.name: message.text for message in request.messages if isinstance(message, ToolResult)}
    written = request.title in heard.get("look", "").split("\n")
    last = next((each for each in reversed(request.messages) if isinstance(each, ToolResult)), None)
    if last is not None and last.text.startswith("Interrupted"):
        return Step(calls=(("look", {}),))
    if heard.get("append", "Interrupted").startswith("Interrupted") and not written:
        return Step(calls=(("append", {"line": request.title}),))
    if "note" not in heard:
        return Step(calls=(("note", {"title": request.title, "text": "done"}),))
    if "schedule_followup" not in heard and request.title.endswith("0"):
        return Step(calls=(("schedule_followup", {"title": f"{request.title} and more"}),))
    return Step(calls=(("finish", {"result": f"{request.title} is done"}),))
