/** What the page knows, and where it is. Views read it and never change it; the functions here do, and then the page is
drawn again. The place is kept in the query of the address, so that every place is a link. */

import { boardPath, follow, get, post, Refusal } from "./api.js";
import { frameOf, timeOf, withNews } from "./frame.js";

export const VIEWS = [
  { id: "now", name: "Now", key: "n" },
  { id: "foryou", name: "For you", key: "f" },
  { id: "board", name: "Board", key: "b" },
  { id: "graph", name: "Graph", key: "g" },
  { id: "timeline", name: "Timeline", key: "t" },
  { id: "money", name: "Money", key: "m" },
  { id: "team", name: "Team", key: "e" },
  { id: "merges", name: "Merges", key: "r" },
  { id: "log", name: "Log", key: "l" },
];
const KNOWN = new Set([...VIEWS.map((view) => view.id), "task"]);
const NAMES = ["board", "view", "task", "filter", "at", "tab", "attempt"];
const NUMBERS = new Set(["task", "at", "attempt"]);

/** The place that an address names. What it names wrongly counts as not named. */
export function read(search) {
  const query = new URLSearchParams(search);
  const route = {};
  for (const name of NAMES) {
    const value = query.get(name);
    if (value === null || value === "") continue;
    if (!NUMBERS.has(name)) route[name] = value;
    else if (/^\d{1,15}$/.test(value)) route[name] = Number(value);
  }
  if (!KNOWN.has(route.view) || (route.view === "task" && !route.task)) route.view = "now";
  return route;
}

/** The address of a place. */
export function address(route) {
  const query = new URLSearchParams();
  for (const name of NAMES) {
    const value = route[name];
    if (value !== undefined && value !== null && value !== "") query.set(name, value);
  }
  return `?${query}`;
}

/** The place after a step. Another view closes the task; the board, the filter and the time stay. */
export function stepped(route, step) {
  const left = "view" in step && step.view !== route.view ? { task: undefined, tab: undefined, attempt: undefined } : {};
  const other = "task" in step && step.task !== route.task ? { tab: undefined, attempt: undefined } : {};
  return { ...route, ...left, ...other, ...step };
}

export const store = {
  session: null, // The answer to `api/session`,
  refused: "", // or why there is none.
  link: "off", // "on" while the stream is open.
  live: null, // The board as it is now,
  past: null, // and as it was at `route.at`.
  missing: "", // Why the board cannot be shown,
  trouble: "", // or why what is shown may be old.
  route: read(location.search),
  left: null, // The event number that this browser saw last, before it came back.
  dialog: null, palette: null, toast: null, since: false, news: "",
};

const drawers = new Set();
let drawing = false;

/** Call `draw` after every change, at most once for each picture of the screen. */
export function onChange(draw) {
  drawers.add(draw);
}

export function change(facts) {
  Object.assign(store, facts);
  const draw = () => {
    drawing = false;
    for (const each of drawers) each();
  };
  // The keys that somebody types next belong to what opens now.
  if ("dialog" in facts || "palette" in facts) {
    draw();
    return;
  }
  if (drawing) return;
  drawing = true;
  // A hidden page gets no frames, but its title still counts what waits.
  if (document.hidden) setTimeout(draw, 200);
  else requestAnimationFrame(draw);
}

/** The frame to draw: the past while somebody looks back. Until it has come, the one before stays. */
export function frame() {
  return inPast() ? (store.past ?? store.live) : store.live;
}

export function inPast() {
  return store.route.at !== undefined;
}

export function canSteer() {
  return store.session?.scope === "steer" && !inPast();
}

// --- The place -----------------------------------------------------------------------------------------------------

/** Go somewhere. With `replace` the step before is not kept in the history of the browser. */
export function go(step, { replace = false } = {}) {
  const before = store.route;
  const route = stepped(before, step);
  const target = address(route);
  if (target !== address(before)) history[replace ? "replaceState" : "pushState"](null, "", target);
  arrive(route);
}

export function hrefOf(step) {
  return address(stepped(store.route, step));
}

function arrive(route) {
  const before = store.route;
  change({ route });
  if (route.board !== before.board) openBoard();
  else if (route.at !== before.at) showPast();
}

// --- The session ---------------------------------------------------------------------------------------------------

/** Exchange the key in the fragment, if there is one, and remove it from the address at once. */
async function exchangeKey() {
  const found = /^#(?:steer|look)=([\w-]+)$/.exec(location.hash);
  if (!found) return null;
  history.replaceState(null, "", location.pathname + location.search);
  return post("api/session", { key: found[1] });
}

async function enter() {
  try {
    const session = (await exchangeKey()) ?? (await get("api/session"));
    change({ session, refused: "" });
    openBoard();
  } catch (error) {
    if (!(error instanceof Refusal)) throw error;
    if (error.status === 401) return change({ refused: error.message });
    change({ link: "off", missing: store.live ? "" : error.message });
    setTimeout(enter, 2000);
  }
}

export function boardId() {
  const boards = store.session?.boards ?? [];
  return (boards.find((board) => board.id === store.route.board) ?? boards[0])?.id;
}

// --- The board as it is --------------------------------------------------------------------------------------------

let stopFollowing = () => {};
let opening = 0;

function openBoard() {
  stopFollowing();
  if (!store.session) return;
  const board = boardId();
  if (!board) return change({ missing: "This link shows no board." });
  change({ live: null, past: null, missing: "", left: seenLast(board) });
  pastFrames.clear();
  load(board, (opening += 1));
  if (inPast()) showPast();
}

