/** Task: one task with everything around it, beside a view or as a page of its own. */

import { html, useEffect, useRef } from "../vendor/standalone.module.js";
import { OPEN_STATES } from "../filter.js";
import { count, oneLine, plain, shortCommit, span } from "../format.js";
import { timeOf } from "../frame.js";
import { useKeys } from "../keys.js";
import {
  At, Button, Cost, Empty, Icon, Link, Said, Section, Since, State, Steer, TaskLink, useLoaded, Who, Words,
} from "../parts.js";
import { askToAdd, askToCancel, askToRelease, askToTell, retry } from "../steer.js";
import { frame, go, inPast, store } from "../store.js";
import { Request, requestId } from "./foryou.js";
import { Events } from "./log.js";
import { Diff, Transcript } from "./work.js";

const TABS = [["overview", "Overview"], ["transcript", "Transcript"], ["diff", "Diff"], ["log", "Log"]];

// --- Facts ---------------------------------------------------------------------------------------------------------

function factsOf(task, summary) {
  const now = timeOf(frame());
  return [
    ["Goal", task.root !== task.id && html`<${TaskLink} id=${task.root} bare most=${60} />`],
    ["Follow-up of", task.parent && task.parent !== task.root && html`<${TaskLink}
      id=${task.parent} bare most=${60} />`],
    ["Kind", task.kind !== "work" && plain(task.kind?.replace("_", " "))],
    ["Role", task.role && plain(task.role)],
    ["For", task.assignee && html`<${Who} name=${task.assignee} />`],
    ["Not for", task.not_for && task.not_for.split(",").map((name) => html`<${Who} name=${name} /> `)],
    [OPEN_STATES.has(task.state) ? "Holder" : "By", task.teammate && html`<${Who} name=${task.teammate} />`],
    ["Added by", task.put_by && html`<${Who} name=${task.put_by} />, ${html`<${At} at=${task.put_at} />`}`],
    ["Due", task.due_at && task.due_at > now && `in ${span(task.due_at - now)}`],
    ["Ended", task.ended_at && html`<${At} at=${task.ended_at} />`],
    ["Priority", task.priority ? count(task.priority) : null],
    ["Check", task.check && html`<code>${oneLine(task.check, 120)}</code>`],
    ["Review by", task.review && plain(task.review)],
    ["Plans first", task.plan ? "yes" : null],
    ["Network", task.network ? "yes" : null],
    ["Cost", (summary.dollars || summary.tokens) && html`<${Cost} dollars=${summary.dollars}
      tokens=${summary.tokens} />`],
    ["Merged as", task.merged_as && html`<code>${shortCommit(task.merged_as)}</code>
      ${task.merged_into ? ` into ${plain(task.merged_into)}` : ""}`],
    ["Files in", task.files_in && html`<code>${oneLine(task.files_in, 120)}</code>`],
    ["Makes programs run", task.triggers && html`<code>${oneLine(task.triggers, 160)}</code>`],
  ].filter(([, value]) => value);
}

function Facts({ task, summary }) {
  return html`<dl class="facts">${factsOf(task, summary).map(([name, value]) => html`<div key=${name}><dt>${name}</dt>
    <dd>${value}</dd></div>`)}</dl>`;
}

// --- Parts of the overview -----------------------------------------------------------------------------------------

const NEED_SAYS = { met: "met", open: "open", broken: "broken" };

function Needs({ needs }) {
  if (!needs.length) return null;
  return html`<${Section} title="Needs"><ul class="lines">${needs.map((need) => html`<li key=${need.task}
    class="line need ${need.state}">
    <${TaskLink} id=${need.task} title=${need.title} state=${need.task_state} data-item />
    <span class="line-more">
      ${need.outcome ? `${plain(need.outcome)}: ` : ""}${NEED_SAYS[need.state] ?? need.state}</span></li>`)}</ul><//>`;
}

function NeededBy({ tasks }) {
  if (!tasks.length) return null;
  return html`<${Section} title="Needed by"><ul class="lines">
    ${tasks.slice(0, 50).map((task) => html`<li key=${task.task} class="line">
    <${TaskLink} id=${task.task} title=${task.title} state=${task.state} data-item />
      ${task.outcome && html`<span class="line-more">if ${plain(task.outcome)}</span>`}</li>`)}</ul>
    ${tasks.length > 50 && html`<p class="empty">And ${count(tasks.length - 50)} more.</p>`}<//>`;
}

/** What an attempt handed over: JSON of any form, shown as lines. */
function handed(handover) {
  try {
    const found = JSON.parse(handover);
    if (found && typeof found === "object" && !Array.isArray(found)) {
      const said = (value) => (typeof value === "string" ? value : JSON.stringify(value));
      return Object.entries(found).map(([name, value]) => `${name.replaceAll("_", " ")}: ${said(value)}`).join("\n");
    }
  } catch {
    // It is text.
  }
  return handover;
}

const ENDED = { retry: "failed, tried again", lost: "its host was lost" };

