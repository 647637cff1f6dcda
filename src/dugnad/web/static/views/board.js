/** Board: all tasks by state and by goal, and the filter line. Only what can be seen is in the page, so ten thousand
tasks stay fluid. */

import { html, useEffect, useLayoutEffect, useRef, useState } from "../vendor/standalone.module.js";
import { compile, complete, OPEN_STATES, settledLine } from "../filter.js";
import { capital, count, counted, oneLine, span } from "../format.js";
import { nextUp, remembered, tasksOf, timeOf, titleOf } from "../frame.js";
import { useKeys } from "../keys.js";
import { Button, Choices, Cost, Empty, Glyph, Head, Icon, Link, Steer } from "../parts.js";
import { Rows } from "../rows.js";
import { askForMany, askToAdd } from "../steer.js";
import { canSteer, choice, choose, frame, go, store } from "../store.js";

/** The tasks of a frame that the filter keeps. */
export const filtered = remembered((shown, line) => {
  const { empty, matches } = compile(line);
  return empty ? tasksOf(shown) : tasksOf(shown).filter(matches);
});

function Completions({ list, at, take }) {
  return html`<ul id="completions" class="completions" role="listbox" aria-label="Completions">
    ${list.map((each, place) => html`<li key=${each.label} id=${`completion-${place}`} role="option"
      aria-selected=${String(place === at)}
      class=${place === at ? "chosen" : ""} onMouseDown=${(event) => { event.preventDefault(); take(each); }}>
      <span class="mono">${oneLine(each.label, 60)}</span><span class="faint">${oneLine(each.says, 60)}</span></li>`)}
  </ul>`;
}

export function FilterLine({ says }) {
  const [line, setLine] = useState(store.route.filter ?? "");
  const [open, setOpen] = useState(false);
  const [at, setAt] = useState(-1);
  const input = useRef(null);
  const timer = useRef(0);
  useEffect(() => {
    // Somebody followed a link, or went back.
    if (document.activeElement !== input.current) setLine(store.route.filter ?? "");
  }, [store.route.filter]);
  useKeys([{ keys: "/", says: "Filter", group: "Everywhere", run: () => input.current.focus() }]);
  const list = open ? complete(line, frame()) : [];
  const write = (text, atOnce = false) => {
    setLine(text);
    setAt(-1);
    clearTimeout(timer.current);
    const wanted = atOnce ? text.trim() : settledLine(text, frame());
    timer.current = setTimeout(() => go({ filter: wanted || undefined }, { replace: true }), atOnce ? 0 : 120);
  };
  const take = (each) => {
    write(each.line, true);
    input.current.focus();
  };
  const onKey = (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step && list.length) setAt((before) => (before + step + list.length) % list.length);
    else if ((event.key === "Enter" || event.key === "Tab") && list[at]) take(list[at]);
    else if (event.key === "Tab" && list.length && line && !line.endsWith(" ")) take(list[0]);
    else if (event.key === "Enter") {
      write(line, true);
      setOpen(false);
    }
    else if (event.key === "Escape") {
      if (open && list.length && line) setOpen(false);
      else input.current.blur();
    } else return;
    event.preventDefault();
  };
  const { unknown } = compile(line);
  return html`<div class="filter" role="search">
    <${Icon} name="search" />
    <input id="filter" ref=${input} type="text" role="combobox" aria-label="Filter"
      aria-expanded=${String(list.length > 0)} aria-controls="completions" aria-autocomplete="list"
      aria-activedescendant=${at >= 0 ? `completion-${at}` : undefined}
      autocomplete="off" spellcheck="false" placeholder="Filter: state:waiting role:tester words" value=${line}
      onInput=${(event) => { setOpen(true); write(event.target.value); }} onKeyDown=${onKey}
      onFocus=${() => setOpen(true)} onBlur=${() => { setOpen(false); write(line, true); }} />
    ${unknown.length > 0 ? html`<span class="filter-says wrong">Not understood: ${oneLine(unknown.join(" "), 60)}</span>`
      : says && html`<span class="filter-says">${says}</span>`}
    ${line && html`<button type="button" class="icon-button" aria-label="Clear the filter"
      onClick=${() => write("", true)}><${Icon} name="close" size=${14} /></button>`}
    ${list.length > 0 && html`<${Completions} list=${list} at=${at} take=${take} />`}
  </div>`;
}

