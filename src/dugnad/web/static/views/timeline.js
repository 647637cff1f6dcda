/** Timeline: a row for each teammate, a bar for each attempt. Idle time can be squeezed; the rehearsal lies behind. */

import { html, useEffect, useLayoutEffect, useMemo, useRef, useState } from "../vendor/standalone.module.js";
import { clock, count, oneLine, span } from "../format.js";
import { timeOf } from "../frame.js";
import { useKeys } from "../keys.js";
import { axis, labels } from "../layout.js";
import { Button, Empty, Glyph, Head, Link, useLoaded, useTick } from "../parts.js";
import { choice, choose, frame, store } from "../store.js";

const ENDS = ["done", "failed", "retry", "waiting", "released", "lost", "cancelled"];
const WORDS = { retry: "to be tried again", waiting: "put down to wait" };
const LEAST = 3; // Pixels: a bar that is narrower cannot be hit.

const howEnded = (bar) => (bar.ended_as ? (WORDS[bar.ended_as] ?? bar.ended_as) : "at work");

/** Bars of one row as they are drawn. Those that would be narrower than a pixel are joined with the one before. */
function drawnBars(bars, scale, width, now) {
  const drawn = [];
  for (const bar of bars) {
    const end = bar.end ?? now;
    if (end < scale.from || bar.start > scale.to) continue;
    const left = scale.place(Math.max(bar.start, scale.from)) * width;
    const right = Math.max(left + LEAST, scale.place(Math.min(end, scale.to)) * width - 1);
    const last = drawn.at(-1);
    if (last && right - last.left < LEAST * 2 && left - last.right < 1) {
      last.right = Math.max(last.right, right);
      last.more += 1;
    } else drawn.push({ bar, left, right, more: 0, end });
  }
  return drawn;
}

function Bar({ drawn }) {
  const { bar, left, right, more, end } = drawn;
  const wide = right - left;
  const says = [
    `#${bar.task} ${oneLine(bar.title, 100)}: attempt ${bar.number} of ${oneLine(bar.teammate, 40)}`, howEnded(bar),
    `${clock(bar.start)} to ${bar.end ? clock(bar.end) : "now"}`, span(end - bar.start),
    ...(more ? [`and ${count(more)} more here`] : []),
  ].join(", ");
  return html`<${Link} to=${{ task: bar.task }}
    class="bar e-${bar.ended_as ?? "open"} ${store.route.task === bar.task ? "open" : ""}" data-task=${bar.task}
    data-ended=${bar.ended_as ?? ""}
    title=${says} aria-label=${says} style=${{ left: `${left}px`, width: `${wide}px` }}>
      ${wide > 44 && html`<span class="bar-name">#${bar.task} ${wide > 90 ? oneLine(bar.title, 60) : ""}</span>`}<//>`;
}

function Row({ name, drawn, pale, scale, width }) {
  return html`<div class="tl-row" role="listitem" aria-label=${oneLine(name, 60)}>
    <span class="tl-name">${oneLine(name, 24)}</span>
    <div class="tl-track">
      ${pale.map((bar) => html`<span class="bar pale" title=${`Rehearsed: ${oneLine(bar.title, 100)}`}
        style=${across(scale.place(bar.start), scale.place(bar.end), width)} />`)}
      ${drawn.map((each) => html`<${Bar} key=${`${each.bar.task}.${each.bar.epoch}`} drawn=${each} />`)}
    </div>
  </div>`;
}

/** From one place of the axis to another, as a style. */
function across(left, right, width) {
  return { left: `${left * width}px`, width: `${Math.max(2, (right - left) * width)}px` };
}

/** The time without seconds, if the labels are minutes apart. */
function labelOf({ at, step }, now) {
  const said = clock(at, now);
  return step >= 60_000 && said.length === 8 ? said.slice(0, 5) : said;
}

function Axis({ scale, width, now }) {
  const marks = labels(scale, 84 / width).filter(({ place }) => (1 - place) * width > 44);
  return html`<div class="tl-axis" aria-hidden="true"><span class="tl-name" /><div class="tl-track">
    ${marks.map(({ at, place, step }) => html`<span class="tl-label" style=${{ left: `${place * width}px` }}>
      ${labelOf({ at, step }, now)}</span>`)}
  </div></div>`;
}

