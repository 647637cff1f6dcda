/** The page: its frame, its navigation and its keys. Each view has a file of its own. */

import { html, render, useEffect, useLayoutEffect, useRef, useState } from "./vendor/standalone.module.js";
import { percent, plain } from "./format.js";
import { listen, Palette, useKeys } from "./keys.js";
import { Icon, Link, settled } from "./parts.js";
import { moveAcross, moveFocus, reveal } from "./rows.js";
import { askToAdd, Dialog } from "./steer.js";
import { boardId, canSteer, change, choice, choose, frame, go, inPast, onChange, start, store, VIEWS } from "./store.js";
import { PastBand, SinceYouLeft, TimeBar } from "./timebar.js";
import { Board } from "./views/board.js";
import { ForYou, notifyOfNew } from "./views/foryou.js";
import { Graph } from "./views/graph.js";
import { Log } from "./views/log.js";
import { Merges } from "./views/merges.js";
import { Money } from "./views/money.js";
import { Now } from "./views/now.js";
import { TaskPage, TaskPanel } from "./views/task.js";
import { Team } from "./views/team.js";
import { Timeline } from "./views/timeline.js";

const PAGES = {
  now: Now, foryou: ForYou, board: Board, graph: Graph, timeline: Timeline, money: Money, team: Team, merges: Merges,
  log: Log, task: TaskPage,
};

// --- Light and dark ------------------------------------------------------------------------------------------------

const THEMES = { auto: ["light", "Light"], light: ["dark", "Dark"], dark: ["auto", "As the system"] };