// From left to right a task comes nearer to its end.
const COLUMNS = ["blocked", "scheduled", "ready", "claimed", "waiting", "failed", "done", "skipped", "cancelled"];
// In a list, what somebody may have to look at comes first.
const LINES = ["claimed", "waiting", "ready", "failed", "scheduled", "blocked", "done", "skipped", "cancelled"];
const FOLDED_AT_FIRST = new Set(["skipped", "cancelled"]);
const SIZES = { goal: 30, card: 58, more: 19, line: 30 };

const byEnd = (a, b) => (b.ended_at ?? 0) - (a.ended_at ?? 0) || b.id - a.id;
const byId = (a, b) => a.id - b.id;

function inOrder(state, tasks, shown) {
  if (state === "ready") {
    const rank = new Map(nextUp(shown).map((task, at) => [task.id, at]));
    return tasks.sort((a, b) => (rank.get(a.id) ?? 0) - (rank.get(b.id) ?? 0));
  }
  return tasks.sort(OPEN_STATES.has(state) ? byId : byEnd);
}

/** Rows of one list: a heading for each goal, and below it its tasks. */
function grouped(tasks, shown, closed, several) {
  if (!several) return tasks.map((task) => ({ id: task.id, task }));
  const goals = new Map();
  for (const task of tasks) {
    if (!goals.has(task.root)) goals.set(task.root, []);
    goals.get(task.root).push(task);
  }
  const rows = [];
  for (const [root, members] of [...goals].sort(([a], [b]) => a - b)) {
    rows.push({ id: `goal-${root}`, goal: root, title: titleOf(shown, root), number: members.length });
    if (!closed.has(root)) for (const task of members) rows.push({ id: task.id, task });
  }
  return rows;
}

const columnsOf = remembered((shown, tasks, closed) => {
  const byState = Object.fromEntries(COLUMNS.map((state) => [state, []]));
  const goals = new Set();
  for (const task of tasks) {
    (byState[task.state] ?? byState.blocked).push(task);
    goals.add(task.root);
  }
  return COLUMNS.map((state) => {
    const members = inOrder(state, byState[state], shown);
    return { state, number: members.length, rows: grouped(members, shown, closed, goals.size > 1) };
  });
});

const linesOf = remembered((shown, tasks, closed) => {
  const rank = (task) => LINES.indexOf(task.state);
  const within = (a, b) => (OPEN_STATES.has(a.state) ? byId(a, b) : byEnd(a, b));
  const sorted = [...tasks].sort((a, b) => rank(a) - rank(b) || within(a, b));
  return grouped(sorted, shown, closed, true);
});

// --- Cards ---------------------------------------------------------------------------------------------------------

const WAITS = { human: "for you", plan: "for approval", tasks: "for tasks", budget: "for budget" };

/** What matters about a task in its state, in a few words. */
function detail(task, now) {
  if (task.state === "waiting") return WAITS[task.waiting_for] ?? "";
  if (task.state === "failed" || task.state === "skipped") return oneLine(task.reason, 90);
  if (task.state === "scheduled" && task.due_at) return `due in ${span(task.due_at - now)}`;
  if (task.state === "blocked") {
    const open = (task.needs ?? []).filter(([, , state]) => state !== "met").map(([id]) => `#${id}`);
    const more = open.length > 3 ? ` and ${open.length - 3} more` : "";
    return open.length ? `needs ${open.slice(0, 3).join(", ")}${more}` : "";
  }
  if (task.state === "done") return task.outcome ? oneLine(task.outcome, 40) : "";
  return task.tries ? `attempt ${task.tries + 1}` : "";
}

