/** Now: why nothing moves, what waits for you, who works on what, what comes next, and what is left. */

import { html } from "../vendor/standalone.module.js";
import { OPEN_STATES, STATES } from "../filter.js";
import { count, counted, oneLine, plain } from "../format.js";
import { nextUp, tasksOf, titleOf } from "../frame.js";
import { At, Button, Empty, Glyph, Head, Link, Said, Section, Since, Steer, TaskLink, Until, Who } from "../parts.js";
import { askToAdd } from "../steer.js";
import { canSteer, frame } from "../store.js";
import { Request, requestId } from "./foryou.js";
import { Budget, usedOf } from "./money.js";

const NEXT_MOST = 6;
const WORKERS_MOST = 12;

/** The board in one sentence while it moves. */
function headline(shown) {
  const { counts } = shown;
  const working = shown.team.filter((member) => member.status === "working").length;
  if (!tasksOf(shown).length) return "Nothing is on this board yet.";
  if (!working) return "Nobody works.";
  const verb = working === 1 ? "works" : "work";
  const ready = counts.ready ? `, and ${counts.ready === 1 ? "1 task is" : `${count(counts.ready)} tasks are`} ready` : "";
  return `${counted(working, "teammate")} ${verb}${ready}.`;
}

/** All tasks as one line, by state. Each part leads to these tasks. */
function Strip({ counts }) {
  const states = STATES.filter((state) => counts[state]);
  const all = states.reduce((sum, state) => sum + counts[state], 0);
  if (!all) return null;
  return html`<div class="strip-place">
    <div class="strip" aria-hidden="true">${states.map((state) => html`<span key=${state} class="strip-part s-${state}"
      style=${{ flexGrow: counts[state] }} />`)}</div>
    <ul class="strip-legend" aria-label="Tasks by state">${states.map((state) => html`<li key=${state}>
      <${Link} to=${{ view: "board", filter: `state:${state}` }} data-state=${state} data-count=${counts[state]}>
        <${Glyph} state=${state} /><b class="num">${count(counts[state])}</b> ${state}<//></li>`)}</ul>
  </div>`;
}

function Lead({ shown }) {
  if (shown.why) {
    return html`<div class="lead still" role="note"><p class="lead-says"><${Said} text=${shown.why} /></p><${Strip}
      counts=${shown.counts} /></div>`;
  }
  return html`<div class="lead"><p class="lead-says">${headline(shown)}</p><${Strip} counts=${shown.counts} /></div>`;
}

function Waits({ requests }) {
  if (!requests.length) return null;
  const more = requests.length > 3 && html`<${Link} to=${{ view: "foryou" }}>All ${count(requests.length)}<//>`;
  return html`<${Section} title="Waits for you" more=${more}>
    <div class="requests">${requests.slice(0, 3).map((request) => html`<${Request} key=${requestId(request)}
      request=${request} />`)}</div>
  <//>`;
}

/** The last output of a command is the second line of what somebody does. */
function Doing({ doing }) {
  if (!doing?.what) return null;
  const [what, said] = doing.what.split("\n");
  return html`<span class="doing"><span class="doing-what">${oneLine(what, 60)}</span> <${Since} at=${doing.since} />
    ${said && html`<span class="doing-said mono">${oneLine(said, 120)}</span>`}</span>`;
}

function Worker({ member }) {
  return html`<li class="worker" data-teammate=${member.name}>
    <span class="worker-name"><${Glyph} state=${member.status} /><${Who} name=${member.name} /></span>
    <span class="worker-task">${member.task ? html`<${TaskLink} id=${member.task}
      title=${titleOf(frame(), member.task)} bare data-item />` : html`<span class="faint">
      ${member.status}</span>`}</span>
    <span class="worker-doing"><${Doing} doing=${member.doing} /></span>
  </li>`;
}

