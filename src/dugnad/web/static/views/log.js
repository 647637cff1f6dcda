/** Log: everything that happened; and what was said and written down. */

import { html, useEffect, useMemo, useRef, useState } from "../vendor/standalone.module.js";
import { boardPath, get } from "../api.js";
import { compact, count, oneLine } from "../format.js";
import { useKeys } from "../keys.js";
import {
  At, Button, Choices, Empty, Glyph, Head, Icon, Link, reading, Steer, TaskLink, useLoaded, Who, Words,
} from "../parts.js";
import { Rows } from "../rows.js";
import { askToNote, askToTell } from "../steer.js";
import { boardId, frame, go, inPast, store } from "../store.js";

const PAGE = 100;
// The kinds that have the shape of a state, and those that are louder than the rest.
const SHAPES = {
  done: "done", failed: "failed", waiting: "waiting", claimed: "claimed", skipped: "skipped", cancelled: "cancelled",
  retrying: "retry", released: "released", taken_back: "retry", budget_reached: "waiting", host_lost: "lost",
  failed_teammate: "failed",
};
const LOUD = {
  failed: "bad", failed_teammate: "bad", host_lost: "bad", unsandboxed: "bad", budget_reached: "warn", steered: "you",
};

/** The events before what is shown, and those that come. */
function useEvents(task, all) {
  const [held, setHeld] = useState({ events: [], more: true, error: "" });
  const busy = useRef(false);
  const at = inPast() ? store.route.at : undefined;
  const key = `${boardId()} ${task ?? ""} ${all} ${at ?? ""}`;
  const current = useRef(key);
  const read = async (more, join) => {
    if (busy.current && current.current === key) return;
    current.current = key;
    busy.current = true;
    try {
      const query = { task, page: PAGE, all: all ? 1 : undefined, ...more };
      const found = await reading(get(boardPath(boardId(), "events"), query));
      if (current.current === key) setHeld((before) => join(before, found));
    } catch (error) {
      if (current.current === key) setHeld((before) => ({ ...before, more: false, error: error.message }));
    }
    busy.current = false;
  };
  useEffect(() => {
    read({ before: (at ?? frame().seq) + 1 }, (_, found) => ({ events: found.events, more: found.more, error: "" }));
  }, [key]);
  const { seq } = frame();
  useEffect(() => {
    const last = held.events.at(-1)?.seq;
    if (at === undefined && last !== undefined && seq > last) {
      read({ after: last }, (before, found) => {
        const known = before.events.at(-1)?.seq ?? 0;
        return { ...before, events: [...before.events, ...found.events.filter((event) => event.seq > known)] };
      });
    }
  }, [seq]);
  const older = () => {
    const [first] = held.events;
    const join = (before, found) => ({ events: [...found.events, ...before.events], more: found.more, error: "" });
    if (first && held.more) read({ before: first.seq }, join);
  };
  return { ...held, older };
}

