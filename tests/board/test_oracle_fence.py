"""What is said out of a task: by its holder, for itself or for one who held it before; never under an old claim."""

from __future__ import annotations

import pytest

from tests.board import oracle
from tests.board.story import Story

NOTE = {"note": 1, "title": "How", "text": "So."}
MESSAGE = {"message": 1, "to": "cleo", "message_kind": "text", "text": "Hello.", "key": "m1"}


def overtaken() -> Story:
    """ann held #1, and bob holds it now."""
    story = Story()
    story.claim(1, 1)
    story.take_back(1, 1)
    story.claim(1, 2, "bob", host="h2")
    return story


def say(story: Story, what: str, who: str, epoch: int) -> list[str]:
    if what == "put":
        story.put(3, followup_of=1, followup_epoch=epoch, actor=who)
    else:
        story.tell(what, 1, who, epoch=epoch, **(NOTE if what == "noted" else MESSAGE))
    return [str(fault) for fault in oracle.faults(story.events) if "does not hold" in str(fault)]


@pytest.mark.parametrize("what", ["put", "noted", "told"])
@pytest.mark.parametrize(
    ("who", "epoch", "sound"), [("bob", 2, True), ("ann", 2, True), ("ann", 1, False), ("cleo", 2, False)]
)
def test_only_the_newest_claim_says_something(what: str, who: str, epoch: int, sound: bool) -> None:
    assert (say(overtaken(), what, who, epoch) == []) is sound