/** Behind the rows: lines at the labels, squeezed gaps, and now. */
function Grid({ scale, width, now }) {
  const marks = labels(scale, 84 / width);
  return html`<div class="tl-grid" aria-hidden="true"><div class="tl-track">
    ${marks.map(({ place }) => html`<span class="tl-line" style=${{ left: `${place * width}px` }} />`)}
    ${scale.pieces.filter((piece) => piece.idle).map(({ from, to, left, right }) => html`<span
      class="tl-gap ${(right - left) * width < 16 ? "slim" : ""}" style=${across(left, right, width)}>
      <span class="tl-gap-says">${span(to - from)}</span></span>`)}
    ${now >= scale.from && now <= scale.to && html`<span class="tl-now"
      style=${{ left: `${scale.place(now) * width}px` }} />`}
  </div></div>`;
}

function Legend({ bars, rehearsed }) {
  const found = ENDS.filter((end) => bars.some((bar) => bar.ended_as === end));
  return html`<ul class="tl-legend" aria-label="How attempts ended">
    ${bars.some((bar) => !bar.ended_as) && html`<li><span class="swatch e-open" />at work</li>`}
    ${rehearsed && html`<li><span class="swatch pale" />rehearsed</li>`}
    ${found.map((end) => html`<li key=${end}><span class="swatch e-${end}"><${Glyph} state=${end} /></span>
      ${WORDS[end] ?? end}</li>`)}
  </ul>`;
}

function useWidth(place) {
  const [width, setWidth] = useState(900);
  useLayoutEffect(() => {
    const watcher = new ResizeObserver(([entry]) => setWidth(Math.max(120, entry.contentRect.width)));
    watcher.observe(place.current);
    return () => watcher.disconnect();
  }, []);
  return width;
}

/** Draw a range with the pointer; it becomes the whole width. */
function useBrush(place, scale, width, zoomTo) {
  const [brush, setBrush] = useState(null);
  const start = useRef(null);
  const at = (event) => Math.max(0, Math.min(width, event.clientX - place.current.getBoundingClientRect().left));
  const onPointerDown = (event) => {
    if (event.button || event.pointerType === "touch") return;
    start.current = at(event);
  };
  const onPointerMove = (event) => {
    if (start.current === null) return;
    const here = at(event);
    if (Math.abs(here - start.current) > 6) {
      event.currentTarget.setPointerCapture(event.pointerId);
      setBrush([Math.min(here, start.current), Math.max(here, start.current)]);
    }
  };
  const onPointerUp = (event) => {
    start.current = null;
    if (!brush) return;
    event.preventDefault();
    zoomTo(brush.map((x) => scale.moment(x / width)));
    // The click that ends the drag must not open the bar below it.
    const swallow = (click) => {
      click.preventDefault();
      click.stopPropagation();
    };
    addEventListener("click", swallow, { capture: true, once: true });
    setTimeout(() => removeEventListener("click", swallow, { capture: true }), 80);
    setTimeout(() => setBrush(null));
  };
  return { brush, handlers: { onPointerDown, onPointerMove, onPointerUp } };
}

/** The arrow keys go from bar to bar, and between rows. */
function moveBetweenBars(event) {
  const bar = event.target.closest(".bar");
  const step = { ArrowLeft: ["bar", -1], ArrowRight: ["bar", 1], ArrowUp: ["row", -1], ArrowDown: ["row", 1] }[event.key];
  if (!bar || !step) return;
  event.preventDefault();
  const row = bar.closest(".tl-row");
  if (step[0] === "bar") {
    const bars = [...row.querySelectorAll("a.bar")];
    bars[bars.indexOf(bar) + step[1]]?.focus();
    return;
  }
  let next = row;
  do next = step[1] > 0 ? next.nextElementSibling : next.previousElementSibling;
  while (next && !next.querySelector?.("a.bar"));
  const middle = bar.offsetLeft + bar.offsetWidth / 2;
  const far = (each) => Math.abs(each.offsetLeft - middle);
  const [nearest] = [...(next?.querySelectorAll("a.bar") ?? [])].sort((a, b) => far(a) - far(b));
  nearest?.focus();
}

function paleBars(data, names) {
  const bars = data.rehearsal?.bars ?? [];
  const rows = new Map();
  for (const bar of bars) {
    const name = names[bar.row] ?? `Rehearsed ${bar.row + 1}`;
    if (!rows.has(name)) rows.set(name, []);
    rows.get(name).push(bar);
  }
  return rows;
}

/** Nearer, farther, earlier, later: never beyond the whole run. Nearer looks at the end, which matters most. */
function moves(scale, [first, end], setRange) {
  const wide = scale.to - scale.from;
  const show = (from, long) => {
    const start = Math.max(first, Math.min(end - long, from));
    setRange(long >= end - first ? null : [start, start + long]);
  };
  return { zoom: (by) => show(scale.to - wide * by, wide * by), pan: (by) => show(scale.from + wide * by, wide) };
}

