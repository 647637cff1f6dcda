/** Graph: what needs what, from left to right. Done work is folded; the longest open chain is thick. */

import { Component, html, useEffect, useLayoutEffect, useMemo, useRef, useState } from "../vendor/standalone.module.js";
import { folded, lineage, longestChain } from "../folding.js";
import { count, counted, oneLine, plain } from "../format.js";
import { dependentsOf, remembered, tasksOf, titleOf } from "../frame.js";
import { useKeys } from "../keys.js";
import { layout, SIZE } from "../layout.js";
import { Button, Empty, Glyph, Head, Icon, Link, TaskLink } from "../parts.js";
import { frame, go, store } from "../store.js";
import { filtered, FilterLine } from "./board.js";

const LEAST = 0.12;
const MOST = 2;
const EDGE = 32;

class Camera {
  constructor(view) {
    this.view = view;
    this.x = EDGE;
    this.y = 0;
    this.scale = 1;
    this.laid = null;
  }

  get frame() {
    const { clientWidth = 800, clientHeight = 600 } = this.view.current ?? {};
    return { width: clientWidth, height: clientHeight };
  }

  apply() {
    const picture = this.view.current?.querySelector("[data-camera]");
    const [x, y] = [Math.round(this.x), Math.round(this.y)];
    if (picture) picture.style.transform = `translate(${x}px, ${y}px) scale(${this.scale})`;
  }

  pan(x, y) {
    this.x += x;
    this.y += y;
    this.keepInSight();
    this.apply();
  }

  /** A part of the picture always stays in sight, so that nobody gets lost. */
  keepInSight() {
    const { width, height } = this.frame;
    const wide = (this.laid?.width ?? 0) * this.scale;
    const tall = (this.laid?.height ?? 0) * this.scale;
    this.x = Math.min(width - 120, Math.max(120 - wide, this.x));
    this.y = Math.min(height - 80, Math.max(80 - tall, this.y));
  }

  zoom(by, at = { x: this.frame.width / 2, y: this.frame.height / 2 }) {
    const scale = Math.min(MOST, Math.max(LEAST, this.scale * by));
    const real = scale / this.scale;
    this.x = at.x - (at.x - this.x) * real;
    this.y = at.y - (at.y - this.y) * real;
    this.scale = scale;
    this.pan(0, 0);
  }

  /** The whole picture, if it can still be read then. */
  whole(least = LEAST) {
    if (!this.laid?.width) return;
    const { width, height } = this.frame;
    const fits = Math.min((width - 2 * EDGE) / this.laid.width, (height - 2 * EDGE) / this.laid.height);
    this.scale = Math.min(1, Math.max(least, fits));
    this.x = Math.max(EDGE, (width - this.laid.width * this.scale) / 2);
    this.y = Math.max(0, (height - this.laid.height * this.scale) / 2 - 12);
    this.apply();
  }

  /** At first: the whole picture if it is small, or else what runs, in readable size. */
  fit(places) {
    this.whole(0.62);
    const { width = 0, height = 0 } = this.laid ?? {};
    const fits = width * this.scale <= this.frame.width && height * this.scale <= this.frame.height;
    if (!fits && places.length) {
      this.scale = 0.85;
      this.show(places.slice(0, 1));
      // What is left of the first layer, and above the first band, is empty.
      this.x = Math.min(this.x, EDGE);
      this.y = Math.min(this.y, 0);
      this.apply();
    }
  }

  /** Bring these places into the middle; come nearer or go farther only if they do not fit. */
  show(places) {
    if (!places.length) return;
    const { width, height } = this.frame;
    const left = Math.min(...places.map((place) => place.x));
    const right = Math.max(...places.map((place) => place.x)) + SIZE.width;
    const top = Math.min(...places.map((place) => place.y));
    const bottom = Math.max(...places.map((place) => place.y)) + SIZE.height;
    const fits = Math.min((width - 120) / (right - left), (height - 120) / (bottom - top));
    this.scale = Math.max(LEAST, Math.min(this.scale < 0.5 ? 0.85 : this.scale, fits));
    this.x = width / 2 - ((left + right) / 2) * this.scale;
    this.y = height / 2 - ((top + bottom) / 2) * this.scale;
    this.apply();
  }
}

