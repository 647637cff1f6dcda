"""Every command of the chat, on both databases."""

from __future__ import annotations

from dugnad.board import Board
from dugnad.chat.commands import COMMANDS
from dugnad.tools.policy import question
from dugnad.types import Budget, Done, Failed
from tests.cli.chat_stage import Talk, play_lead
from tests.conftest import Opener


async def test_words_go_to_the_lead(board: Board) -> None:
    await play_lead(board)
    talk = Talk(board)
    assert await talk.says("Please write a parser.\nIn Python.") == ""
    (heard,) = await board.inbox("lead")
    assert (heard.sender, heard.kind, heard.text) == ("human", "text", "Please write a parser.\nIn Python.")
    assert await talk.says("   ") == ""
    assert len(await board.inbox("lead")) == 1


async def test_an_unknown_command_is_answered_with_the_nearest(board: Board) -> None:
    talk = Talk(board)
    assert await talk.says("/taks") == "There is no /taks; did you mean /tasks?\n"
    assert "a line that begins with a space is text" in await talk.says("/etc/passwd is wrong")


async def test_help_has_one_line_for_each_command(board: Board) -> None:
    lines = (await Talk(board).says("/help")).splitlines()
    assert [text.split()[0] for text in lines[:-1]] == [f"/{command.name}" for command in COMMANDS]
    assert all(command.says in text for command, text in zip(COMMANDS, lines, strict=False))
    assert (await Talk(board).says("/help /stop")).startswith("/stop NAME [WHY] [--now]")


async def test_no_command_ever_breaks_the_chat(board: Board) -> None:
    await play_lead(board)
    talk = Talk(board)
    for command in COMMANDS:
        for rest in ("", "nonsense \x1b[31m", "#999999", "999999 x", "m999999 x", "= = =", "\x00", "9" * 30, "\ud800"):
            printed = await talk.says(f"/{command.name} {rest}")
            assert "\x1b" not in printed, command.name
            assert "Error" not in printed, command.name  # An error of ours is a sentence, not the name of a class.


async def test_tasks_shows_the_board_with_owners(board: Board) -> None:
    lead = await play_lead(board, "alice")
    talk = Talk(board)
    assert "The board is empty" in await talk.says("/tasks")
    await board.put("Write it")
    await lead.claim("alice")
    await board.put("Review it", needs=[1])
    printed = await talk.says("/tasks")
    assert "claimed  alice" in printed
    assert "Review it" in printed
    assert "Review it" not in await talk.says("/tasks claimed")
    assert "There are no such tasks." in await talk.says("/tasks failed")
    assert "'pears' is not a state; write one of: blocked," in await talk.says("/tasks pears")


async def test_a_long_board_shows_what_is_open_and_counts_the_rest(board: Board) -> None:
    lead = await play_lead(board, "alice")
    for number in range(4):
        await board.put(f"Task {number}")
    await board.settle(await lead.claim("alice"), Done())
    printed = await Talk(board, tasks_shown=2).says("/tasks")
    assert "Task 0" not in printed
    assert "Task 1" in printed
    assert "2 tasks more; /tasks STATE" in printed
    assert "Task 0" in await Talk(board, tasks_shown=2).says("/tasks done")


async def test_team_shows_who_is_doing_what(board: Board) -> None:
    talk = Talk(board)
    assert "The team has no teammates" in await talk.says("/team")
    lead = await play_lead(board, "alice", "bob")
    await board.put("Write it")
    await lead.claim("alice")
    await lead.asks("bob", "Pick a licence", "Which?")
    printed = await talk.says("/team")
    assert "working  #1 Write it" in printed
    assert "waiting  #2 Pick a licence" in printed


async def test_inbox_shows_what_was_said_and_what_waits(board: Board) -> None:
    lead = await play_lead(board, "alice")
    talk = Talk(board)
    assert "There are no messages to you or from you" in await talk.says("/inbox")
    await talk.says("How far are you?")
    await board.show("human", [(await lead.says("Half of it.")).id])
    await lead.asks("alice", "Pick a licence", "Which?")
    lines = (await talk.says("/inbox")).splitlines()
    assert lines == [
        "human to lead: How far are you?",
        "lead: Half of it.",
        "alice asks about #1 (m3): Which?",
        "-> to answer: /answer m3 TEXT",
    ]
    assert "How far are you?" in await talk.says("/inbox lead")
    assert "alice has read everything." in await talk.says("/inbox alice")
    assert "no teammate 'carol'" in await talk.says("/inbox carol")


async def test_notes_are_found_by_their_words(board: Board) -> None:
    await play_lead(board)
    talk = Talk(board)
    assert "There are no notes yet." in await talk.says("/notes")
    await board.write_note("lead", "Layout", "Sources are under src.")
    assert "Sources are under src." in await talk.says("/notes SOURCES layout")
    assert "No note contains all of these words." in await talk.says("/notes pears")