function Attempts({ attempts, id }) {
  if (!attempts.length) return null;
  return html`<${Section} title="Attempts"><ol class="attempts">
    ${[...attempts].reverse().map((attempt) => html`<li key=${attempt.epoch} class="attempt">
    <div class="attempt-head"><${State} state=${attempt.ended_as ?? "claimed"}
      word=${attempt.ended_as ? (ENDED[attempt.ended_as] ?? attempt.ended_as) : "at work"} />
      <span class="attempt-who"><${Who} name=${attempt.teammate} />${attempt.continues ? " continues" : ""}</span>
      <span class="line-more"><${At} at=${attempt.claimed_at} /> ${attempt.ended_at ? html`<span class="num">
        ${span(attempt.ended_at - attempt.claimed_at)}</span>` : html`<${Since} at=${attempt.claimed_at} />`}
        ${" "}<${Cost} dollars=${attempt.spent?.dollars} tokens=${attempt.spent?.tokens} />
        ${" "}<${Link} to=${{ task: id, tab: "transcript", attempt: attempt.epoch }}>transcript<//></span></div>
    ${attempt.reason && html`<${Words} text=${attempt.reason} most=${400} class="attempt-reason" />`}
    ${attempt.handover && html`<details class="fold"><summary>Handed over</summary><${Words}
      text=${handed(attempt.handover)} most=${2000} /></details>`}
  </li>`)}</ol><//>`;
}

function Checks({ checks }) {
  if (!checks.length) return null;
  return html`<${Section} title="Checks"><ol class="checks">
    ${[...checks].reverse().map((check, at) => html`<li key=${`${check.at}${at}`}>
    <details class="fold" open=${at === 0 && !check.green}><summary><${State} state=${check.green ? "done" : "failed"}
      word=${check.green ? "green" : "red"} /><span class="line-more"><${At} at=${check.at} /></span></summary>
      <${Words} text=${check.output} mono most=${4000} /></details></li>`)}</ol><//>`;
}

function Review({ review }) {
  if (!review) return null;
  return html`<${Section} title="Review" more=${review.rounds > 1 ? `${review.rounds} rounds` : null}>
    <p class="line"><${TaskLink} id=${review.task} state=${review.state} title=${review.outcome ?? review.state} />
      ${review.teammate && html`<span class="line-more"><${Who} name=${review.teammate} /></span>`}</p>
    ${review.result && html`<${Words} text=${review.result} most=${2000} />`}<//>`;
}

function Messages({ messages }) {
  if (!messages.length) return null;
  return html`<${Section} title="Messages"><ul class="messages">${messages.map((message) => html`<li key=${message.id}
    class="message">
    <p class="message-head"><${Who} name=${message.sender} /> to <${Who}
      name=${message.recipient} /> <span class="line-more"><${At} at=${message.sent_at} /></span></p>
    <${Words} text=${message.text} most=${1200} /></li>`)}</ul><//>`;
}

function Children({ children }) {
  if (!children.length) return null;
  return html`<${Section} title=${`Follow-ups (${count(children.length)})`}><ul class="lines">
    ${children.slice(0, 100).map((child) => html`<li key=${child.id} class="line"><${TaskLink} id=${child.id}
    title=${child.title} state=${child.state} data-item /></li>`)}</ul>
    ${children.length > 100 && html`<p class="empty">And ${count(children.length - 100)} more.</p>`}<//>`;
}

function Troubles({ tracebacks }) {
  const found = Object.entries(tracebacks ?? {});
  if (!found.length) return null;
  return html`<${Section} title="Troubles">${found.map(([attempt, text]) => html`<details key=${attempt} class="fold">
    <summary>A bug ended attempt ${attempt}</summary><${Words} text=${text} mono /></details>`)}<//>`;
}

function Overview({ data }) {
  const { task, summary } = data;
  const requests = frame().requests.filter((request) => request.task === task.id);
  return html`<div class="overview">
    <div class="overview-words">
      ${data.why && html`<p class="why"><${Said} text=${data.why} /></p>`}
      ${!data.why && task.reason && task.state !== "done" && html`<p class="why ${task.state}">
        ${oneLine(task.reason.trim().split("\n")[0], 400)}</p>`}
      ${requests.map((request) => html`<${Request} key=${requestId(request)} request=${request} bare />`)}
      ${task.body && html`<${Words} text=${task.body} class="task-text" />`}
      ${task.result && html`<${Section} title=${task.outcome ? `Result: ${plain(task.outcome)}` : "Result"}><${Words}
        text=${task.result} /><//>`}
      <${Review} review=${data.review} />
      ${data.reviews && html`<p class="line">It reviews <${TaskLink} id=${data.reviews} /></p>`}
      <${Attempts} attempts=${data.attempts} id=${task.id} />
      <${Checks} checks=${data.checks} />
      <${Troubles} tracebacks=${data.tracebacks} />
      <${Messages} messages=${data.messages} />
    </div>
    <div class="overview-facts">
      <${Facts} task=${task} summary=${summary} />
      <${Needs} needs=${data.needs} /><${NeededBy} tasks=${data.needed_by} /><${Children} children=${data.children} />
    </div>
  </div>`;
}

// --- The frame of a task -------------------------------------------------------------------------------------------

function Acts({ task }) {
  const { id, state, teammate } = task;
  const open = OPEN_STATES.has(state);
  return html`<${Steer}><div class="acts">
    ${(state === "failed" || state === "cancelled") && html`<${Button} onClick=${() => retry(id)}>Retry<//>`}
    ${(state === "claimed" || state === "waiting") && html`<${Button} onClick=${() => askToRelease(task)}>Release<//>`}
    <${Button} onClick=${() => askToTell({ to: teammate ?? "", task: id })}>Message<//>
    <${Button} onClick=${() => askToAdd({ under: id })}>Follow-up<//>
    ${open && html`<${Button} onClick=${() => askToCancel(task)}>Cancel the task<//>`}
  </div><//>`;
}

