/** A frame is the board at one event number: as it is now, or as it was. Nothing here touches the page. */

import { OPEN_STATES } from "./filter.js";

const EVENTS_KEPT = 300;

/** A frame from the answer to `state`. */
export function frameOf(shape) {
  return {
    ...shape,
    // The server's clock counts, not the browser's.
    ahead: shape.now - Date.now(),
    tasks: new Map(shape.tasks.map((task) => [task.id, task])),
    budgets: new Map(shape.budgets.map((budget) => [budget.root, budget])),
    events: [],
  };
}

/** The frame after a message of the stream. The maps are changed in place, since only the newest frame is drawn. */
export function withNews(frame, news) {
  for (const task of news.tasks ?? []) frame.tasks.set(task.id, task);
  for (const id of news.gone ?? []) frame.tasks.delete(id);
  for (const budget of news.budgets ?? []) frame.budgets.set(budget.root, budget);
  const { tasks: _, gone: __, budgets: ___, events = [], ...facts } = news;
  const known = frame.events.at(-1)?.seq ?? 0;
  const fresh = events.filter((event) => event.seq > known);
  return {
    ...frame, ...facts, last: news.seq, ahead: news.now - Date.now(),
    events: fresh.length ? [...frame.events, ...fresh].slice(-EVENTS_KEPT) : frame.events,
  };
}

/** What time it is in the frame: it goes on now, and stands still in the past. */
export function timeOf(frame) {
  return frame.live ? Date.now() + frame.ahead : frame.now;
}

/** Computes once for each argument; the last few answers are kept. */
export function remembered(compute) {
  let kept = [];
  return (...given) => {
    const found = kept.find(([args]) => args.length === given.length && args.every((arg, i) => arg === given[i]));
    if (found) return found[1];
    const answer = compute(...given);
    kept = [[given, answer], ...kept].slice(0, 3);
    return answer;
  };
}

export const tasksOf = remembered((frame) => [...frame.tasks.values()]);

/** Which tasks wait for a task: a map from its number to theirs. */
export const dependentsOf = remembered((frame) => {
  const behind = new Map();
  for (const task of frame.tasks.values()) {
    for (const [needed] of task.needs ?? []) {
      if (!behind.has(needed)) behind.set(needed, []);
      behind.get(needed).push(task.id);
    }
  }
  return behind;
});

/** How many open tasks stand behind each open task, in the longest chain. It counts what a delay costs. */
export const chainsOf = remembered((frame) => {
  const behind = dependentsOf(frame);
  const known = new Map();
  const walk = (start) => {
    const path = [start];
    const onPath = new Set(path); // A circle cannot be on a board; if one is, this walk still ends.
    while (path.length) {
      const id = path.at(-1);
      const next = (behind.get(id) ?? []).filter((each) => OPEN_STATES.has(frame.tasks.get(each)?.state));
      const unknown = next.find((each) => !known.has(each) && !onPath.has(each));
      if (unknown !== undefined) {
        path.push(unknown);
        onPath.add(unknown);
      } else {
        known.set(id, next.reduce((most, each) => Math.max(most, 1 + (known.get(each) ?? 0)), 0));
        path.pop();
      }
    }
  };
  for (const task of frame.tasks.values()) if (OPEN_STATES.has(task.state) && !known.has(task.id)) walk(task.id);
  return known;
});

/** The ready tasks in the order in which they are claimed: priority, then the longest chain behind, then age. */
export const nextUp = remembered((frame) => {
  const chains = chainsOf(frame);
  const rank = (task) => [-(task.priority ?? 0), -(chains.get(task.id) ?? 0), task.id];
  return tasksOf(frame)
    .filter((task) => task.state === "ready")
    .map((task) => [rank(task), task])
    .sort(([a], [b]) => a[0] - b[0] || a[1] - b[1] || a[2] - b[2])
    .map(([, task]) => task);
});

export function titleOf(frame, id) {
  return frame.tasks.get(id)?.title ?? "";
}