async def test_a_budget_is_shown_set_and_added_to(board: Board) -> None:
    talk = Talk(board)
    assert "No goal has work left" in await talk.says("/budget")
    goal = await board.put("A goal", budget=Budget(tasks=5, dollars=1.0))
    await board.put("A part of it", parent=goal.id)
    assert "0 of 5 tasks, $0.00 of $1.00" in await talk.says("/budget")
    assert "0 of 9 tasks, $0.00 of $1.00" in await talk.says("/budget tasks=9")
    assert "0 of 10 tasks, $0.00 of $1.50" in await talk.says("/budget #2 tasks=+1 dollars=+0.5")
    assert "0 of 10 tasks, 0 tokens" in await talk.says("/budget 1 dollars=none")
    assert "There is no task #77" in await talk.says("/budget 77")


async def test_a_held_budget_says_how_to_go_on(board: Board) -> None:
    lead = await play_lead(board, "alice")
    goal = await board.put("One run only", budget=Budget(tasks=1))
    await board.put("A second", parent=goal.id)
    await board.settle(await lead.claim("alice", goal.id), Done())
    assert await board.claim("alice", lead.host) is None
    assert "/budget 1 tasks=+10" in await Talk(board).says("/budget")
    await Talk(board).says("/budget 1 tasks=+10")
    assert await board.claim("alice", lead.host) is not None


async def test_the_log_is_shown_from_its_end_or_of_one_task(board: Board) -> None:
    talk = Talk(board)
    assert "Nothing has happened yet." in await talk.says("/log")
    for number in range(1, 4):
        await board.put(f"Task {number}")
    assert 'added "Task 3"' in await talk.says("/log 1")
    assert "Task 2" not in await talk.says("/log 1")
    of_one = await talk.says("/log #2")
    assert "Task 2" in of_one
    assert "Task 3" not in of_one


async def test_show_tells_everything_about_a_task(board: Board) -> None:
    goal = await board.put("A goal", body="In \x1b[31mfull\x1b[0m.")
    await board.put("Its child", parent=goal.id)
    printed = await Talk(board).says("/show #1")
    assert "A goal  ready" in printed
    assert "In ␛[31mfull␛[0m." in printed
    assert "#2 ready: Its child" in printed
    assert await Talk(board).says("/show") == "The task is missing; write /show ID.\n"


async def test_a_task_is_put_with_a_title_and_a_body(board: Board) -> None:
    assert await Talk(board).says("/add Write it\nin full") == "#1 is on the board (ready).\n"
    task = await board.find(1)
    assert (task.title, task.body, task.put_by) == ("Write it", "in full", "human")


async def test_tasks_are_cancelled_retried_and_released(board: Board) -> None:
    lead = await play_lead(board, "alice")
    talk = Talk(board)
    await board.put("Write it")
    await lead.claim("alice")
    assert await talk.says("/release 1 too slow") == "#1 is released; anyone may claim it.\n"
    assert (await board.find(1)).reason == "too slow"
    assert await talk.says("/cancel #1 not needed") == "Cancelled: #1.\n"
    assert await talk.says("/retry 1") == "Opened again: #1.\n"
    assert (await board.find(1)).state == "ready"
    await board.settle(await lead.claim("alice"), Failed("no"))
    assert (await talk.says("/release 1")).count("\n") == 1


async def test_a_teammate_that_was_stopped_comes_back_as_it_was(board: Board) -> None:
    talk = Talk(board)
    assert await talk.says("/spawn alice coder, tester") == "alice (coder, tester) will join.\n"
    await board.spawn("bob", roles=["coder"], lead=True, prompt="Be brief.", model="scripted:x", plan=True)
    await board.stop_teammate("bob")
    assert "spawn NAME brings it back" in await talk.says("/tell bob hello")
    await talk.says("/spawn bob")
    bob = await board.teammate("bob")
    assert (bob.roles, bob.lead, bob.prompt, bob.model, bob.plan, bob.status) == (
        ("coder",), True, "Be brief.", "scripted:x", True, "wanted",
    )  # fmt: skip
    assert "cannot be a teammate's name" in await talk.says("/spawn /etc")


async def test_one_teammate_is_told(board: Board) -> None:
    await play_lead(board, "alice")
    talk = Talk(board)
    assert await talk.says("/tell alice look at  #2") == "Sent to alice.\n"
    assert (await board.inbox("alice"))[0].text == "look at  #2"
    assert await talk.says("/tell alice") == "The text is missing; write /tell NAME TEXT.\n"
    assert "no teammate 'carol'" in await talk.says("/tell carol hello")
    assert list(talk.session.spoken_to) == ["alice"]


async def test_a_teammate_is_asked_to_stop_or_made_to(board: Board) -> None:
    await play_lead(board, "alice", "bob")
    talk = Talk(board)
    await talk.says("/stop alice the work is done")
    (asked,) = await board.requests("alice")
    assert (asked.kind, asked.sender, asked.text) == ("shutdown", "human", "the work is done")
    await talk.says("/stop! bob")
    assert (await board.teammate("bob")).status == "stopped"
    await talk.says("/stop alice --now")
    assert (await board.teammate("alice")).status == "stopped"