function holder(task) {
  if (["claimed", "waiting", "done", "failed"].includes(task.state)) return task.teammate;
  return task.assignee ?? task.role;
}

function when(task, now) {
  if (task.ended_at) return span(now - task.ended_at);
  return task.put_at ? span(now - task.put_at) : "";
}

function labelOf(task) {
  return `#${task.id} ${oneLine(task.title, 120)}, ${task.state}`;
}

function Card({ task, now, two }) {
  const who = holder(task);
  return html`<${Link} to=${{ task: task.id }}
    class="card ${two ? "two" : ""} ${store.route.task === task.id ? "open" : ""}" data-task=${task.id}
    data-state=${task.state} aria-label=${labelOf(task)}>
    <span class="card-title">${oneLine(task.title, 120)}</span>
    <span class="card-facts"><span class="id">#${task.id}</span>${who && html`<span class="who">
      ${oneLine(who, 24)}</span>`}<span class="card-detail">${detail(task, now)}</span>
      <span class="card-right"><${Cost} dollars=${task.dollars} tokens=${task.tokens} /></span></span>
  <//>`;
}

function Line({ task, now }) {
  const who = holder(task);
  return html`<${Link} to=${{ task: task.id }} class="task-line ${store.route.task === task.id ? "open" : ""}"
    data-task=${task.id} data-state=${task.state} aria-label=${labelOf(task)}>
    <${Glyph} state=${task.state} /><span class="id">#${task.id}</span><span class="task-line-title">
      ${oneLine(task.title, 160)}</span>
    <span class="task-line-detail">${detail(task, now)}</span><span class="task-line-who">${oneLine(who, 24)}</span>
    <span class="task-line-cost"><${Cost} dollars=${task.dollars} tokens=${task.tokens} /></span>
      <span class="task-line-when num">${when(task, now)}</span>
  <//>`;
}

