/** For you: only what a person must do, one at a time, the oldest block of work first. One key each. */

import { html, useEffect, useRef, useState } from "../vendor/standalone.module.js";
import { count, counted, money, oneLine, plain } from "../format.js";
import { useKeys } from "../keys.js";
import { Button, Empty, Head, Icon, Keys, Section, Since, Steer, TaskLink, useLoaded, Who, Words } from "../parts.js";
import { answer, approve, askToRaise, askToReject, markRead } from "../steer.js";
import { canSteer, choice, choose, frame, go, inPast, say, store } from "../store.js";
import { MessageLine } from "./log.js";

function canNotify() {
  return "Notification" in window && Notification.permission !== "denied";
}

function notifies() {
  return choice("notify", "no") === "yes" && "Notification" in window && Notification.permission === "granted";
}

async function askToNotify() {
  if (notifies()) return choose("notify", "no");
  const allowed = await Notification.requestPermission();
  if (allowed !== "granted") return say("The browser does not allow notifications for this page.", true);
  choose("notify", "yes");
  return say("You get a notification when something waits for you and this page is not in sight.");
}

const idOf = (request) => request.id ?? `budget ${request.root}`;
let known = null;

/** Tell of requests that are new, if nobody looks at the page. */
export function notifyOfNew() {
  if (!store.live) return;
  const ids = new Set(store.live.requests.map(idOf));
  const fresh = known ? store.live.requests.filter((request) => !known.has(idOf(request))) : [];
  known = ids;
  if (!fresh.length || !document.hidden || !notifies()) return;
  const [first] = fresh;
  const title = first.kind === "budget" ? "A goal has reached its cap" : `${oneLine(first.sender, 40)} waits for you`;
  const shown = new Notification(title, { body: oneLine(first.text ?? first.title, 160), tag: idOf(first) });
  shown.onclick = () => {
    window.focus();
    go({ view: "foryou", at: undefined });
  };
}

export function requestId(request) {
  return request.id ?? `budget-${request.root}`;
}

/** What is asked for, in a word: it decides which keys and buttons there are. */
function wants(request) {
  if (request.kind === "budget") return "cap";
  return request.kind === "question" && !request.tool_call ? "answer" : "verdict";
}

const ASKS = { question: "asks", plan: "shows a plan", shutdown: "wants to shut down", budget: "has reached its cap" };

/** What the sender does, in a few words. */
export function asks(request) {
  return request.tool_call ? "wants to call a tool" : (ASKS[request.kind] ?? "asks");
}

function Asking({ request }) {
  if (request.kind === "budget") {
    return html`<span><strong>
      ${oneLine(request.title ?? request.about, 100)}</strong> has reached its cap on ${oneLine(request.held, 40)}</span>`;
  }
  return html`<span><${Who} name=${request.sender} /> ${asks(request)}</span>`;
}

function Behind({ request }) {
  const parts = [];
  if (request.blocks) parts.push(html`<span class="behind">${counted(request.blocks, "open task")} behind it</span>`);
  if (request.sent_at) parts.push(html`<span>waits <${Since} at=${request.sent_at} /></span>`);
  return html`<span class="request-facts">${parts}</span>`;
}

function AnswerForm({ request, large, box }) {
  const [text, setText] = useState("");
  const [busy, setBusy] = useState(false);
  const send = async (event) => {
    event?.preventDefault();
    if (!text.trim() || busy) return;
    setBusy(true);
    const accepted = await answer(request.id, text.trim());
    setBusy(false);
    if (accepted) setText("");
  };
  const onKey = (event) => {
    const sends = event.key === "Enter" && (large ? event.ctrlKey || event.metaKey : !event.shiftKey);
    if (sends) send(event);
    else if (event.key === "Escape") event.target.blur();
  };
  return html`<form class="answer" onSubmit=${send}>
    <textarea ref=${box} rows=${large ? 4 : 1} aria-label=${plain(`Answer ${request.sender}`)} placeholder="Your answer"
      value=${text}
      onInput=${(event) => setText(event.target.value)} onKeyDown=${onKey} />
    <button type="submit" class="button primary" disabled=${busy || !text.trim()}>Answer${large && html`<${Keys}
      keys="ctrl+Enter" />`}</button>
  </form>`;
}

function Verdict({ request, large }) {
  return html`<div class="verdict">
    <${Button} kind="primary" onClick=${() => approve(request.id)}>Approve${large && html`<${Keys} keys="y" />`}<//>
    ${request.tool_call && html`<${Button} title="Every further call of this tool, while the task is worked on"
      onClick=${() => answer(request.id, "always")}>Approve always<//>`}
    <${Button} onClick=${() => askToReject(request)}>Reject${large && html`<${Keys} keys="r" />`}<//>
  </div>`;
}

function Acts({ request, large, box }) {
  if (!canSteer()) return null;
  if (wants(request) === "answer") return html`<${AnswerForm} request=${request} large=${large} box=${box} />`;
  if (wants(request) === "verdict") return html`<${Verdict} request=${request} large=${large} />`;
  return html`<div class="verdict"><${Button} kind="primary"
    onClick=${() => askToRaise(request)}>Raise the cap${large && html`<${Keys} keys="b" />`}<//></div>`;
}