function EventLine({ event, withTask = true }) {
  return html`<div class="event ${LOUD[event.kind] ?? ""}" data-event=${event.seq}>
    <${Link} to=${{ at: event.seq }} class="event-seq num" title="See the board at this event">${count(event.seq)}<//>
      <${At} at=${event.at} />
    <span class="event-task">${withTask && event.task ? html`<${Link} to=${{ task: event.task }}
      class="id">#${event.task}<//>` : ""}</span>
    <span class="event-shape">${SHAPES[event.kind] && html`<${Glyph} state=${SHAPES[event.kind]} />`}</span>
    <span class="event-says" title=${oneLine(event.says, 600)}>${oneLine(event.says, 300)}</span>
  </div>`;
}

/** `words` keeps the events that contain all of them. */
export function Events({ task, all = false, words = "" }) {
  const { events, more, error, older } = useEvents(task, all);
  const wanted = words.toLowerCase().split(/\s+/).filter(Boolean);
  const rows = useMemo(() => {
    const fits = (event) => {
      const text = `${event.kind} ${event.says} ${event.task ? `#${event.task}` : ""}`.toLowerCase();
      return wanted.every((word) => text.includes(word));
    };
    return (wanted.length ? events.filter(fits) : [...events]).reverse();
  }, [events, words]);
  useEffect(() => {
    // A search looks further back by itself, up to a bound.
    if (wanted.length && rows.length < 30 && more && events.length < 5000) older();
  }, [rows.length, more, words]);
  if (error && !events.length) return html`<${Empty} says=${error} />`;
  if (!rows.length) {
    const none = wanted.length ? `None of the last ${compact(events.length)} events fits.` : "Nothing has happened yet.";
    return html`<${Empty} says=${more && !events.length ? "Reading the log…" : none} />`;
  }
  return html`<${Rows} items=${rows} keyOf=${(event) => event.seq} size=${() => 26} label="Events, newest first"
    class="event-rows" tabindex="0"
    onEnd=${older} row=${(event) => html`<${EventLine} event=${event} withTask=${!task} />`} />`;
}

const TABS = [["events", "Events"], ["messages", "Messages"], ["notes", "Notes"]];

function Search({ label, words, setWords }) {
  const input = useRef(null);
  useKeys([{ keys: "/", says: "Search", group: "Everywhere", run: () => input.current.focus() }]);
  return html`<div class="filter" role="search"><${Icon} name="search" /><input id="filter" ref=${input} type="search"
    aria-label=${label} placeholder=${label} value=${words} autocomplete="off"
    onInput=${(event) => setWords(event.target.value)}
      onKeyDown=${(event) => event.key === "Escape" && input.current.blur()} /></div>`;
}

export function MessageLine({ message }) {
  const kind = message.kind === "text" ? "" : message.kind?.replace("_", " ");
  return html`<article class="message">
    <p class="message-head"><${Who} name=${message.sender} /> to <${Who} name=${message.recipient} />
      ${kind && html`<span class="faint">${oneLine(kind, 30)}</span>`}
      ${typeof message.accepted === "boolean" && html`<span class="faint">${message.accepted ? "agreed" : "refused"}</span>`}
      <span class="line-more">${message.task && html`<${TaskLink} id=${message.task} most=${40} bare />`}<${At}
        at=${message.sent_at} /></span></p>
    <${Words} text=${message.text} most=${1500} />
  </article>`;
}

function MessageList({ words }) {
  const names = ["human", ...frame().team.map((member) => member.name)];
  const [name, setName] = useState("human");
  const { data, error } = useLoaded("messages", { with: name });
  const wanted = words.toLowerCase();
  const fits = ({ text, sender, recipient }) => `${text} ${sender} ${recipient}`.toLowerCase().includes(wanted);
  const messages = (data?.messages ?? []).filter(fits).reverse();
  return html`
    <div class="log-bar"><label>With <select value=${name} onChange=${(event) => setName(event.target.value)}>
      ${names.map((each) => html`<option key=${each} value=${each}>
      ${each === "human" ? "you" : oneLine(each, 40)}</option>`)}</select></label></div>
    ${error && html`<${Empty} says=${error} />`}
    ${data && !messages.length && html`<${Empty} says="No messages yet." command='dugnad tell NAME "..."' />`}
    ${messages.length > 0 && html`<${Rows} items=${messages} measured size=${() => 74} label="Messages, newest first"
      class="message-rows" tabindex="0" row=${(message) => html`<${MessageLine} message=${message} />`} />`}`;
}

function NoteList({ words }) {
  const { data, error } = useLoaded("notes", { words });
  const notes = data?.notes ?? [];
  return html`
    ${error && html`<${Empty} says=${error} />`}
    ${data && !notes.length && html`<${Empty}
      says=${words ? "No note has all these words." : "Nobody has written a note yet."}
      command=${words ? "" : 'dugnad notes --write "TITLE" "TEXT"'} />`}
    ${notes.length > 0 && html`<${Rows} items=${notes} measured size=${() => 92} label="Notes, newest first"
      class="message-rows" tabindex="0" row=${(note) => html`<article class="message note">
      <h2 class="note-title">${oneLine(note.title, 200)}</h2>
      <p class="message-head"><${Who} name=${note.author} /><span class="line-more">${note.task && html`<${TaskLink}
        id=${note.task} most=${40} bare />`}<${At} at=${note.at} /></span></p>
      <${Words} text=${note.text} most=${2000} /></article>`} />`}`;
}

export function Log() {
  const tab = TABS.some(([key]) => key === store.route.tab) ? store.route.tab : "events";
  const [words, setWords] = useState("");
  const [all, setAll] = useState(false);
  return html`
    <${Head} title="Log">
      <${Choices} label="Part of the log" value=${tab} options=${TABS}
        onChoose=${(key) => go({ tab: key === "events" ? undefined : key }, { replace: true })} />
      <${Search}
        label=${{ events: "Search the events", messages: "Search the messages", notes: "Search the notes" }[tab]}
        words=${words} setWords=${setWords} />
      ${tab === "events" && html`<button type="button" class="button" aria-pressed=${String(all)}
        onClick=${() => setAll(!all)} title="Also turns, reservations and messages read">Details</button>`}
      ${tab === "messages" && html`<${Steer}><${Button} icon="plus"
        onClick=${() => askToTell()}>Send a message<//><//>`}
      ${tab === "notes" && html`<${Steer}><${Button} icon="plus" onClick=${() => askToNote()}>Write a note<//><//>`}
    <//>
    <div class="log">
      ${tab === "events" && html`<${Events} key=${`${all}`} all=${all} words=${words} />`}
      ${tab === "messages" && html`<${MessageList} words=${words} />`}
      ${tab === "notes" && html`<${NoteList} words=${words} />`}
    </div>`;
}
