/** Which nodes the graph draws. Done work folds into one node for each goal. Nothing here touches the page. */

import { OPEN_STATES } from "./filter.js";

/** Follow a node to the one it is folded into. */
function standIn(folded, id) {
  return folded.get(id) ?? String(id);
}

class Drawing {
  constructor(tasks) {
    this.tasks = tasks;
    this.folded = new Map(); // From the number of a task to the id of the node that stands for it.
    this.groups = new Map();
  }

  fold(key, task, says) {
    if (!this.groups.has(key)) this.groups.set(key, { id: key, root: task.root, says, tasks: [] });
    this.groups.get(key).tasks.push(task);
    this.folded.set(task.id, key);
  }

  get size() {
    return this.tasks.length - this.folded.size + this.groups.size;
  }
}

function foldDone(drawing, opened) {
  for (const task of drawing.tasks) {
    if (task.state === "done" && task.id !== task.root && !opened.has(`done:${task.root}`)) {
      drawing.fold(`done:${task.root}`, task, "done");
    }
  }
}

/** Tasks that ended without being done: most of them only say that something before them failed. */
function foldEnded(drawing, opened) {
  for (const task of drawing.tasks) {
    const key = `${task.state}:${task.root}`;
    if ((task.state === "skipped" || task.state === "cancelled") && !opened.has(key)) drawing.fold(key, task, task.state);
  }
}

/** Tasks that wait alike, need the same and are needed by the same look the same in the graph. */
function foldAlike(drawing, behind, opened) {
  const alike = new Map();
  for (const task of drawing.tasks) {
    if (drawing.folded.has(task.id) || task.state === "claimed") continue;
    const needs = (task.needs ?? []).map(([id]) => standIn(drawing.folded, id)).sort();
    const key = `alike:${task.root}:${task.state}:${needs}:${behind.get(task.id) ?? []}`;
    if (!alike.has(key)) alike.set(key, []);
    alike.get(key).push(task);
  }
  for (const [key, tasks] of alike) {
    if (tasks.length > 2 && !opened.has(key)) for (const task of tasks) drawing.fold(key, task, tasks[0].state);
  }
}

/** Whole goals in which nobody works, the largest first. */
function foldQuietGoals(drawing, opened, most) {
  const goals = new Map();
  for (const task of drawing.tasks) {
    if (!goals.has(task.root)) goals.set(task.root, []);
    goals.get(task.root).push(task);
  }
  const quiet = [...goals].filter(([root, tasks]) =>
    goals.size > 1 && !opened.has(`goal:${root}`) && !tasks.some((task) => task.state === "claimed"));
  quiet.sort((a, b) => b[1].length - a[1].length);
  for (const [root, tasks] of quiet) {
    if (drawing.size <= most) return;
    for (const key of [...drawing.groups.keys()]) if (drawing.groups.get(key).root === root) drawing.groups.delete(key);
    for (const task of tasks) drawing.fold(`goal:${root}`, task, "goal");
  }
}

/** The tasks that are far from what runs: only the nearest stay. */
function foldFar(drawing, behind, most) {
  const near = nearest(drawing, behind, Math.max(50, most - drawing.groups.size - 20));
  for (const task of drawing.tasks) {
    if (drawing.folded.has(task.id) || near.has(task.id)) continue;
    drawing.fold(`far:${task.root}:${OPEN_STATES.has(task.state) ? "open" : "ended"}`, task, "far");
  }
}

function nearest(drawing, behind, most) {
  const byId = new Map(drawing.tasks.map((task) => [task.id, task]));
  const starts = ["claimed", "waiting", "failed", "ready", "blocked"];
  const near = new Set();
  for (const state of starts) {
    let edge = drawing.tasks.filter((task) => task.state === state && !drawing.folded.has(task.id));
    while (edge.length && near.size < most) {
      const next = [];
      for (const task of edge) {
        if (near.size >= most || near.has(task.id)) continue;
        near.add(task.id);
        const around = [...(task.needs ?? []).map(([id]) => id), ...(behind.get(task.id) ?? [])];
        for (const id of around) if (byId.has(id) && !near.has(id) && !drawing.folded.has(id)) next.push(byId.get(id));
      }
      edge = next;
    }
  }
  return near;
}

