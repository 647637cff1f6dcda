/** The small parts that views are made of: shapes and icons, links, times, amounts, texts, and what they read. */

import { html, useEffect, useRef, useState } from "./vendor/standalone.module.js";
import { boardPath, get } from "./api.js";
import { clock, compact, count, countdown, moment, money, oneLine, plain, span } from "./format.js";
import { timeOf, titleOf } from "./frame.js";
import { boardId, canSteer, change, frame, go, hrefOf, inPast, store } from "./store.js";

const ring = html`<circle cx="8" cy="8" r="5.75" />`;
const disc = html`<circle class="solid" cx="8" cy="8" r="6.5" />`;

const STATES = {
  blocked: html`<circle cx="8" cy="8" r="5.75" stroke-dasharray="2.2 2.32" />`,
  scheduled: html`${ring}<path d="M8 4.75V8l2.2 1.4" />`,
  ready: ring,
  claimed: html`${ring}<path class="solid" d="M8 4.6a3.4 3.4 0 0 1 0 6.8z" /><path class="solid faint"
    d="M8 4.6a3.4 3.4 0 0 0 0 6.8z" />`,
  waiting: html`${ring}<path d="M6.4 5.9v4.2M9.6 5.9v4.2" />`,
  done: html`${disc}<path class="cut" d="M5.2 8.2l2 2 3.7-4.2" />`,
  failed: html`${disc}<path class="cut" d="M5.8 5.8l4.4 4.4M10.2 5.8l-4.4 4.4" />`,
  cancelled: html`${ring}<path d="M4.2 11.8l7.6-7.6" />`,
  skipped: html`${ring}<path d="M5.4 5.8L7.6 8l-2.2 2.2M8.6 5.8L10.8 8l-2.2 2.2" />`,
};
// How a teammate is: the same shapes mean the same.
const LIKE = {
  working: "claimed", idle: "ready", wanted: "blocked", stopped: "cancelled", lost: "failed", retry: "skipped",
  released: "skipped",
};

/** The shape of a state. It is hidden from screen readers, because the word always stands beside it or in its label. */
export function Glyph({ state }) {
  const shape = STATES[state] ?? STATES[LIKE[state]] ?? ring;
  return html`<svg class="glyph s-${state ?? "none"}" viewBox="0 0 16 16" width="14" height="14" aria-hidden="true">
    ${shape}</svg>`;
}

