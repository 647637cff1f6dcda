"""A listener hears the text of a reply as it comes, of every provider; and nothing else of the reply changes."""

from __future__ import annotations

import pytest

from dugnad.models import ScriptedModel
from dugnad.models.scripted import Step
from tests.models.asking import ALL, answer_of, asking
from tests.models.provider_server import Answer

SAID = Answer(text="Hei på deg.\nHer er det.", thinking="Hm.", calls=(("note", '{"text":"secret"}', None),))


@pytest.mark.parametrize("name", ALL)
async def test_the_text_is_heard_in_order_without_thoughts_and_calls(name: str) -> None:
    heard: list[str] = []
    reply = await answer_of(name, SAID, hears=heard.append)
    silent = await answer_of(name, SAID)
    assert heard[0] == ""
    assert "".join(heard) == reply.text == silent.text == SAID.text
    assert [each.arguments for each in reply.calls] == [each.arguments for each in silent.calls]


async def test_a_scripted_model_is_heard_word_by_word() -> None:
    heard: list[str] = []
    await ScriptedModel({"*": [Step(say="One two\n three.")]}).ask(asking(hears=heard.append))
    assert heard == ["", "One ", "two\n ", "three."]