function Tabs({ id, tab }) {
  return html`<nav class="tabs" aria-label="Parts of the task">${TABS.map(([key, name]) => html`<${Link} key=${key}
    to=${{ task: id, tab: key === "overview" ? undefined : key }} replace class="tab"
    aria-current=${tab === key ? "page" : undefined}>${name}<//>`)}</nav>`;
}

function useTask(id) {
  // Only what touches this task makes it worth reading again.
  return useLoaded(`tasks/${id}`, {}, frame().tasks.get(id));
}

function TaskBody({ id, data, heading }) {
  const tab = TABS.some(([key]) => key === store.route.tab) ? store.route.tab : "overview";
  const { task } = data;
  const H = heading;
  const show = (key) => go({ tab: key === "overview" ? undefined : key }, { replace: true });
  useKeys(TABS.map(([key, name], at) => ({ keys: String(at + 1), says: name, group: "Task", run: () => show(key) })));
  return html`
    <header class="task-head" data-task=${id} data-state=${task.state}>
      <p class="task-line-facts"><${State} state=${task.state} /><span class="id">#${id}</span>
        ${task.teammate && html`<${Who} name=${task.teammate} />`}
        ${task.state === "claimed" && html`<span class="faint"><${Since}
          at=${data.attempts.at(-1)?.claimed_at} /></span>`}</p>
      <${H} class="task-title">${plain(task.title)}<//>
      <${Acts} task=${task} />
      <${Tabs} id=${id} tab=${tab} />
    </header>
    <div class="task-part ${tab}">
      ${tab === "overview" && html`<${Overview} data=${data} />`}
      ${tab === "transcript" && html`<${Transcript} id=${id} attempts=${data.attempts} />`}
      ${tab === "diff" && html`<${Diff} id=${id} task=${task} />`}
      ${tab === "log" && html`<${Events} task=${id} />`}
    </div>`;
}

function Missing({ id, error }) {
  if (!error) return html`<p class="empty center" role="status">Reading #${id}…</p>`;
  return html`<${Empty} says=${inPast() ? `#${id} was not on the board at this time.` : error} />`;
}

/** A task beside a view. */
export function TaskPanel() {
  const id = store.route.task;
  const { data, error } = useTask(id);
  const panel = useRef(null);
  useEffect(() => {
    // The keyboard goes where the eye goes, but a person who answers is not interrupted.
    if (!panel.current.contains(document.activeElement)) panel.current.focus({ preventScroll: true });
  }, [id]);
  const widen = () => go({ view: "task", task: id, tab: store.route.tab });
  useKeys([{ keys: "o", says: "Open as a page", group: "Task", run: widen }]);
  return html`<aside class="panel" ref=${panel} tabindex="-1" aria-label=${`Task #${id}`}>
    <div class="panel-keys">
      <${Link} to=${{ view: "task", task: id, tab: store.route.tab, attempt: store.route.attempt }} class="icon-button"
        aria-label="Open as a page" title="Open as a page  o"><${Icon} name="wide" /><//>
      <button type="button" class="icon-button" aria-label="Close the task" title="Close  Esc"
        onClick=${() => go({ task: undefined })}><${Icon} name="close" /></button>
    </div>
    ${data ? html`<${TaskBody} key=${id} id=${id} data=${data} heading="h2" />` : html`<${Missing} id=${id}
      error=${error} />`}
  </aside>`;
}

/** A task as a page of its own. */
export function TaskPage() {
  const id = store.route.task;
  const { data, error } = useTask(id);
  return html`<article class="task-page">
    <p class="task-back"><${Link} to=${{ view: "board", task: undefined }}><${Icon} name="back"
      size=${14} />Board<//></p>
    ${data ? html`<${TaskBody} key=${id} id=${id} data=${data}
      heading="h1" />` : html`<h1 class="task-title">#${id}</h1><${Missing} id=${id} error=${error} />`}
  </article>`;
}