function onWheel(camera, event) {
  event.preventDefault();
  const { left, top } = camera.view.current.getBoundingClientRect();
  const at = { x: event.clientX - left, y: event.clientY - top };
  // A pinch arrives as a wheel with ctrl; two fingers or a wheel alone move the picture.
  if (event.ctrlKey || event.metaKey) camera.zoom(Math.exp(-event.deltaY / 200), at);
  else if (event.shiftKey && !event.deltaX) camera.pan(-event.deltaY, 0);
  else camera.pan(-event.deltaX, -event.deltaY);
}

function draggable(camera, element) {
  const held = new Map();
  const down = (event) => {
    if (event.button || event.target.closest("a, button, .picked")) return;
    element.setPointerCapture(event.pointerId);
    held.set(event.pointerId, { x: event.clientX, y: event.clientY });
  };
  const move = (event) => {
    const from = held.get(event.pointerId);
    if (!from) return;
    if (held.size === 2) pinch(camera, element, held, event);
    else camera.pan(event.clientX - from.x, event.clientY - from.y);
    held.set(event.pointerId, { x: event.clientX, y: event.clientY });
  };
  const up = (event) => held.delete(event.pointerId);
  return { pointerdown: down, pointermove: move, pointerup: up, pointercancel: up };
}

function pinch(camera, element, held, event) {
  const [other] = [...held].filter(([id]) => id !== event.pointerId).map(([, point]) => point);
  const before = held.get(event.pointerId);
  const apart = (a, b) => Math.hypot(a.x - b.x, a.y - b.y) || 1;
  const now = { x: event.clientX, y: event.clientY };
  const { left, top } = element.getBoundingClientRect();
  const middle = { x: (now.x + other.x) / 2 - left, y: (now.y + other.y) / 2 - top };
  camera.zoom(apart(now, other) / apart(before, other), middle);
}

function useCamera(view, laid) {
  const camera = useMemo(() => new Camera(view), []);
  camera.laid = laid;
  useEffect(() => {
    const element = view.current;
    const wheel = (event) => onWheel(camera, event);
    element.addEventListener("wheel", wheel, { passive: false });
    const handlers = draggable(camera, element);
    for (const [name, handler] of Object.entries(handlers)) element.addEventListener(name, handler);
    // A node that gets the focus by the keyboard comes into sight.
    const onFocus = (event) => {
      const node = event.target.closest?.(".node");
      element.scrollTo(0, 0);
      if (!node || !node.matches(":focus-visible")) return;
      const box = node.getBoundingClientRect();
      const area = element.getBoundingClientRect();
      const beside = box.left < area.left || box.right > area.right;
      const beyond = box.top < area.top || box.bottom > area.bottom;
      if (beside || beyond) camera.show([{ x: node.offsetLeft, y: node.offsetTop }]);
    };
    element.addEventListener("focusin", onFocus);
    return () => {
      element.removeEventListener("wheel", wheel);
      element.removeEventListener("focusin", onFocus);
      for (const [name, handler] of Object.entries(handlers)) element.removeEventListener(name, handler);
    };
  }, []);
  return camera;
}

const ARROWS = [["ArrowLeft", 80, 0], ["ArrowRight", -80, 0], ["ArrowUp", 0, 80], ["ArrowDown", 0, -80]];
const FOLDS = { goal: "tasks of this goal", far: "more tasks" };

function foldName(node) {
  const says = FOLDS[node.says] ?? (node.id.startsWith("alike") ? `${node.says}, alike` : node.says);
  return `${count(node.tasks.length)} ${says}`;
}

function foldState(node) {
  if (!FOLDS[node.says]) return node.says;
  return node.tasks.every((task) => task.state === "done") ? "done" : "blocked";
}