function Chart({ data, range, setRange, squeezed }) {
  const shown = frame();
  const now = timeOf(shown);
  useTick(shown.live && data.bars.some((bar) => !bar.end));
  const place = useRef(null);
  const width = useWidth(place);
  const names = data.rows;
  const pale = useMemo(() => paleBars(data, names), [data]);
  // The end is rounded up, so that the picture does not creep with every second.
  const soon = Math.ceil(now / 10_000) * 10_000;
  const bars = [...data.bars, ...(data.rehearsal?.bars ?? [])];
  const first = bars.reduce((least, bar) => Math.min(least, bar.start), Infinity);
  const end = bars.reduce((most, bar) => Math.max(most, bar.end ?? soon), 0);
  const [from, to] = range ?? [first, end];
  const scale = axis(bars.map((bar) => ({ start: bar.start, end: bar.end ?? now })), from, to, squeezed);
  const byName = useMemo(() => grouped(data.bars), [data]);
  const { brush, handlers } = useBrush(place, scale, width, setRange);
  const rows = [...names, ...[...pale.keys()].filter((name) => !names.includes(name))];
  const { zoom, pan } = moves(scale, [first, end], setRange);
  useKeys([
    { keys: "+", says: "Nearer", run: () => zoom(0.6) },
    { keys: "=", run: () => zoom(0.6) },
    { keys: "-", says: "Farther", run: () => zoom(1.6) },
    { keys: "w", says: "The whole run", run: () => setRange(null) },
    { keys: "ArrowLeft", says: "Earlier", run: () => pan(-0.2) },
    { keys: "ArrowRight", says: "Later", run: () => pan(0.2) },
  ]);
  return html`<div class="zoom tl-zoom" role="group" aria-label="Zoom">
      <button type="button" class="icon-button" aria-label="Farther" disabled=${!range}
        onClick=${() => zoom(1.6)}>−</button>
      <button type="button" class="icon-button" aria-label="Nearer" onClick=${() => zoom(0.6)}>+</button></div>
  <div class="tl" onKeyDown=${moveBetweenBars} onDblClick=${() => setRange(null)}>
    <${Axis} scale=${scale} width=${width} now=${now} />
    <div class="tl-rows" role="list" aria-label="Teammates" ...${handlers}>
      <${Grid} scale=${scale} width=${width} now=${shown.live ? now : shown.now} />
      <div class="tl-measure"><span class="tl-name" /><div class="tl-track" ref=${place}>
        ${brush && html`<span class="tl-brush"
        style=${{ left: `${brush[0]}px`, width: `${brush[1] - brush[0]}px` }} />`}</div></div>
      ${rows.map((name) => html`<${Row} key=${name} name=${name} scale=${scale} width=${width}
        pale=${pale.get(name)?.filter((bar) => bar.end > scale.from && bar.start < scale.to) ?? []}
        drawn=${drawnBars(byName.get(name) ?? [], scale, width, now)} />`)}
    </div>
  </div>`;
}

function grouped(bars) {
  const found = new Map();
  for (const bar of bars) {
    if (!found.has(bar.teammate)) found.set(bar.teammate, []);
    found.get(bar.teammate).push(bar);
  }
  return found;
}

export function Timeline() {
  const { data, error } = useLoaded("timeline");
  const [range, setRange] = useState(null);
  const squeezed = choice("squeeze", "yes") === "yes";
  useEffect(() => setRange(null), [store.route.board]);
  const some = data?.bars.length > 0;
  return html`
    <${Head} title="Timeline" says=${data?.rehearsal && oneLine(data.rehearsal.label, 100)}>
      ${range && html`<${Button} onClick=${() => setRange(null)}>The whole run<//>`}
      <button type="button" class="button" aria-pressed=${String(squeezed)}
        onClick=${() => choose("squeeze", squeezed ? "no" : "yes")}>Squeeze idle time</button>
    <//>
    ${error && html`<p class="empty">${error}</p>`}
    ${data && !some && html`<div class="body"><${Empty} says="Nobody has worked on a task yet."
      command="dugnad run" /></div>`}
    ${some && html`<${Chart} data=${data} range=${range} setRange=${setRange} squeezed=${squeezed} />`}
    ${some && html`<footer class="tl-foot"><${Legend} bars=${data.bars} rehearsed=${Boolean(data.rehearsal)} />
      <p class="tl-hint">Draw over the rows to see a part of the time; double-click for the whole.</p></footer>`}`;
}
