/** The time machine: a slider over the numbers of the events. Every view then shows the board as it was. */

import { html, useEffect, useRef, useState } from "./vendor/standalone.module.js";
import { clock, count, counted, moment, oneLine } from "./format.js";
import { timeOf } from "./frame.js";
import { useKeys } from "./keys.js";
import { Button, Icon, Link, TaskLink, useLoaded } from "./parts.js";
import { change, frame, go, inPast, store } from "./store.js";

const SETTLE_MS = 90; // The thumb must rest for so long before the board is read.
const PLAY_MS = 450;
const PLAY_STEPS = 120; // A whole run plays in about a minute, however long it is.

/** When an event happened: from the known pairs around it. */
function timeAt(seq, pairs) {
  let low = pairs[0];
  for (const pair of pairs) {
    if (pair[0] > seq) {
      const share = (seq - low[0]) / (pair[0] - low[0] || 1);
      return low[1] + (pair[1] - low[1]) * share;
    }
    low = pair;
  }
  return low[1];
}

function knownTimes(live) {
  const pairs = [...(live.ticks ?? []), ...live.events.map((event) => [event.seq, event.at]), [live.seq, timeOf(live)]];
  if (store.past) pairs.push([store.past.seq, store.past.now]);
  return pairs.sort((a, b) => a[0] - b[0]);
}

/** Step to an event; at the end of the log the page is live again. */
function stepTo(seq, replace = inPast()) {
  const { live } = store;
  const at = Math.max(live.first ?? 0, Math.min(live.seq, seq));
  go({ at: at >= live.seq ? undefined : at }, { replace });
}

function usePlaying(place) {
  const [playing, setPlaying] = useState(false);
  useEffect(() => {
    if (!playing) return undefined;
    const { live } = store;
    const stride = Math.max(1, Math.round((live.seq - (live.first ?? 0)) / PLAY_STEPS));
    const timer = setInterval(() => {
      // The next step waits for the picture of this one.
      if (inPast() && store.past?.seq !== store.route.at) return;
      const next = (store.route.at ?? store.live.seq) + stride;
      stepTo(next);
      if (next >= store.live.seq) setPlaying(false);
    }, PLAY_MS);
    return () => clearInterval(timer);
  }, [playing]);
  const toggle = () => {
    if (!playing && place >= store.live.seq) stepTo(store.live.first ?? 0, false);
    setPlaying(!playing);
  };
  return [playing, toggle];
}

export function TimeBar() {
  const { live } = store;
  const [held, setHeld] = useState(null); // Where the thumb is while it is dragged.
  const timer = useRef(0);
  const place = held ?? store.route.at ?? live?.seq ?? 0;
  const [playing, toggle] = usePlaying(place);
  useKeys([
    { keys: "[", says: "One event back", group: "Time machine", run: () => stepTo(place - 1) },
    { keys: "]", says: "One event on", group: "Time machine", run: () => stepTo(place + 1) },
    { keys: "p", says: "Play or pause", group: "Time machine", run: toggle },
    { keys: "0", says: "Back to now", group: "Time machine", run: () => go({ at: undefined }) },
  ]);
  if (!live || live.seq === 0) return null;
  const drag = (event) => {
    const seq = Number(event.target.value);
    setHeld(seq);
    clearTimeout(timer.current);
    timer.current = setTimeout(() => {
      setHeld(null);
      stepTo(seq);
    }, SETTLE_MS);
  };
  const first = live.first ?? 0;
  const share = (place - first) / (live.seq - first || 1);
  const at = place >= live.seq ? timeOf(live) : timeAt(place, knownTimes(live));
  const says = place >= live.seq ? "now" : clock(at, timeOf(live));
  return html`<section class="timebar ${inPast() ? "past" : ""}" aria-label="Time machine">
    <div class="timebar-keys">
      <button type="button" class="icon-button" aria-label="One event back" title="One event back  ["
        onClick=${() => stepTo(place - 1)}><${Icon} name="stepback" /></button>
      <button type="button" class="icon-button" aria-label=${playing ? "Pause" : "Play"} title="Play the run  p"
        onClick=${toggle}><${Icon} name=${playing ? "pause" : "play"} /></button>
      <button type="button" class="icon-button" aria-label="One event on" title="One event on  ]" disabled=${!inPast()}
        onClick=${() => stepTo(place + 1)}><${Icon} name="stepon" /></button>
    </div>
    <div class="slider" style=${{ "--share": share }}>
      <input id="slider" type="range" min=${first} max=${live.seq} step="1" value=${place} aria-label="Event number"
        aria-valuetext=${`event ${count(place)}, ${says}`} onInput=${drag} />
      ${store.left && store.left > first && store.left < live.seq && html`<span class="slider-left"
        title="Here you left"
        style=${{ left: `${((store.left - first) / (live.seq - first)) * 100}%` }} />`}
      <output class="slider-time" for="slider" aria-hidden="true">${says}</output>
    </div>
    <div class="timebar-says"><span class="num" title=${moment(at)}>
      ${inPast() || held !== null ? `event ${count(place)}` : `${counted(live.seq, "event")}`}</span></div>
    <${SinceButton} />
  </section>`;
}