function GoalRow({ row, closed, toggle }) {
  const open = !closed.has(row.goal);
  return html`<button type="button" class="goal-row" aria-expanded=${String(open)} onClick=${() => toggle(row.goal)}
    title=${oneLine(row.title, 200)}>
    <${Icon} name=${open ? "down" : "right"} size=${12} /><span class="goal-title">
      ${oneLine(row.title || `#${row.goal}`, 100)}</span><span class="num goal-count">${count(row.number)}</span>
  </button>`;
}

// --- Columns and lists ---------------------------------------------------------------------------------------------

const SAMPLE = "Write the parser of dates and the tests for it";

/** How many letters of a title fit on a line of a column: a longer title gets a second line. */
function useLetters(place) {
  const [letters, setLetters] = useState(24);
  useLayoutEffect(() => {
    const element = place.current;
    if (!element) return undefined;
    const look = () => {
      const pen = document.createElement("canvas").getContext("2d");
      const { fontSize, fontFamily } = getComputedStyle(element);
      pen.font = `${fontSize} ${fontFamily}`;
      const wide = pen.measureText(SAMPLE).width / SAMPLE.length;
      setLetters(Math.max(8, Math.floor((0.94 * (element.clientWidth - 44)) / wide)));
    };
    const watcher = new ResizeObserver(look);
    watcher.observe(element);
    return () => watcher.disconnect();
  }, [place.current]);
  return letters;
}

function Column({ column, closed, toggle, now }) {
  const { state, number, rows } = column;
  const [folded, setFolded] = useState(FOLDED_AT_FIRST.has(state) ? true : null);
  const narrow = folded ?? number === 0;
  const place = useRef(null);
  const letters = useLetters(place);
  const isLong = (task) => task.title.length > letters;
  const size = (row) => (row.goal ? SIZES.goal : SIZES.card + (isLong(row.task) ? SIZES.more : 0));
  const title = html`<${Glyph} state=${state} /><span class="column-name">${capital(state)}</span>
    <span class="num column-count" data-count=${number}>${count(number)}</span>`;
  const head = html`<h2 class="column-head"><button type="button" aria-expanded=${String(!narrow)}
    title=${narrow ? "Unfold" : "Fold"} onClick=${() => setFolded(!narrow)}>${title}</button></h2>`;
  return html`<section ref=${place} class="column ${narrow ? "narrow" : ""} ${number ? "" : "none"}"
    data-column=${state} aria-label=${`${capital(state)}, ${counted(number, "task")}`}>
    ${head}
    ${!narrow && html`<${Rows} items=${rows} size=${size} sizes=${letters} label=${capital(state)} class="column-rows"
      row=${(row) => (row.goal ? html`<${GoalRow} row=${row} closed=${closed} toggle=${toggle} />` : html`<${Card}
        task=${row.task} now=${now} two=${isLong(row.task)} />`)} />`}
  </section>`;
}

function Lines({ rows, closed, toggle, now }) {
  return html`<${Rows} items=${rows} size=${() => SIZES.line} label="Tasks" class="task-lines"
    row=${(row) => (row.goal ? html`<${GoalRow} row=${row} closed=${closed} toggle=${toggle} />` : html`<${Line}
      task=${row.task} now=${now} />`)} />`;
}

/** What can be done with everything that the filter keeps. */
function Bulk({ tasks }) {
  if (!canSteer() || !store.route.filter) return null;
  const failed = tasks.filter((task) => task.state === "failed" || task.state === "cancelled");
  const open = tasks.filter((task) => OPEN_STATES.has(task.state));
  return html`${failed.length > 0 && html`<${Button}
    onClick=${() => askForMany("retry", failed)}>Retry ${count(failed.length)}<//>`}
    ${open.length > 0 && html`<${Button}
      onClick=${() => askForMany("cancel", open)}>Cancel ${count(open.length)}<//>`}`;
}

function useNarrowScreen() {
  const query = matchMedia("(max-width: 640px)");
  const [narrow, setNarrow] = useState(query.matches);
  useEffect(() => {
    const look = () => setNarrow(query.matches);
    query.addEventListener("change", look);
    return () => query.removeEventListener("change", look);
  }, []);
  return narrow;
}

export function Board() {
  const shown = frame();
  const [closed, setClosed] = useState(new Set());
  const narrow = useNarrowScreen();
  const line = store.route.filter ?? "";
  const tasks = filtered(shown, line);
  const all = tasksOf(shown).length;
  const mode = narrow ? "list" : choice("board", "columns");
  const toggle = (root) => setClosed((before) => {
    const next = new Set(before);
    if (!next.delete(root)) next.add(root);
    return next;
  });
  const now = timeOf(shown);
  const shared = { closed, toggle, now };
  const says = compile(line).empty ? counted(all, "task") : `${count(tasks.length)} of ${counted(all, "task")}`;
  return html`
    <${Head} title="Board">
      <${FilterLine} says=${says} />
      <${Bulk} tasks=${tasks} />
      ${!narrow && html`<${Choices} label="Layout" value=${mode} options=${[["columns", "Columns"], ["list", "List"]]}
        onChoose=${(value) => choose("board", value)} />`}
      <${Steer}><${Button} icon="plus" aria-label="Add a task" title="Add a task  n" onClick=${() => askToAdd()}>
        ${!narrow && "Add a task"}<//><//>
    <//>
    ${!all && html`<div class="body"><${Empty}
      says="Nothing is on this board yet." command='dugnad add "..."' /></div>`}
    ${all > 0 && !tasks.length && html`<div class="body"><${Empty}
      says="No task fits this filter. Clear it to see all of them." /></div>`}
    ${tasks.length > 0 && (mode === "list"
      ? html`<${Lines} rows=${linesOf(shown, tasks, closed)} ...${shared} />`
      : html`<div class="board">${columnsOf(shown, tasks, closed).map((column) => html`<${Column} key=${column.state}
        column=${column} ...${shared} />`)}</div>`)}`;
}