/** The nodes and edges to draw, and a sentence if more than done work is folded. */
export function folded(tasks, behind, opened, most = 700) {
  const drawing = new Drawing(tasks);
  foldDone(drawing, opened);
  const full = drawing.size;
  if (drawing.size > most) foldEnded(drawing, opened);
  if (drawing.size > most) foldAlike(drawing, behind, opened);
  if (drawing.size > most) foldQuietGoals(drawing, opened, most);
  if (drawing.size > most) foldFar(drawing, behind, most);
  const many = `${full.toLocaleString("en-US")} tasks are too many to draw at once, so more of them are folded.`;
  return { ...drawn(drawing), says: drawing.size < full ? `${many} Filter to see the others.` : "" };
}

function drawn(drawing) {
  const nodes = new Map();
  for (const task of drawing.tasks) {
    if (!drawing.folded.has(task.id)) nodes.set(String(task.id), { id: String(task.id), root: task.root, task });
  }
  for (const [key, group] of drawing.groups) nodes.set(key, group);
  const edges = new Map();
  for (const task of drawing.tasks) {
    for (const [needed, outcome = null, state = "open"] of task.needs ?? []) {
      addEdge(edges, nodes, drawing, { task, needed, outcome, state });
    }
  }
  return { nodes: withoutLoneGoals(nodes, edges), edges: [...edges.values()] };
}

function addEdge(edges, nodes, drawing, { task, needed, outcome, state }) {
  const from = standIn(drawing.folded, needed);
  const to = standIn(drawing.folded, task.id);
  if (from === to || !nodes.has(from) || !nodes.has(to)) return;
  const key = `${from}>${to}`;
  const found = edges.get(key);
  if (!found) edges.set(key, { id: key, from, to, outcome, state, reason: task.reason, count: 1 });
  else {
    found.count += 1;
    if (state === "broken") Object.assign(found, { state, reason: task.reason });
    if (found.outcome !== outcome) found.outcome = null;
  }
}

/** A goal without needs is the heading of its band; as a node it would say nothing more. */
function withoutLoneGoals(nodes, edges) {
  const linked = new Set([...edges.values()].flatMap((edge) => [edge.from, edge.to]));
  const bands = new Map();
  for (const node of nodes.values()) bands.set(node.root, (bands.get(node.root) ?? 0) + 1);
  const lone = (node) => node.task && node.task.id === node.root && !linked.has(node.id) && bands.get(node.root) > 1;
  return [...nodes.values()].filter((node) => !lone(node));
}

/** The longest chain of open tasks: the ids of its nodes and edges. It is what decides how long the rest takes. */
export function longestChain(nodes, edges) {
  const open = new Set(nodes.filter((node) => node.task && OPEN_STATES.has(node.task.state)).map((node) => node.id));
  const before = new Map();
  for (const edge of edges) {
    if (!open.has(edge.from) || !open.has(edge.to) || edge.state !== "open") continue;
    if (!before.has(edge.to)) before.set(edge.to, []);
    before.get(edge.to).push(edge);
  }
  const best = new Map();
  const measure = (start) => {
    const path = [start];
    const onPath = new Set(path);
    while (path.length) {
      const id = path.at(-1);
      const into = before.get(id) ?? [];
      const unknown = into.find((edge) => !best.has(edge.from) && !onPath.has(edge.from));
      if (unknown) {
        path.push(unknown.from);
        onPath.add(unknown.from);
        continue;
      }
      const lengthTo = (edge) => best.get(edge.from)?.length ?? 0;
      const via = into.reduce((most, edge) => (!most || lengthTo(edge) > lengthTo(most) ? edge : most), null);
      best.set(id, { length: via ? 1 + lengthTo(via) : 0, via });
      path.pop();
    }
  };
  for (const id of open) if (!best.has(id)) measure(id);
  let end = [...best].reduce((most, [id, found]) => (found.length > (most ? best.get(most).length : 0) ? id : most), null);
  const chain = new Set();
  while (end && best.get(end)) {
    chain.add(end);
    const { via } = best.get(end);
    if (!via) break;
    chain.add(via.id);
    end = via.from;
  }
  return chain;
}

/** Everything before a node and everything after it, by the edges. */
export function lineage(id, edges) {
  const walk = (from, to) => {
    const next = new Map();
    for (const edge of edges) {
      if (!next.has(edge[from])) next.set(edge[from], []);
      next.get(edge[from]).push(edge);
    }
    const seen = new Set();
    const found = new Set();
    const todo = [id];
    while (todo.length) {
      for (const edge of next.get(todo.pop()) ?? []) {
        found.add(edge.id);
        if (!seen.has(edge[to])) {
          seen.add(edge[to]);
          todo.push(edge[to]);
        }
      }
    }
    return { nodes: seen, edges: found };
  };
  return { before: walk("to", "from"), after: walk("from", "to") };
}
