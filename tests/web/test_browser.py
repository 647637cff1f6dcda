"""The net under the tests of the page: what a page must not do is noticed, and a missing browser is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.web.browser import IN_BROWSER, Shown, Visitor, find_browser, show


@IN_BROWSER
@pytest.mark.parametrize(
    ("does", "trouble"),
    [
        ("console.error('wrong')", "error: wrong"),
        ("setTimeout(() => { throw new Error('a bug'); })", "error: a bug"),
        ("fetch('http://evil.example/x').catch(() => 0)", "evil.example"),
        ("document.body.append(Object.assign(new Image(), { src: 'http://evil.example/p.png' }))", "evil.example"),
        ("setTimeout(() => alert('owned'))", "a dialog was opened"),
        ("window.open('about:blank')", "a window was opened"),
        ("try { document.body.innerHTML = '<b>x</b>'; } catch { /* It is refused. */ }", "trusted-types"),
    ],
)
async def test_what_a_page_must_not_do_is_noticed(every: Shown, visitor: Visitor, does: str, trouble: str) -> None:
    context = await visitor.enter(every.server)
    page = await show(context, every.server, "now")
    await page.evaluate(f"() => {{ {does}; }}")
    watched = visitor.watched
    while not any(trouble in each for each in watched.troubles):
        await page.evaluate("() => new Promise(requestAnimationFrame)")
    watched.troubles.clear()
    watched.allow("")  # Whatever comes of it later.


def test_without_a_browser_the_test_says_what_to_install(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setattr("sys.executable", str(folder / "python"))
    with pytest.raises(AssertionError, match="apt install chromium"):
        find_browser()