// --- Since you left ------------------------------------------------------------------------------------------------

function SinceButton() {
  const { live, left } = store;
  if (!left || !live || left >= live.seq || inPast()) return null;
  return html`<${Button} kind="small" onClick=${() => change({ since: !store.since })}
    aria-expanded=${String(Boolean(store.since))}>
    Since you left<//>`;
}

export function SinceYouLeft() {
  const { left, live } = store;
  const until = useRef(live?.seq);
  if (!store.since) until.current = live?.seq;
  const { data, error } = useLoaded(store.since && left ? "changes" : null, { after: left, until: until.current }, null);
  if (!store.since || !left) return null;
  const close = () => change({ since: false, left: null });
  return html`<aside class="since" aria-label="Since you left">
    <header class="since-head"><h2>Since you left</h2>
      <button type="button" class="icon-button" aria-label="Close" onClick=${close}><${Icon}
        name="close" /></button></header>
    ${error && html`<p class="empty">${error}</p>`}
    ${data && html`<${Changes} data=${data} />`}
  </aside>`;
}

function Changes({ data }) {
  const { from, to, tasks } = data;
  return html`
    <p class="since-when">${clock(from.at, to.at)} to ${clock(to.at, to.at)}, ${counted(data.events, "event")}</p>
    ${data.says?.length > 0 && html`<ul class="since-says">${data.says.map((each) => html`<li>
      ${oneLine(each, 300)}</li>`)}</ul>`}
    <ul class="since-tasks">${tasks.slice(0, 200).map((task) => html`<li key=${task.id}>
      <${TaskLink} id=${task.id} title=${task.title} state=${task.is} />
      <span class="since-how">${task.was ? `${task.was} → ${task.is}` : `new, ${task.is}`}</span>
    </li>`)}</ul>
    ${tasks.length > 200 && html`<p class="empty">And ${count(tasks.length - 200)} more.</p>`}
    ${tasks.length === 0 && html`<p class="empty">No task changed its state.</p>`}
    <p><${Link} to=${{ at: from.seq }}>See the board as you left it<//></p>`;
}

/** The band over a view of the past. */
export function PastBand() {
  if (!inPast()) return null;
  const { at } = store.route;
  const there = store.past?.seq === at;
  return html`<div id="band" class="band past-band" role="status">
    <span>${there
      ? html`You see the board as it was at <strong>
        ${clock(frame().now, timeOf(store.live ?? frame()))}</strong>, event <strong>${count(at)}</strong>.`
      : `Reading event ${count(at)}…`}</span>
    <${Link} to=${{ at: undefined }} class="band-link">Back to now<//>
  </div>`;
}
