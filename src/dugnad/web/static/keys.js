/** The keyboard: the keys of the page and of each view, the palette, and the list of keys. */

import { html, useEffect, useLayoutEffect, useMemo, useRef, useState } from "./vendor/standalone.module.js";
import { oneLine } from "./format.js";
import { tasksOf } from "./frame.js";
import { Glyph, Icon, Keys } from "./parts.js";
import { askToAdd, askToNote, askToSpawn, askToTell } from "./steer.js";
import { canSteer, change, frame, go, store, VIEWS } from "./store.js";

const layers = []; // The last one that knows a key wins.
const SEQUENCE_MS = 1200;
let first = "";
let firstAt = 0;

const TYPING = "input:not([type=range]):not([type=checkbox]), textarea, select, [contenteditable]";

function nameOf(event) {
  const control = event.ctrlKey || event.metaKey ? "ctrl+" : "";
  return control + (event.key.length === 1 ? event.key.toLowerCase() : event.key);
}

function find(name) {
  for (let at = layers.length - 1; at >= 0; at -= 1) {
    const found = layers[at].current.find((each) => each.keys === name);
    if (found) return found;
  }
  return null;
}

function begins(name) {
  return layers.some((layer) => layer.current.some((each) => each.keys.startsWith(`${name} `)));
}

function onKey(event) {
  if (event.defaultPrevented || event.altKey || event.isComposing) return;
  const name = nameOf(event);
  const typing = event.target.matches?.(TYPING);
  // While somebody types, or a dialog is open, only keys that say so are ours.
  const busy = typing || document.querySelector("dialog[open]");
  const sequence = !busy && first && Date.now() - firstAt < SEQUENCE_MS ? find(`${first} ${name}`) : null;
  const binding = sequence ?? find(name);
  first = "";
  if (!binding) {
    if (!busy && begins(name)) [first, firstAt] = [name, Date.now()];
    return;
  }
  if (busy && !binding.always) return;
  if (binding.run(event) !== false) event.preventDefault();
}

/** Keys for as long as the component is shown: [{keys, says, run, always}]. */
export function useKeys(bindings) {
  const layer = useRef(bindings);
  layer.current = bindings;
  // Before it is painted, since a person who sees it may press its keys.
  useLayoutEffect(() => {
    layers.push(layer);
    return () => layers.splice(layers.indexOf(layer), 1);
  }, []);
}

export function listen() {
  addEventListener("keydown", onKey);
}

/** Every key that works now, for the help. */
export function known() {
  return layers.flatMap((layer) => layer.current).filter((each) => each.says);
}

const MOST = 40;

function places() {
  const list = VIEWS.map(({ id, name, key }) => ({ id, icon: id, name, keys: `g ${key}`, run: () => go({ view: id }) }));
  if (store.route.at !== undefined) {
    list.unshift({ id: "back", icon: "now", name: "Back to now", run: () => go({ at: undefined }) });
  }
  if (canSteer()) {
    list.push(
      { id: "add", icon: "plus", name: "Add a task", keys: "n", run: () => askToAdd() },
      { id: "tell", icon: "plus", name: "Send a message", run: () => askToTell() },
      { id: "spawn", icon: "plus", name: "Add a teammate", run: () => askToSpawn() },
      { id: "note", icon: "note", name: "Write a note", run: () => askToNote() },
    );
  }
  return list;
}

function people() {
  return (frame()?.team ?? []).map((member) => ({
    id: `@${member.name}`, icon: "team", name: member.name, says: member.status,
    run: () => go({ view: "board", filter: `by:${member.name}` }),
  }));
}

function boards() {
  const all = store.session?.boards ?? [];
  return all.length < 2 ? [] : all.map((board) => ({
    id: `board ${board.id}`, icon: "board", name: `Board: ${board.name}`, says: board.where,
    run: () => go({ board: board.id, at: undefined, task: undefined, filter: undefined }),
  }));
}