async def test_the_lead_is_asked_to_compact(board: Board) -> None:
    await play_lead(board)
    assert "lead is asked" in await Talk(board).says("/compact")
    assert (await board.inbox("lead"))[0].text == "Please make room in your context: call compact."


async def test_the_only_question_is_answered_without_its_number(board: Board) -> None:
    lead = await play_lead(board, "alice")
    talk = Talk(board)
    assert "No such request waits" in await talk.says("/answer yes")
    asked = await lead.asks("alice", "Pick a licence", "Which?")
    assert "The answer is missing" in await talk.says("/answer")
    assert await talk.says("/answer MIT") == "Answered; alice is told about #1.\n"
    assert (await board.find(1)).state == "ready"
    _, reply = await board.request(f"task-1-{asked.epoch}")
    assert reply is not None
    assert reply.text == "MIT"


async def test_of_two_questions_one_is_named(board: Board) -> None:
    lead = await play_lead(board, "alice", "bob")
    await lead.asks("alice", "Pick a licence", "Which?")
    await lead.asks("bob", "Pick a name", "What name?")
    talk = Talk(board)
    assert "Several requests wait for you: m1 (alice, #1), m2 (bob, #2)" in await talk.says("/answer slugs")
    assert "bob is told about #2" in await talk.says("/answer m2 slugs")
    assert "alice is told about #1" in await talk.says("/answer 42")


async def test_a_plan_is_approved_or_sent_back(board: Board) -> None:
    lead = await play_lead(board, "alice", "bob")
    talk = Talk(board)
    first = await lead.asks("alice", "Move the data", "Copy, then switch.", plan=True)
    assert "The reason is missing" in await talk.says("/reject")
    assert await talk.says("/reject there is no way back") == "Rejected; alice is told about #1.\n"
    second = await lead.asks("bob", "Move it back", "Switch.", plan=True)
    assert "approve" in await talk.says("/answer m3 yes")
    assert await talk.says("/approve") == "Approved; bob is told about #2.\n"
    for claim, accepted in ((first, False), (second, True)):
        _, reply = await board.request(f"task-{claim.task.id}-{claim.epoch}")
        assert reply is not None
        assert reply.accepted is accepted


async def test_the_reason_for_a_cancel_and_a_release_is_kept(board: Board) -> None:
    lead = await play_lead(board, "alice")
    talk = Talk(board)
    for title in ("One", "Two"):
        await board.put(title)
    claim = await lead.claim("alice")
    await talk.says(f"/release {claim.task.id} alice is stuck")
    (attempt,) = await board.attempts(claim.task.id)
    assert (attempt.ended_as, attempt.reason) == ("released", "alice is stuck")
    await talk.says("/cancel 2 no longer wanted")
    assert ((await board.find(2)).state, (await board.find(2)).reason) == ("cancelled", "no longer wanted")


async def test_a_yes_or_a_no_is_never_meant_for_a_plain_question(board: Board) -> None:
    lead = await play_lead(board, "alice", "bob")
    talk = Talk(board)
    await lead.asks("alice", "Pick a licence", "Which?")
    assert "No such request waits for you" in await talk.says("/approve")
    await lead.asks("bob", "Move the data", "Copy.", plan=True)
    assert await talk.says("/approve") == "Approved; bob is told about #2.\n"
    assert (await board.find(1)).state == "waiting"


async def test_a_call_that_is_asked_about_is_allowed_or_refused_and_which_is_said(board: Board) -> None:
    lead = await play_lead(board, "alice")
    talk = Talk(board)
    says = {
        "/approve": "Allowed, once: ",
        "/reject not today": "Refused: ",
        "/answer yes": "Allowed, once: ",
        "/answer always": "Allowed, also further ones: ",
        "/answer yes, but later": "Refused: ",
    }
    for number, (typed, taken) in enumerate(says.items(), start=1):
        task = await board.put(f"Move {number}", role="mover")
        await board.cancel(task.id)
        await lead.asks("alice", f"Copy {number}", question("alice", task, "bash", {"command": "mv a b"}, "t1.e1.1.0"))
        assert await talk.says(typed) == f"{taken}alice is told about #{2 * number}.\n"
        await board.cancel(2 * number)


async def test_trouble_with_the_board_is_told_and_the_chat_goes_on(opener: Opener) -> None:
    await opener()
    board = await opener()
    talk = Talk(board)
    await board.close()
    assert await talk.says("/tasks") == "The board was closed; open it again.\n"
    assert await talk.says("hello") == "The board was closed; open it again.\n"
    assert "/quit" in await talk.says("/help")


async def test_quit_leaves(board: Board) -> None:
    talk = Talk(board)
    assert await talk.says("/quit") == ""
    assert talk.session.leaving