async function load(board, turn) {
  try {
    const shape = await get(boardPath(board, "state"));
    if (turn !== opening) return;
    change({ live: frameOf(shape), missing: "" });
    remember(board);
    if (shape.reading !== null && shape.reading !== undefined) return setTimeout(load, 400, board, turn);
    lastEvents(board, turn);
    watch(board, turn);
  } catch (error) {
    if (turn !== opening) return;
    if (error.status === 401) return change({ refused: error.message });
    change({ missing: error.message, link: "off" });
    setTimeout(load, 2000, board, turn);
  }
}

async function lastEvents(board, turn) {
  const { events } = await get(boardPath(board, "events"), { before: store.live.seq + 1, page: 60 });
  if (turn !== opening) return;
  const known = new Set(store.live.events.map((event) => event.seq));
  const older = events.filter((event) => !known.has(event.seq));
  change({ live: { ...store.live, events: [...older, ...store.live.events] } });
}

function watch(board, turn) {
  stopFollowing();
  stopFollowing = follow(board, () => store.live.seq, {
    up: () => change({ link: "on" }),
    down: () => change({ link: "off" }),
    gone: () => change({ link: "off", refused: "The session of this page has ended." }),
    facts: (kind, facts) => turn === opening && heard(kind, facts),
    reset: () => turn === opening && load(board, turn),
    news: (news) => {
      if (turn !== opening || news.seq < store.live.seq) return;
      change({ live: withNews(store.live, news), news: spokenNews(news) || store.news });
      remember(board);
    },
  });
}

/** What the stream says besides news: leases that were renewed, and how the server is. */
function heard(kind, facts) {
  if (kind === "trouble") return change({ trouble: facts.message ?? "" });
  const { now = timeOf(store.live) } = facts;
  return change({ live: { ...store.live, ...facts, now, ahead: now - Date.now() } });
}

/** One sentence for a screen reader, and only about what matters to a person. */
function spokenNews(news) {
  const told = (news.events ?? []).filter((event) => ["failed", "budget_reached", "host_lost"].includes(event.kind));
  const asked = (news.requests ?? []).length - (store.live?.requests ?? []).length;
  if (asked > 0) return `${asked === 1 ? "A request waits" : `${asked} requests wait`} for you.`;
  if (told.length > 1) return `${told.length} things went wrong.`;
  const [event] = told;
  return event ? `${event.task ? `#${event.task}: ` : ""}${event.says}` : "";
}

// --- The board as it was -------------------------------------------------------------------------------------------

const pastFrames = new Map(); // The last few, so that stepping back and forth is instant.
let pastRequest = null;
const FRAMES_KEPT = 24;
const TASKS_KEPT = 60_000; // In all of them.

async function showPast() {
  pastRequest?.abort();
  const { at } = store.route;
  if (at === undefined || !store.session) return change({ past: null });
  if (pastFrames.has(at)) return change({ past: pastFrames.get(at) });
  const request = (pastRequest = new AbortController());
  try {
    const board = boardId();
    const [shape, { events }] = await Promise.all([
      get(boardPath(board, "state"), { at }, request.signal),
      get(boardPath(board, "events"), { before: at + 1, page: 60 }, request.signal),
    ]);
    const past = { ...frameOf(shape), live: false, events };
    pastFrames.set(at, past);
    const most = Math.max(2, Math.min(FRAMES_KEPT, Math.floor(TASKS_KEPT / (past.tasks.size + 1))));
    while (pastFrames.size > most) pastFrames.delete(pastFrames.keys().next().value);
    if (store.route.at === at) change({ past });
  } catch (error) {
    if (error.name === "AbortError") return;
    if (error.status === 401) return change({ refused: error.message });
    say(error.message, true);
  }
}

// --- What this browser saw last ------------------------------------------------------------------------------------

const SEEN = "dugnad.seen.";

function seenLast(board) {
  const seen = Number(localStorage.getItem(SEEN + board));
  return Number.isInteger(seen) && seen > 0 ? seen : null;
}

let remembering = 0;

/** Keep the number of the last event that a person can have seen. */
function remember(board = boardId()) {
  if (document.hidden || remembering || !store.live) return;
  remembering = setTimeout(() => {
    remembering = 0;
    if (!document.hidden && store.live) localStorage.setItem(SEEN + board, String(store.live.seq));
  }, 1000);
}

/** The person comes back to the page after a while: what happened meanwhile can be listed. */
function cameBack(after) {
  if (store.live && after < store.live.seq) change({ left: after });
}

// --- Small things --------------------------------------------------------------------------------------------------

let toastTimer = 0;

/** Show one sentence for a while. */
export function say(text, wrong = false) {
  clearTimeout(toastTimer);
  change({ toast: { text, wrong } });
  toastTimer = setTimeout(() => change({ toast: null }), wrong ? 9000 : 4500);
}

/** A choice of how things are shown; it stays in this browser. */
export function choice(name, otherwise) {
  return localStorage.getItem(`dugnad.${name}`) ?? otherwise;
}

export function choose(name, value) {
  localStorage.setItem(`dugnad.${name}`, value);
  change({});
}

export function start() {
  addEventListener("popstate", () => arrive(read(location.search)));
  addEventListener("hashchange", () => location.hash && enter());
  let hiddenAt = null;
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) hiddenAt = { seq: store.live?.seq, at: Date.now() };
    else {
      // A short look at another window is no absence.
      if (hiddenAt?.seq && Date.now() - hiddenAt.at > 5 * 60_000) cameBack(hiddenAt.seq);
      change({});
      remember();
    }
  });
  return enter();
}
