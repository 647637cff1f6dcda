/** Merges: what is being delivered, what went into the target, and what did not: red checks and conflicts. */

import { html } from "../vendor/standalone.module.js";
import { count, oneLine, plain, shortCommit } from "../format.js";
import { At, Empty, Head, Link, Section, State, TaskLink, useLoaded, Who, Words } from "../parts.js";
import { Rows } from "../rows.js";
import { frame } from "../store.js";

function Queue({ queue }) {
  if (!queue.length) return null;
  return html`<${Section} title="Being delivered"><ul class="lines">${queue.map((task) => html`<li key=${task.id}
    class="line">
    <${TaskLink} id=${task.id} title=${task.title} data-item /><span class="line-more">
      ${oneLine(task.teammate, 24)}</span></li>`)}</ul><//>`;
}

/** A commit of the target, with the task that it is. */
function Commit({ merged }) {
  return html`<div class="commit" data-commit=${merged.commit ?? ""}>
    <code class="commit-id">${merged.commit ? shortCommit(merged.commit) : "–"}</code>
    <span class="commit-task"><${TaskLink} id=${merged.task} title=${merged.title} bare data-item />
      ${merged.triggers && html`<span class="commit-triggers"
      title="These files make other programs run something">runs: ${oneLine(merged.triggers, 60)}</span>`}</span>
    <${Link} to=${{ task: merged.task, tab: "diff" }} class="commit-diff">diff<//>
    <span class="commit-who"><${Who} name=${merged.teammate} /></span><${At} at=${merged.at} />
  </div>`;
}

function Merged({ into, merged }) {
  return html`<${Section} title=${`Merged${into ? ` into ${plain(into)}` : ""} (${count(merged.length)})`} class="fill"
    style=${{ "--count": merged.length }}>
    ${merged.length ? html`<${Rows} items=${merged} keyOf=${(each) => each.task} size=${() => 32}
      label="Merged, newest first" class="commits" row=${(each) => html`<${Commit}
      merged=${each} />`} />` : html`<${Empty} says="Nothing has been merged yet." />`}
  <//>`;
}

function Red({ red }) {
  if (!red.length) return null;
  return html`<${Section} title="Red checks"><ul class="reds">${red.map((task) => html`<li key=${task.id}>
    <p class="line"><${TaskLink} id=${task.id} title=${task.title} data-item /><span class="line-more"><${At}
      at=${task.at} /></span></p>
    <${Words} text=${task.output ?? task.says ?? task.reason} mono most=${500} class="red-says" /></li>`)}</ul><//>`;
}

/** One of the two tasks that do not go together. */
function Side({ id, title, label }) {
  const task = frame().tasks.get(id);
  return html`<div class="conflict-side"><p class="faint">${label}</p><${TaskLink} id=${id}
    title=${task?.title ?? title} />
    <p class="conflict-facts">${task && html`<${State} state=${task.state} />`}${task?.teammate && html`<${Who}
      name=${task.teammate} />`}<${Link} to=${{ task: id, tab: "diff" }}>diff<//></p></div>`;
}

function Conflicts({ conflicts }) {
  if (!conflicts.length) return null;
  return html`<${Section} title="Conflicts">${conflicts.map((each) => html`<${Conflict} key=${each.task}
    each=${each} />`)}<//>`;
}

function Conflict({ each }) {
  const [first, ...rest] = (each.with ?? []).map((other) => (typeof other === "object" ? other : { task: other }));
  return html`<article class="conflict" data-task=${each.task}>
    <div class="conflict-sides"><${Side} id=${each.task} title=${each.title} label="Wants to go in" />
      ${first?.task && html`<${Side} id=${first.task} title=${first.title} label="Went in meanwhile" />`}</div>
    ${rest.length > 0 && html`<p class="conflict-rest">Also: ${rest.slice(0, 8).map((other) => html`<${Link}
      to=${{ task: other.task }}>#${other.task}<//> `)}</p>`}
    ${each.files?.length > 0 && html`<p class="conflict-files">${each.files.slice(0, 12).map((file) => html`<code>
      ${oneLine(file, 100)}</code> `)}${each.files.length > 12 ? `and ${count(each.files.length - 12)} more` : ""}</p>`}
    ${each.says && html`<${Words} text=${each.says} most=${300} class="faint" />`}
  </article>`;
}

export function Merges() {
  const { data, error } = useLoaded("merges");
  const nothing = data && !data.queue.length && !data.merged.length && !data.red.length && !data.conflicts.length;
  const beside = data && (data.queue.length || data.red.length || data.conflicts.length);
  return html`
    <${Head} title="Merges" />
    ${error && html`<div class="body"><${Empty} says=${error} /></div>`}
    ${nothing && html`<div class="body"><${Empty}
      says="Nothing has been merged yet. In a git project finished work is merged into a branch of its own."
      command="dugnad run" /></div>`}
    ${data && !nothing && html`<div class="body merges ${beside ? "two" : ""}">
      <div class="body-main"><${Merged} into=${data.into} merged=${data.merged} /></div>
      ${beside ? html`<aside class="body-side" aria-label="On the way, and not gone in"><${Queue} queue=${data.queue} />
        <${Conflicts} conflicts=${data.conflicts} /><${Red} red=${data.red} /></aside>` : ""}
    </div>`}`;
}
