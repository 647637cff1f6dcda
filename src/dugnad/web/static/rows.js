/** Long lists. Only the rows that can be seen are in the page, so that ten thousand scroll like ten. */

import { html, useEffect, useLayoutEffect, useMemo, useRef, useState } from "./vendor/standalone.module.js";

const BEYOND = 240; // Pixels above and below the window that are drawn too.

/** The top of each row, and the end of the last. */
function topsOf(items, size) {
  const tops = new Float64Array(items.length + 1);
  for (let at = 0; at < items.length; at += 1) tops[at + 1] = tops[at] + size(items[at], at);
  return tops;
}

/** The last row that begins at or above `y`. */
function rowAt(tops, y) {
  let low = 0;
  let high = Math.max(0, tops.length - 2);
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (tops[middle] <= y) low = middle;
    else high = middle - 1;
  }
  return low;
}

/** What part of the scroller is seen: {top, tall}. */
function useWindow(scroller) {
  const [seen, setSeen] = useState({ top: 0, tall: 800 });
  useLayoutEffect(() => {
    const element = scroller.current;
    const look = () => setSeen((before) => {
      const now = { top: element.scrollTop, tall: element.clientHeight };
      return now.top === before.top && now.tall === before.tall ? before : now;
    });
    look();
    element.addEventListener("scroll", look, { passive: true });
    const watcher = new ResizeObserver(look);
    watcher.observe(element);
    return () => {
      element.removeEventListener("scroll", look);
      watcher.disconnect();
    };
  }, []);
  return seen;
}

/** Heights as they are measured, for rows whose text decides. */
function useHeights(measured, scroller, keyOf) {
  const heights = useRef(new Map());
  const [, again] = useState(0);
  const watcher = useMemo(() => measured && new ResizeObserver((entries) => {
    let changed = false;
    for (const { target } of entries) {
      const tall = target.offsetHeight;
      if (!tall || heights.current.get(target.dataset.key) === tall) continue;
      heights.current.set(target.dataset.key, tall);
      changed = true;
    }
    if (changed) again((number) => number + 1);
  }), []);
  useEffect(() => () => watcher && watcher.disconnect(), []);
  const watch = (element) => element && watcher && watcher.observe(element);
  return { watch, of: (item, otherwise) => heights.current.get(String(keyOf(item))) ?? otherwise };
}

const idOf = (item) => item.id;

/**
 * A list of rows. `size(item)` is the height of a row; with `measured` it is only a first guess.
 * `sizes` must change when `size` would answer otherwise. `row(item, at)` draws one. `onEnd` is called when the end
 * comes into sight.
 */
export function Rows({ items, size, row, keyOf = idOf, measured = false, label, onEnd, sizes, ...rest }) {
  const scroller = useRef(null);
  const seen = useWindow(scroller);
  const heights = useHeights(measured, scroller, keyOf);
  const tops = measured
    ? topsOf(items, (item, at) => heights.of(item, size(item, at)))
    : useMemo(() => topsOf(items, size), [items, sizes]);
  const total = tops[items.length] ?? 0;
  const from = items.length ? rowAt(tops, Math.max(0, seen.top - BEYOND)) : 0;
  const to = items.length ? rowAt(tops, seen.top + seen.tall + BEYOND) + 1 : 0;
  useEffect(() => {
    if (onEnd && to >= items.length && items.length) onEnd();
  }, [to, items.length]);
  useLayoutEffect(() => {
    const element = scroller.current;
    // How the keyboard reaches a row that is not in the page.
    element.showRow = (at) => {
      const [top, end] = [tops[at], tops[at + 1]];
      if (top < element.scrollTop + 32) element.scrollTop = Math.max(0, top - 32);
      else if (end > element.scrollTop + element.clientHeight) element.scrollTop = end - element.clientHeight;
    };
    element.rowCount = items.length;
  });
  const drawn = [];
  for (let at = from; at < to; at += 1) {
    const item = items[at];
    const key = keyOf(item);
    drawn.push(html`<div class="row" role="listitem" key=${key} data-at=${at} data-key=${key}
      ref=${measured ? heights.watch : null}
      aria-setsize=${items.length} aria-posinset=${at + 1}
      style=${{ top: `${tops[at]}px`, height: measured ? null : `${tops[at + 1] - tops[at]}px` }}>
        ${row(item, at)}</div>`);
  }
  return html`<div ref=${scroller} class="rows ${rest.class ?? ""}" data-rows role="group" aria-label=${label}
    tabindex=${rest.tabindex ?? -1}>
    <div class="rows-all" role="list" aria-label=${label} style=${{ height: `${total}px` }}>${drawn}</div>
  </div>`;
}