/** `large` is one at a time; otherwise one of a list. `bare` does not name its task. `box` refers to the field for the
answer. */
export function Request({ request, large = false, bare = false, box }) {
  const own = useRef(null);
  const article = useRef(null);
  useEffect(() => {
    // The request before was answered, and the focus went with it.
    if (large && document.activeElement === document.body) article.current.focus({ preventScroll: true });
  }, []);
  return html`<article ref=${article} tabindex=${large ? -1 : undefined} class="request ${large ? "large" : ""}"
    data-request=${requestId(request)} aria-label=${plain(`Request of ${request.sender ?? "the board"}`)}>
    <header class="request-head"><${Asking} request=${request} /><${Behind} request=${request} /></header>
    ${request.task && !bare && html`<div class="request-about"><${TaskLink} id=${request.task} title=${request.about} /></div>`}
    ${request.text && html`<${Words} text=${request.text} most=${large ? 6000 : 400} class="request-text" />`}
    ${request.kind === "budget" && html`<p class="request-text">It has spent ${money(request.spent?.dollars)}.
      ${" Nothing under this goal is claimed until the cap is raised."}</p>`}
    <${Acts} request=${request} large=${large} box=${box ?? own} />
  </article>`;
}

/** Which request is shown. When one is answered, the next takes its place. */
function useChosen(requests) {
  const [id, setId] = useState(null);
  const place = useRef(0);
  let at = requests.findIndex((request) => requestId(request) === id);
  if (at < 0) at = Math.min(place.current, requests.length - 1);
  place.current = Math.max(0, at);
  const choose = (to) => setId(requestId(requests[Math.max(0, Math.min(requests.length - 1, to))]));
  useEffect(() => {
    if (requests[at]) setId(requestId(requests[at]));
  }, [at, requests.length]);
  return [at, choose];
}

function useRequestKeys({ requests, at, choose, box }) {
  const request = requests[at];
  const when = (wanted, run) => () => (request && canSteer() && wants(request) === wanted ? run() : false);
  useKeys([
    { keys: "j", says: "Next request", run: () => choose(at + 1) },
    { keys: "k", says: "Previous request", run: () => choose(at - 1) },
    { keys: "a", says: "Answer", run: when("answer", () => box.current?.focus()) },
    { keys: "y", says: "Approve", run: when("verdict", () => { approve(request.id); }) },
    { keys: "r", says: "Reject", run: when("verdict", () => askToReject(request)) },
    { keys: "b", says: "Raise the cap", run: when("cap", () => askToRaise(request)) },
  ]);
}

function Queue({ requests, at, choose }) {
  return html`<ol class="queue" aria-label="Requests">
    ${requests.map((request, place) => html`<li key=${requestId(request)}>
    <button type="button" class="queue-item ${place === at ? "chosen" : ""}"
      aria-current=${place === at ? "true" : undefined} onClick=${() => choose(place)}>
      <span class="queue-who">${oneLine(request.sender ?? request.title ?? request.about, 40)} <span class="faint">
        ${asks(request)}</span></span>
      <span class="queue-text">
        ${oneLine(request.kind === "budget" ? `cap on ${request.held}` : request.text, 90)}</span>
      <span class="queue-facts">
        ${request.blocks ? counted(request.blocks, "open task") : ""} ${request.sent_at && html`<${Since}
        at=${request.sent_at} />`}</span>
    </button></li>`)}</ol>`;
}

function Unread() {
  const { unread, seq } = frame();
  const { data } = useLoaded(unread ? "messages" : null, { with: "human" }, unread ? `${unread} ${seq}` : null);
  const isUnread = ({ recipient, shown_at: shown, kind }) => recipient === "human" && !shown && !(kind in ASKS);
  const messages = (data?.messages ?? []).filter(isUnread);
  if (!messages.length) return null;
  const read = () => markRead(messages.map((message) => message.id));
  return html`<${Section} title=${`Unread messages (${count(messages.length)})`} more=${html`<${Steer}><${Button}
    kind="small" onClick=${read}>Mark as read<//><//>`}>
    <div class="messages">${messages.slice(-30).reverse().map((message) => html`<${MessageLine} key=${message.id}
      message=${message} />`)}</div>
  <//>`;
}

function NotifyButton() {
  if (!canNotify()) return null;
  const on = notifies();
  return html`<button type="button" class="button" aria-pressed=${String(on)} onClick=${askToNotify}>
    ${on ? "Notifications on" : "Notify me"}</button>`;
}

export function ForYou() {
  const { requests } = frame();
  const [at, choose] = useChosen(requests);
  const box = useRef(null);
  useRequestKeys({ requests, at, choose, box });
  const request = requests[at];
  return html`
    <${Head} title="For you" says=${requests.length ? `${at + 1} of ${count(requests.length)}` : ""}>
      ${requests.length > 1 && html`<${Button} aria-label="Previous request" title="Previous  k" disabled=${at === 0}
        onClick=${() => choose(at - 1)}><${Icon} name="back" /><//>
        <${Button} aria-label="Next request" title="Next  j" disabled=${at === requests.length - 1}
          onClick=${() => choose(at + 1)}><${Icon} name="right" /><//>`}
      ${!inPast() && html`<${NotifyButton} />`}<//>
    <div class="body foryou ${requests.length > 1 ? "several" : ""}">
      ${requests.length > 1 && html`<${Queue} requests=${requests} at=${at} choose=${choose} />`}
      <div class="foryou-main">
        ${request ? html`<${Request} key=${requestId(request)}
          request=${request} large box=${box} />` : html`<div class="lead">
          <p class="lead-says">Nothing waits for you.</p>
          <${Empty}
            says="Questions, plans and reached caps come here, and the team goes on with other work meanwhile." /></div>`}
        <${Unread} />
      </div>
    </div>`;
}