function applyTheme() {
  const theme = choice("theme", "auto");
  if (theme === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
}

function ThemeButton() {
  const theme = choice("theme", "auto");
  const [next, says] = THEMES[theme] ?? THEMES.auto;
  const icon = { auto: "auto", light: "sun", dark: "moon" }[theme];
  const turn = () => {
    choose("theme", next);
    applyTheme();
  };
  return html`<button type="button" class="icon-button"
    aria-label=${`Colours: ${theme}. Change to ${says.toLowerCase()}`} title=${`Colours: ${theme}`}
    onClick=${turn}><${Icon} name=${icon} /></button>`;
}

// --- Navigation ----------------------------------------------------------------------------------------------------

function BoardChoice() {
  const boards = store.session.boards;
  const open = boards.find((board) => board.id === boardId());
  if (boards.length < 2) return html`<p class="board-name" title=${plain(open?.where ?? "")}>
    ${plain(open?.name ?? "dugnad")}</p>`;
  return html`<label class="board-choice"><span class="unseen">Board</span>
    <select onChange=${(event) => go({ board: event.target.value, at: undefined, task: undefined, filter: undefined })}>
      ${boards.map((board) => html`<option key=${board.id} value=${board.id} selected=${board.id === open?.id}>
        ${plain(board.name)}</option>`)}
    </select></label>`;
}

function Nav() {
  const waits = store.live?.requests.length ?? 0;
  const bar = useRef(null);
  useEffect(() => {
    // On a phone the bar is wider than the screen.
    const link = bar.current.querySelector("[aria-current]");
    if (link) reveal(link, bar.current);
  }, [store.route.view]);
  return html`<nav class="nav" aria-label="Views" ref=${bar}>
    <ul>${VIEWS.map((view) => html`<li key=${view.id}>
      <${Link} to=${{ view: view.id, tab: undefined }} class="nav-link"
        aria-current=${store.route.view === view.id ? "page" : undefined} title=${`${view.name}  g ${view.key}`}>
        <${Icon} name=${view.id} /><span class="nav-name">${view.name}</span>
        ${view.id === "foryou" && waits > 0 && html`<span class="nav-count num">${waits}</span>`}
      <//></li>`)}</ul>
  </nav>`;
}

/** How the page and the board are connected, in a few words. */
function Connection() {
  const on = store.link === "on" && !store.trouble;
  const says = on ? (inPast() ? "Connected. You see the past." : "Connected") : "Reconnecting…";
  return html`<p class="connection ${on ? "on" : "lost"}" role="status" title=${plain(store.trouble)}>
    <span class="connection-mark" aria-hidden="true" />${says}</p>`;
}

function Side() {
  const looks = store.session.scope !== "steer";
  return html`<header class="side">
    <div class="side-top">
      <${BoardChoice} />
      <button type="button" class="icon-button side-find" aria-label="Go to" title="Go to  Ctrl K"
        onClick=${openPalette}><${Icon} name="search" /></button>
    </div>
    <${Nav} />
    <div class="side-foot">
      ${looks && html`<p class="look-only">This link is for looking. Who opens a steer link can steer.</p>`}
      <div class="side-row">
        <${Connection} />
        <${ThemeButton} />
        <button type="button" class="icon-button keys-button" aria-label="Keys" title="Keys  ?"
          onClick=${() => change({ palette: "help" })}><${Icon} name="keys" /></button>
      </div>
    </div>
  </header>`;
}

// --- Keys ----------------------------------------------------------------------------------------------------------

function openPalette() {
  change({ palette: "find" });
}

function back() {
  if (store.since) return change({ since: false });
  if (store.route.task && store.route.view !== "task") return go({ task: undefined });
  if (document.activeElement?.closest("main")) return document.activeElement.blur();
  return false;
}

function useShellKeys() {
  const lists = "Lists";
  const group = "Everywhere";
  useKeys([
    { keys: "ctrl+k", says: "Go to a view, a task or a teammate", group, always: true, run: openPalette },
    { keys: "?", says: "Show the keys", group, run: () => change({ palette: "help" }) },
    { keys: "n", says: "Add a task", group, run: () => (canSteer() ? askToAdd() : false) },
    { keys: "Escape", says: "Close what is open", group, run: back },
    { keys: "j", says: "Next", group: lists, run: () => moveFocus(1) },
    { keys: "k", says: "Previous", group: lists, run: () => moveFocus(-1) },
    { keys: "l", says: "The list to the right", group: lists, run: () => moveAcross(1) },
    { keys: "h", says: "The list to the left", group: lists, run: () => moveAcross(-1) },
    { keys: "Enter", says: "Open", group: lists, run: () => false },
    ...VIEWS.map(({ id, name, key }) => ({
      keys: `g ${key}`, says: `Go to ${name}`, group: "Views", run: () => go({ view: id }),
    })),
  ]);
}

// --- The page ------------------------------------------------------------------------------------------------------

const HOW_TO_ENTER = html`Press Enter in the terminal where <code>dugnad web</code> runs, and open the link that it prints.`;

/** The page without a session: how to get one. */
function Gate() {
  const first = !store.session;
  return html`<main class="gate"><h1>${first ? "This page needs a link" : "This page needs a new link"}</h1>
    <p>${plain(store.refused)}</p>
    <p>${HOW_TO_ENTER}</p></main>`;
}

function Waiting() {
  if (store.missing) return html`<p class="empty center" role="status">${plain(store.missing)}</p>`;
  return html`<p class="empty center" role="status">Opening the board…</p>`;
}

function Reading() {
  const { live } = store;
  if (!live || live.reading === null || live.reading === undefined) return null;
  return html`<div class="band" role="status">The log is being read: ${percent(live.reading)}</div>`;
}

function Refused() {
  if (!store.refused) return null;
  return html`<div class="band lost-band" role="alert"><span>${plain(store.refused)} ${HOW_TO_ENTER}</span></div>`;
}

function Toast() {
  // An open dialog shows by itself what went wrong; what lies behind it cannot be reached.
  const toast = store.dialog && store.toast?.wrong ? null : store.toast;
  return html`<div id="toast" class="toast-place" role=${toast?.wrong ? "alert" : "status"}>
    ${toast && html`<p class="toast ${toast.wrong ? "wrong" : ""}">${plain(toast.text)}</p>`}</div>`;
}

function App() {
  const [, draw] = useState(0);
  useLayoutEffect(() => onChange(() => draw((number) => number + 1)), []);
  useShellKeys();
  useLayoutEffect(markReady);
  if (store.refused && !store.live) return html`<${Gate} />`;
  if (!store.session) return html`<main class="gate"><${Waiting} /></main>`;
  const { view, task } = store.route;
  const Page = PAGES[view];
  const shown = frame();
  return html`
    <a class="skip" href="#main" onClick=${skip}>Skip to the view</a>
    <div class="app ${task && view !== "task" ? "with-panel" : ""}">
      <${Side} />
      <main id="main" class="main" tabindex="-1" data-view=${view} data-seq=${shown?.seq}>
        <${Refused} /><${Reading} /><${PastBand} />
        ${shown ? html`<${Page} key=${`${boardId()} ${view}`} />` : html`<${Waiting} />`}
      </main>
      ${shown && task && view !== "task" && html`<${TaskPanel} />`}
      <${SinceYouLeft} />
      <${TimeBar} />
    </div>
    <${Dialog} /><${Palette} /><${Toast} />
    <div id="live" class="unseen" aria-live="polite">${plain(store.news)}</div>`;
}

function skip(event) {
  event.preventDefault();
  document.getElementById("main").focus();
}

/** For tests and benchmarks: which view shows which event, once it can be seen and used. */
function markReady() {
  const shown = frame();
  if (!shown || !settled() || (inPast() && shown.seq !== store.route.at)) return;
  const says = `${store.route.view}:${shown.seq}`;
  requestAnimationFrame(() => setTimeout(() => {
    if (!settled()) return; // A part of the view has begun to read meanwhile.
    document.body.dataset.ready = "true";
    document.documentElement.dataset.ready = says;
  }));
}

function nameWindow() {
  const waits = store.live?.requests.length ?? 0;
  const name = VIEWS.find((view) => view.id === store.route.view)?.name ?? `#${store.route.task}`;
  const board = store.session?.boards.find((each) => each.id === boardId())?.name;
  document.title = `${waits ? `(${waits}) ` : ""}${name}${board ? ` · ${plain(board)}` : ""} · dugnad`;
}

applyTheme();
listen();
const place = document.getElementById("page");
place.replaceChildren();
render(html`<${App} />`, place);
onChange(nameWindow);
onChange(notifyOfNew);
start();