function Working({ team }) {
  const working = team.filter((member) => ["working", "waiting", "failed", "lost"].includes(member.status));
  const idle = team.filter((member) => member.status === "idle" || member.status === "wanted");
  const names = idle.slice(0, 8).map((member) => oneLine(member.name, 40)).join(", ");
  const others = idle.length > 8 ? " and others" : "";
  const says = idle.length ? `${names}${others} ${idle.length === 1 ? "is" : "are"} free.` : "";
  if (!team.length) {
    return html`<${Section} title="At work"><${Empty}
      says="Nobody is on the team." command='dugnad run "what you want"' /><//>`;
  }
  return html`<${Section} title="At work" more=${says && html`<span class="faint">${says}</span>`}>
    ${working.length ? html`<ul class="workers">${working.slice(0, WORKERS_MOST).map((member) => html`<${Worker}
      key=${member.name} member=${member} />`)}</ul>${working.length > WORKERS_MOST && html`<p class="empty"><${Link}
      to=${{ view: "team" }}>All ${count(working.length)}<//></p>`}` : html`<p class="empty">Nobody works on a task.</p>`}
  <//>`;
}

function Next({ shown }) {
  const ready = nextUp(shown);
  if (!ready.length) return null;
  const more = ready.length > NEXT_MOST && html`<${Link}
    to=${{ view: "board", filter: "state:ready" }}>All ${count(ready.length)}<//>`;
  return html`<${Section} title="Next up" more=${more}>
    <ol class="lines">${ready.slice(0, NEXT_MOST).map((task) => html`<li key=${task.id} class="line">
      <${TaskLink} id=${task.id} title=${task.title} data-item />
      <span class="line-more">${oneLine(task.assignee ?? task.role ?? "anyone", 40)}</span>
    </li>`)}</ol>
  <//>`;
}

function Cooling({ cooldowns }) {
  if (!cooldowns.length) return null;
  return html`<${Section} title="Cooling keys"><ul class="lines">${cooldowns.map((each) => html`<li key=${each.key}
    class="line">
    <span class="mono clip" title=${plain(each.reason)}>${oneLine(each.key, 60)}</span><span class="line-more"><${Until}
      at=${each.until} /></span></li>`)}</ul><//>`;
}

function Left({ shown }) {
  const open = new Set(tasksOf(shown).filter((task) => OPEN_STATES.has(task.state)).map((task) => task.root));
  const budgets = [...shown.budgets.values()].filter((budget) => budget.held || open.has(budget.root));
  if (!budgets.length) return null;
  budgets.sort((a, b) => (usedOf(b)[0]?.share ?? 0) - (usedOf(a)[0]?.share ?? 0));
  return html`<${Section} title="Money and time left" more=${html`<${Link} to=${{ view: "money" }}>Money<//>`}>
    ${budgets.slice(0, 4).map((budget) => html`<${Budget} key=${budget.root} budget=${budget} most=${2} />`)}
  <//>`;
}

/** The last events, newest first. */
function Last({ events }) {
  if (!events.length) return null;
  return html`<${Section} title="Last events" more=${html`<${Link} to=${{ view: "log" }}>Log<//>`}>
    <ol class="events short">${events.slice(-14).reverse().map((event) => html`<li key=${event.seq} class="event">
      <${At} at=${event.at} /><span>${event.task ? html`<${Link} to=${{ task: event.task }}
        class="id">#${event.task}<//>` : ""}</span><span class="event-says">
        ${oneLine(event.says, 140)}</span></li>`)}</ol>
  <//>`;
}

export function Now() {
  const shown = frame();
  const empty = !tasksOf(shown).length;
  return html`
    <${Head} title="Now"><${Steer}><${Button} icon="plus" onClick=${() => askToAdd()}>Add a task<//><//><//>
    <div class="body two">
      <div class="body-main">
        ${empty ? html`<div class="lead"><p class="lead-says">Nothing is on this board yet.</p>
          <${Empty}
            says=${canSteer() ? "Press n to add a task." : ""} command='dugnad add "..."' /></div>` : html`<${Lead}
            shown=${shown} />`}
        <${Waits} requests=${shown.requests} />
        ${!(empty && !shown.team.length) && html`<${Working} team=${shown.team} />`}
        <${Next} shown=${shown} />
      </div>
      <aside class="body-side" aria-label="What is left, and what happened">
        <${Left} shown=${shown} /><${Cooling} cooldowns=${shown.cooldowns} /><${Last} events=${shown.events} />
      </aside>
    </div>`;
}