const WITHIN = "a[href], button, [tabindex='0'], input";

/** Move the focus by rows in the list that has it, or else in the first list of the page. */
export function moveFocus(by) {
  const active = document.activeElement;
  const lists = [...document.querySelectorAll("[data-rows]")];
  const list = active?.closest("[data-rows]") ?? lists.find((each) => each.rowCount);
  if (!list || !list.rowCount) return moveFocusPlainly(by);
  const row = active?.closest("[data-at]");
  const inside = row && list.contains(row) ? Number(row.dataset.at) : undefined;
  // Keys may come faster than rows are drawn.
  const from = list.wantedRow ?? inside;
  const at = from === undefined ? (list.lastRow ?? 0) : from + by;
  focusRow(list, Math.max(0, Math.min(list.rowCount - 1, at)), by);
  return true;
}

function focusRow(list, at, by, tries = 6) {
  list.showRow(at);
  list.wantedRow = at;
  const row = list.querySelector(`[data-at="${at}"]`);
  const target = row?.querySelector(WITHIN);
  if (target) {
    list.lastRow = at;
    list.wantedRow = undefined;
    target.focus({ preventScroll: true });
  } else if (row && by && at + by >= 0 && at + by < list.rowCount) focusRow(list, at + by, by);
  // The row is drawn after the scroll, so it may not be there yet.
  else if (!row && tries) requestAnimationFrame(() => list.wantedRow === at && focusRow(list, at, by, tries - 1));
  else list.wantedRow = undefined;
}

/** Scroll a part of a box into sight. Tab would go on from there after scrollIntoView, and this does not move it. */
export function reveal(part, box) {
  const [inner, outer] = [part.getBoundingClientRect(), box.getBoundingClientRect()];
  const by = (start, end) => (start < 0 ? start : Math.max(0, end));
  box.scrollLeft += by(inner.left - outer.left, inner.right - outer.right);
  box.scrollTop += by(inner.top - outer.top, inner.bottom - outer.bottom);
}

/** Short lists are in the page as a whole; their links are marked with data-item. */
function moveFocusPlainly(by) {
  const items = [...document.querySelectorAll("main [data-item]")].filter((each) => each.offsetParent);
  if (!items.length) return false;
  const at = items.indexOf(document.activeElement?.closest("[data-item]"));
  items[Math.max(0, Math.min(items.length - 1, at < 0 ? 0 : at + by))].focus();
  return true;
}

/** Move the focus to the list beside this one. */
export function moveAcross(by) {
  const lists = [...document.querySelectorAll("main [data-rows]")].filter((each) => each.rowCount);
  if (lists.length < 2) return false;
  const here = document.activeElement?.closest("[data-rows]");
  const at = lists.indexOf(here);
  const list = lists[Math.max(0, Math.min(lists.length - 1, at < 0 ? 0 : at + by))];
  const row = here && document.activeElement.closest("[data-at]");
  const tall = row ? row.getBoundingClientRect().top - here.getBoundingClientRect().top : 0;
  const top = list.getBoundingClientRect().top + tall - 8;
  const tasks = [...list.querySelectorAll("[data-at]")].filter((each) => each.querySelector("[data-task]"));
  const near = tasks.find((each) => each.getBoundingClientRect().top >= top) ?? tasks.at(-1);
  focusRow(list, near ? Number(near.dataset.at) : 0, 1);
  list.scrollIntoView({ block: "nearest", inline: "nearest" });
  return true;
}