const ICONS = {
  now: "M8 1.75v2M8 12.25v2M1.75 8h2M12.25 8h2M8 5.25a2.75 2.75 0 1 1 0 5.5 2.75 2.75 0 0 1 0-5.5",
  foryou: "M8 2.25a3.9 3.9 0 0 0-3.9 3.9c0 3-1.35 4.1-1.35 4.1h10.5s-1.35-1.1-1.35-4.1A3.9 3.9 0 0 0 8 2.25M6.6 12.75a1.5 1.5 0 0 0 2.8 0",
  board: "M2.75 2.75h2.5v10.5h-2.5zM6.75 2.75h2.5v6.5h-2.5zM10.75 2.75h2.5v8.5h-2.5z",
  graph: "M2.25 6.25h3.5v3.5h-3.5zM10.25 2.25h3.5v3.5h-3.5zM10.25 10.25h3.5v3.5h-3.5zM5.75 8h1.5q1 0 1-1V5q0-1 1-1h1M7.25 8q1 0 1 1v2q0 1 1 1h1",
  timeline: "M2.25 4h6M5.25 8h6M8.75 12h5",
  money: "M8 1.75v12.5M11 4.6C10.6 3.6 9.5 3.2 8 3.2c-1.8 0-3 .8-3 2.2 0 3.2 6.2 1.6 6.2 4.9 0 1.5-1.3 2.4-3.2 2.4-1.7 0-2.9-.6-3.3-1.8",
  team: "M6 7.5a2.25 2.25 0 1 0 0-4.5 2.25 2.25 0 0 0 0 4.5M1.75 13c0-2.4 1.8-3.75 4.25-3.75S10.25 10.6 10.25 13M10.5 3.2a2.2 2.2 0 0 1 0 4.1M11.75 9.5c1.6.4 2.5 1.6 2.5 3.5",
  merges: "M4.5 5.75v4.5M4.5 5.75a1.75 1.75 0 1 0 0-3.5 1.75 1.75 0 0 0 0 3.5M4.5 13.75a1.75 1.75 0 1 0 0-3.5 1.75 1.75 0 0 0 0 3.5M11.5 9.75a1.75 1.75 0 1 0 0-3.5 1.75 1.75 0 0 0 0 3.5M4.6 5.8c.4 1.7 2 2.2 5.1 2.2",
  log: "M3 4h10M3 8h10M3 12h6",
  search: "M7 11.5a4.5 4.5 0 1 0 0-9 4.5 4.5 0 0 0 0 9M10.4 10.4l3.1 3.1",
  plus: "M8 3.25v9.5M3.25 8h9.5",
  close: "M4 4l8 8M12 4l-8 8",
  wide: "M9.5 2.75h3.75V6.5M13 3L9.25 6.75M6.5 13.25H2.75V9.5M3 13l3.75-3.75",
  down: "M4 6.25L8 10.25 12 6.25",
  right: "M6.25 4L10.25 8 6.25 12",
  back: "M9.75 4L5.75 8l4 4",
  play: "M5 3.25l7.5 4.75L5 12.75z",
  pause: "M5.5 3.5v9M10.5 3.5v9",
  stepback: "M10.5 3.75L5.75 8l4.75 4.25M4.25 3.75v8.5",
  stepon: "M5.5 3.75L10.25 8 5.5 12.25M11.75 3.75v8.5",
  sun: "M8 5.25a2.75 2.75 0 1 1 0 5.5 2.75 2.75 0 0 1 0-5.5M8 1.5v1.25M8 13.25v1.25M1.5 8h1.25M13.25 8h1.25M3.4 3.4l.9.9M11.7 11.7l.9.9M12.6 3.4l-.9.9M4.3 11.7l-.9.9",
  moon: "M13 9.6A5.5 5.5 0 0 1 6.4 3 5.5 5.5 0 1 0 13 9.6",
  auto: "M8 2.25a5.75 5.75 0 1 0 0 11.5zM8 2.25a5.75 5.75 0 0 1 0 11.5",
  keys: "M1.75 4.25h12.5v7.5H1.75zM4.5 7h.01M7 7h.01M9.5 7h.01M12 7h.01M5 9.5h6",
  target: "M8 2.5a5.5 5.5 0 1 1 0 11 5.5 5.5 0 0 1 0-11M8 6.25a1.75 1.75 0 1 1 0 3.5 1.75 1.75 0 0 1 0-3.5",
  note: "M3.25 2.75h9.5v7l-3.5 3.5h-6zM9.25 13v-3.5h3.5",
};

export function Icon({ name, size = 16 }) {
  return html`<svg class="icon" viewBox="0 0 16 16" width=${size} height=${size} aria-hidden="true">
    <path d=${ICONS[name]} /></svg>`;
}


// --- Links ---------------------------------------------------------------------------------------------------------