function Node({ node, place, marks, pick }) {
  const { task } = node;
  const state = task ? task.state : foldState(node);
  const name = task ? oneLine(task.title, 60) : foldName(node);
  const label = task ? `#${task.id} ${oneLine(task.title, 100)}, ${state}` : `${name}. Unfold`;
  return html`<button type="button" class="node s-${state} ${task ? "" : "fold"} ${marks}" data-node=${node.id}
    data-task=${task?.id} data-state=${task ? state : undefined}
    aria-label=${label} title=${task ? `#${task.id} ${oneLine(task.title, 200)}` : "Click to unfold"}
    style=${{ left: `${place.x}px`, top: `${place.y}px` }} onClick=${() => pick(node)}>
    <${Glyph} state=${state} />${task && html`<span class="id">#${task.id}</span>`}<span class="node-name">
      ${name}</span>
    ${task?.teammate && state === "claimed" && html`<span class="node-who">${oneLine(task.teammate, 10)}</span>`}
  </button>`;
}

function Edge({ path, marks }) {
  const { edge } = path;
  const broken = edge.state === "broken";
  const reason = broken ? `Broken: ${oneLine(edge.reason || "it can never be met", 200)}` : "";
  return html`<g class="edge ${edge.state} ${marks}">
    ${broken && html`<path class="edge-hit" d=${path.path} tabindex="0" role="img" aria-label=${reason}><title>
      ${reason}</title></path>`}
    <path d=${path.path} marker-end=${`url(#${broken ? "arrow-broken" : "arrow"})`} />
    ${edge.outcome && html`<text x=${path.middle.x} y=${path.middle.y - 4}>${oneLine(edge.outcome, 24)}</text>`}
  </g>`;
}

function marksOf(id, chain, kin, picked) {
  const marks = [];
  if (chain.has(id)) marks.push("chain");
  if (kin) marks.push(kin.has(id) ? "kin" : "other");
  if (id === picked) marks.push("picked");
  return marks.join(" ");
}

/** All nodes and edges. Drawn again only if something in them has changed: a thousand of them take a while. */
class Drawing extends Component {
  shouldComponentUpdate(next) {
    return ["laid", "chain", "kin", "picked"].some((name) => next[name] !== this.props[name]);
  }

  render({ nodes, laid, chain, kin, picked, pick }) {
    const { places, paths, bands, width, height } = laid;
    return html`
      <svg class="edges" width=${width + 40} height=${height + 40} aria-hidden="false" role="group" aria-label="Needs">
        <defs>
          <marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="9" markerHeight="9"
            markerUnits="userSpaceOnUse" orient="auto"><path d="M1 1l6 3-6 3" class="arrow" /></marker>
          <marker id="arrow-broken" viewBox="0 0 8 8" refX="4" refY="4" markerWidth="9" markerHeight="9"
            markerUnits="userSpaceOnUse"><path d="M1 1l6 6M7 1l-6 6" class="arrow broken" /></marker>
        </defs>
        ${paths.map((path) => html`<${Edge} key=${path.edge.id} path=${path}
          marks=${marksOf(path.edge.id, chain, kin, picked)} />`)}
      </svg>
      ${bands.map((band) => html`<p key=${band.root} class="band-title" style=${{ top: `${band.y - 30}px` }}>
        <${Link} to=${{ task: band.root }}>${oneLine(titleOf(frame(), band.root) || `#${band.root}`, 90)}<//></p>`)}
      ${nodes.map((node) => html`<${Node} key=${node.id} node=${node} place=${places.get(node.id)} pick=${pick}
        marks=${marksOf(node.id, chain, kin, picked)} />`)}`;
  }
}

/** A text that is the same as long as the drawing is: titles, states and needs decide. */
function signature(tasks) {
  let text = "";
  for (const task of tasks) text += `${task.id}${task.state}${task.teammate ?? ""}${(task.needs ?? []).join(",")};`;
  return text;
}

/** The tasks without the goals in which everything is done: they have nothing left to say about needs. */
const unfinished = remembered((tasks) => {
  const open = new Set(tasks.filter((task) => task.state !== "done").map((task) => task.root));
  const kept = tasks.filter((task) => open.has(task.root));
  const goals = new Set(tasks.map((task) => task.root)).size - open.size;
  return kept.length ? { kept, goals } : { kept: tasks, goals: 0 };
});

function usePicture(shown, tasks, opened) {
  const sign = useMemo(() => signature(tasks), [shown, tasks]);
  return useMemo(() => {
    const drawn = folded(tasks, dependentsOf(shown), opened);
    const shape = `${drawn.nodes.map((node) => node.id)}|${drawn.edges.map((edge) => edge.id)}`;
    return { ...drawn, shape, laid: layout(drawn.nodes, drawn.edges), chain: longestChain(drawn.nodes, drawn.edges) };
  }, [sign, opened, store.route.board]);
}

/** Beside the graph: what is picked, and how much stands before and after it. */
function Picked({ picture, picked, kin }) {
  const node = picture.nodes.find((each) => each.id === picked);
  if (!node?.task) return null;
  const { before, after } = kin;
  return html`<div class="picked" role="status">
    <${TaskLink} id=${node.task.id} title=${node.task.title} />
    <span class="faint">
      ${node.task.state} · ${counted(before.nodes.size, "node")} before it, ${count(after.nodes.size)} after it</span>
    <${Button} kind="small primary" onClick=${() => go({ task: node.task.id })}>Open<//>
  </div>`;
}

function useKin(picture, picked) {
  return useMemo(() => {
    if (!picked) return null;
    const kin = lineage(picked, picture.edges);
    const all = new Set([picked, ...kin.before.nodes, ...kin.before.edges, ...kin.after.nodes, ...kin.after.edges]);
    return { ...kin, all };
  }, [picked, picture]);
}

function running(picture) {
  return picture.nodes.filter((node) => node.task?.state === "claimed").map((node) => picture.laid.places.get(node.id));
}

export function Graph() {
  const shown = frame();
  const [opened, setOpened] = useState(new Set());
  const [picked, setPicked] = useState(null);
  const [follows, setFollows] = useState(false);
  const all = filtered(shown, store.route.filter ?? "");
  const { kept, goals } = unfinished(all);
  const tasks = opened.has("finished") ? all : kept;
  const picture = usePicture(shown, tasks, opened);
  const kin = useKin(picture, picked);
  const view = useRef(null);
  const camera = useCamera(view, picture.laid);
  const pick = (node) => {
    if (node.task) return setPicked((before) => (before === node.id ? (go({ task: node.task.id }), before) : node.id));
    return setOpened((before) => new Set([...before, node.id]));
  };
  useLayoutEffect(() => camera.fit(running(picture)), [store.route.board, picture.nodes.length > 0]);
  useEffect(() => {
    if (follows) camera.show(running(picture));
  }, [follows, picture]);
  useKeys([
    { keys: "+", says: "Nearer", run: () => camera.zoom(1.25) },
    { keys: "=", run: () => camera.zoom(1.25) },
    { keys: "-", says: "Farther", run: () => camera.zoom(0.8) },
    { keys: "f", says: "Follow what runs", run: () => setFollows(!follows) },
    { keys: "w", says: "The whole graph", run: () => camera.whole() },
    { keys: "Escape", run: () => (picked && !store.route.task ? setPicked(null) : go({ task: undefined })) },
    ...ARROWS.map(([keys, x, y]) => ({ keys, run: () => camera.pan(x, y) })),
  ]);
  const empty = !tasksOf(shown).length;
  return html`
    <${Head} title="Graph">
      <${FilterLine} />
      ${goals > 0 && !opened.has("finished") && html`<button type="button" class="quiet"
        onClick=${() => setOpened(new Set([...opened, "finished"]))}>Show ${counted(goals, "finished goal")}</button>`}
      ${opened.size > 0 && html`<${Button} onClick=${() => setOpened(new Set())}>Fold again<//>`}
      <button type="button" class="button" aria-pressed=${String(follows)} onClick=${() => setFollows(!follows)}>
        <${Icon} name="target" />Follow what runs</button>
    <//>
    ${picture.says && html`<p class="graph-says">${plain(picture.says)}</p>`}
    ${empty ? html`<div class="body"><${Empty}
      says="Nothing is on this board yet." command='dugnad add "..."' /></div>` : ""}
    ${!empty && !picture.nodes.length ? html`<div class="body"><${Empty}
      says="No task fits this filter. Clear it to see all of them." /></div>` : ""}
    <div class="graph ${kin ? "focused" : ""}" ref=${view} tabindex="-1">
      <div class="graph-all" data-camera><${Drawing} nodes=${picture.nodes} laid=${picture.laid} chain=${picture.chain}
        kin=${kin?.all ?? null} picked=${picked ?? String(store.route.task)}
        pick=${pick} /></div>
      <div class="zoom corner" role="group" aria-label="Zoom">
        <button type="button" class="icon-button" aria-label="Farther" onClick=${() => camera.zoom(0.8)}>−</button>
        <button type="button" class="icon-button" aria-label="The whole graph" title="The whole graph  w"
          onClick=${() => camera.whole()}><${Icon} name="wide" /></button>
        <button type="button" class="icon-button" aria-label="Nearer" onClick=${() => camera.zoom(1.25)}>+</button>
      </div>
      ${picked && kin && html`<${Picked} picture=${picture} picked=${picked} kin=${kin} />`}
    </div>`;
}