function found(words) {
  const wanted = words.toLowerCase().trim();
  const fits = (text) => wanted.split(/\s+/).every((word) => text.toLowerCase().includes(word));
  const list = [...places(), ...people(), ...boards()].filter((each) => fits(each.name));
  if (!wanted || !frame()) return list;
  const number = Number(wanted.replace("#", ""));
  const tasks = [];
  for (const task of tasksOf(frame())) {
    if (task.id === number) tasks.unshift(task);
    else if (fits(`${task.title} #${task.id}`)) tasks.push(task);
    if (tasks.length > MOST) break;
  }
  return [...list, ...tasks.map((task) => ({
    id: `#${task.id}`, state: task.state, name: `#${task.id} ${oneLine(task.title, 90)}`, says: task.state,
    run: () => go({ task: task.id }),
  }))].slice(0, MOST);
}

function Item({ item, at, chosen, run, choose }) {
  return html`<li id=${`found-${at}`} role="option" aria-selected=${String(chosen)}
    class="found ${chosen ? "chosen" : ""}"
    onClick=${() => run(item)} onMouseMove=${() => choose(at)}>
    ${item.state ? html`<${Glyph} state=${item.state} />` : html`<${Icon} name=${item.icon} />`}
    <span class="found-name">${oneLine(item.name, 110)}</span>
    <span class="found-says">${item.keys ? html`<${Keys} keys=${item.keys} />` : oneLine(item.says, 60)}</span>
  </li>`;
}

function Finder({ close }) {
  const [words, setWords] = useState("");
  const [at, setAt] = useState(0);
  const list = useMemo(() => found(words), [words, frame()]);
  const shown = useRef(null);
  const run = (item) => {
    close();
    item?.run();
  };
  const onKey = (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) setAt((before) => (before + step + list.length) % Math.max(1, list.length));
    else if (event.key === "Enter") run(list[at]);
    else return;
    event.preventDefault();
  };
  useEffect(() => shown.current?.querySelector(".chosen")?.scrollIntoView({ block: "nearest" }), [at]);
  return html`
    <input class="palette-input" type="text" role="combobox" aria-label="Go to" aria-expanded="true"
      aria-controls="found" autocomplete="off"
      aria-activedescendant=${list.length ? `found-${at}` : undefined}
      placeholder="Go to a view, a task or a teammate" value=${words} autofocus
      onInput=${(event) => { setWords(event.target.value); setAt(0); }} onKeyDown=${onKey} />
    <ul id="found" role="listbox" aria-label="Found" ref=${shown} class="founds">
      ${list.map((item, place) => html`<${Item} key=${item.id} item=${item} at=${place} chosen=${place === at}
        run=${run} choose=${setAt} />`)}
    </ul>
    ${!list.length && html`<p class="empty">Nothing has this name.</p>`}`;
}

function Help() {
  const bindings = known();
  const groups = new Map();
  for (const each of bindings) {
    const group = each.group ?? "This view";
    if (!groups.has(group)) groups.set(group, new Map());
    groups.get(group).set(each.says, each.keys);
  }
  // What belongs to the view comes first, since it is what people look for.
  const ordered = [...groups].sort(([a], [b]) => Number(b === "This view") - Number(a === "This view"));
  return html`<div class="help" tabindex="0" role="group" aria-label="Keys">
    ${ordered.map(([group, list]) => html`<section key=${group}>
    <h3>${group}</h3>
    <dl>${[...list].map(([says, keys]) => html`<div key=${says}><dt>${says}</dt><dd><${Keys}
      keys=${keys} /></dd></div>`)}</dl>
  </section>`)}</div>`;
}

export function Palette() {
  const element = useRef(null);
  useLayoutEffect(() => {
    if (store.palette && !element.current.open) element.current.showModal();
  }, [store.palette]);
  if (!store.palette) return null;
  const close = () => change({ palette: null });
  // The event comes late: the next dialog may be open already.
  const closed = () => !element.current?.open && close();
  const help = store.palette === "help";
  return html`<dialog id="palette" ref=${element} class="palette ${help ? "wide" : ""}"
    aria-label=${help ? "Keys" : "Go to"} onClose=${closed}
    onClick=${(event) => event.target === element.current && close()}>
    ${help && html`<header class="palette-head"><h2>Keys</h2>
      <button type="button" class="icon-button" aria-label="Close" onClick=${close}><${Icon}
        name="close" /></button></header>`}
    ${help ? html`<${Help} />` : html`<${Finder} close=${close} />`}
  </dialog>`;
}