/** A link to a place in the page. With a modifier key the browser opens it as any other link. */
export function Link({ to, replace = false, children, ...rest }) {
  const follow = (event) => {
    if (event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
    event.preventDefault();
    go(to, { replace });
  };
  return html`<a ...${rest} href=${hrefOf(to)} onClick=${follow}>${children}</a>`;
}

/** A task as a link: its shape, its number and its title. */
export function TaskLink({ id, title, state, most = 120, bare = false, ...rest }) {
  const known = frame()?.tasks.get(id);
  const is = state ?? known?.state;
  const name = title ?? known?.title ?? titleOf(frame(), id);
  return html`<${Link} ...${rest} to=${{ task: id }} class="task-link ${rest.class ?? ""}" data-task=${id}
    data-state=${is}
    aria-label=${`#${id} ${oneLine(name, most)}${is ? `, ${is}` : ""}`}>
    ${!bare && html`<${Glyph} state=${is} />`}<span class="id">#${id}</span> <span class="name">
      ${oneLine(name, most)}</span>
  <//>`;
}

export function State({ state, word }) {
  return html`<span class="state s-${state}"><${Glyph} state=${state} />${word ?? state}</span>`;
}

/** Somebody's name. Who steers is the human of the board. */
export function nameOf(name) {
  return name === "human" && store.session?.scope === "steer" ? "you" : oneLine(name, 40);
}

export function Who({ name }) {
  return html`<span class="who">${nameOf(name)}</span>`;
}

// --- Time ----------------------------------------------------------------------------------------------------------

const tickers = new Set();
setInterval(() => {
  if (!document.hidden) for (const tick of tickers) tick();
}, 1000);

/** Draw again every second. Only the smallest parts use it. */
export function useTick(active = true) {
  const [, tick] = useState(0);
  useEffect(() => {
    if (!active) return undefined;
    const again = () => tick((number) => number + 1);
    tickers.add(again);
    return () => tickers.delete(again);
  }, [active]);
}

/** How long ago, or since when: 12m. */
export function Since({ at }) {
  const now = timeOf(frame());
  useTick(frame().live);
  return at ? html`<time title=${moment(at)}>${span(now - at)}</time>` : null;
}

/** A moment: 14:32:07. */
export function At({ at }) {
  return at ? html`<time class="at" title=${moment(at)}>${clock(at, timeOf(frame()))}</time>` : null;
}

/** The time until a moment: 0:42. */
export function Until({ at }) {
  useTick(frame().live);
  return html`<time class="num" title=${moment(at)}>${countdown(at - timeOf(frame()))}</time>`;
}

// --- Amounts -------------------------------------------------------------------------------------------------------

/** What something cost, in dollars if they are known. */
export function Cost({ dollars, tokens }) {
  if (dollars) return html`<span class="num" title=${`${count(tokens)} tokens`}>${money(dollars)}</span>`;
  if (tokens) return html`<span class="num">${compact(tokens)} tok</span>`;
  return null;
}

/** A bar of parts, each a share of the whole: [{share, kind}]. */
export function Meter({ parts, label }) {
  return html`<div class="meter" role="img" aria-label=${label} title=${label}>
    ${parts.map(({ share, kind }) => html`<span class="part ${kind}"
      style=${{ width: `${Math.max(0, Math.min(1, share)) * 100}%` }} />`)}
  </div>`;
}

// --- Texts ---------------------------------------------------------------------------------------------------------

const TEXT_MOST = 3000;

/** A text of a person or an agent. A long one is cut, and shown as a whole on request. */
export function Words({ text, most = TEXT_MOST, mono = false, ...rest }) {
  const [all, setAll] = useState(false);
  const whole = String(text ?? "");
  const long = whole.length > most * 1.2;
  const shown = plain(long && !all ? whole.slice(0, most) : whole);
  return html`<div class="words ${mono ? "mono" : ""} ${rest.class ?? ""}">
    ${shown}${long && !all ? "…" : ""}
    ${long && html`<button type="button" class="quiet show-all" onClick=${() => setAll(!all)}>
      ${all ? "Show less" : `Show all (${count(whole.length)} characters)`}</button>`}
  </div>`;
}

const MENTIONS = /#(\d{1,9})\b|`([^`\n]{1,120})`/g;

/** A sentence of the board. The tasks that it names become links, and commands are set apart. */
export function Said({ text, most = 600 }) {
  const said = plain(String(text ?? "").slice(0, most * 2)).slice(0, most);
  const parts = [];
  let end = 0;
  for (const found of said.matchAll(MENTIONS)) {
    const id = Number(found[1]);
    if (found[1] && !frame()?.tasks.has(id)) continue;
    parts.push(said.slice(end, found.index));
    parts.push(found[1] ? html`<${Link} to=${{ task: id }}>#${id}<//>` : html`<code>${found[2]}</code>`);
    end = found.index + found[0].length;
  }
  return [...parts, said.slice(end)];
}

// --- Frames --------------------------------------------------------------------------------------------------------

export function Section({ title, more, children, ...rest }) {
  return html`<section class="section ${rest.class ?? ""}" style=${rest.style}>
    <header class="section-head"><h2>${title}</h2>${more && html`<div class="section-more">${more}</div>`}</header>
    ${children}
  </section>`;
}

/** What a view says when it has nothing to show: one sentence, and a command if one helps. */
export function Empty({ says, command }) {
  return html`<p class="empty">${says}${command && html` In a terminal: <code>${command}</code>`}</p>`;
}

export function Button({ icon, children, kind = "", ...rest }) {
  return html`<button type="button" ...${rest} class="button ${kind}">${icon && html`<${Icon}
    name=${icon} />`}${children}</button>`;
}

/** A control that only somebody who may steer can see. */
export function Steer({ children }) {
  return canSteer() ? children : null;
}

/** One of a few choices. */
export function Choices({ label, value, options, onChoose }) {
  return html`<div class="choices" role="group" aria-label=${label}>
    ${options.map(([key, name]) => html`<button type="button" class="choice" aria-pressed=${String(key === value)}
      onClick=${() => onChoose(key)}>${name}</button>`)}
  </div>`;
}

/** Keys, as they are named on a keyboard. */
export function Keys({ keys }) {
  return html`<span class="keys">${keys.split(" ").map((key) => html`<kbd>
    ${key.replace("ctrl+", "Ctrl ")}</kbd>`)}</span>`;
}

export function Head({ title, says, children }) {
  return html`<header class="head">
    <h1>${title}</h1>${says && html`<p class="head-says">${says}</p>`}
    <div class="head-more">${children}</div>
  </header>`;
}

const AGAIN_MS = 1500; // A busy board changes many times a second; a view need not.
const waiting = new Set(); // The reads that a shown view still waits for.

/** Whether every shown view has what it asked for. */
export function settled() {
  return waiting.size === 0;
}

/** Wait for an answer that a shown view needs. */
export async function reading(answer) {
  waiting.add(answer);
  try {
    return await answer;
  } finally {
    waiting.delete(answer);
    change({});
  }
}

async function load({ current }, { key, path, query, at }, setHeld) {
  current.last = Date.now();
  current.request?.abort();
  const request = (current.request = new AbortController());
  waiting.add(current);
  try {
    const data = await get(boardPath(boardId(), path), { ...query, at }, request.signal);
    if (!request.signal.aborted) setHeld({ key, data, error: "" });
  } catch (error) {
    if (error.name === "AbortError") return;
    // What was shown stays if only the connection was lost.
    setHeld((before) => ({ key, data: before.key === key ? before.data : null, error: error.message }));
  }
  if (current.request === request) {
    waiting.delete(current);
    change({});
  }
}

/** {data, error, fresh}: the answer to a path of the board. It is read again when `stamp` changes. */
export function useLoaded(path, query = {}, stamp = frame()?.seq) {
  const [held, setHeld] = useState({ key: "", data: null, error: "" });
  const at = inPast() ? store.route.at : undefined;
  const place = path ? `${boardId()} ${path}` : "";
  const key = path ? `${place} ${JSON.stringify(query)} ${at ?? ""}` : "";
  const run = useRef({ request: null, last: 0, timer: 0 });

  useEffect(() => {
    clearTimeout(run.current.timer);
    if (!path) return;
    const read = () => load(run, { key, path, query, at }, setHeld);
    const pause = held.key === key ? AGAIN_MS - (Date.now() - run.current.last) : 0;
    if (pause > 0) run.current.timer = setTimeout(read, pause);
    else read();
  }, [key, stamp]);

  useEffect(() => () => {
    clearTimeout(run.current.timer);
    run.current.request?.abort();
    waiting.delete(run.current);
  }, []);

  // While another moment of the same thing is on its way, the one before stays, so that nothing flickers.
  const same = place && held.key.startsWith(`${place} `);
  return { data: same ? held.data : null, error: held.key === key ? held.error : "", fresh: held.key === key };
}
