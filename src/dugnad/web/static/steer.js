/** Everything that changes the board: one function for each act, and the one dialog, which asks for what is missing. */

import { html, useLayoutEffect, useRef, useState } from "./vendor/standalone.module.js";
import { boardPath, freshKey, post } from "./api.js";
import { counted, money, plain } from "./format.js";
import { Button } from "./parts.js";
import { boardId, change, frame, go, say, store } from "./store.js";

/** Do it, and say in one sentence what came of it. True if the board agreed. */
export async function steer(what, body, { quiet = false } = {}) {
  try {
    const answer = await post(boardPath(boardId(), what), { key: freshKey(), ...body });
    if (!quiet) say(answer.says ?? "Done.");
    return answer;
  } catch (error) {
    if (error.status === 401) change({ refused: error.message });
    say(error.message, true);
    return null;
  }
}

/** Open a dialog: {title, says, fields, verb, danger, act(values)}. It closes when `act` answers with something. */
export function ask(dialog) {
  change({ dialog });
}

const trimmed = (text) => (text ?? "").trim();
const words = (text) => trimmed(text).split(/[\s,]+/).filter(Boolean);

// --- Tasks ---------------------------------------------------------------------------------------------------------

export function askToAdd({ under, title = "", body = "", to = "" } = {}) {
  ask({
    title: under ? `Follow-up to #${under}` : "Add a task",
    fields: [
      { name: "title", label: "Title", value: title, required: true, hint: "What to do, in a few words" },
      { name: "body", label: "Text", kind: "long", value: body, hint: "Everything a teammate needs to know" },
      { name: "role", label: "Role", hint: "Anyone", half: true, options: rolesOf() },
      { name: "to", label: "For", value: to, hint: "A teammate", half: true, options: people() },
      { name: "needs", label: "Needs", hint: "12 14:approved", half: true },
      { name: "priority", label: "Priority", kind: "number", hint: "0", half: true },
      { name: "check", label: "Check", hint: "make test", half: true, mono: true },
      { name: "review", label: "Review by", hint: "A role", half: true, options: rolesOf() },
      ...(under ? [] : [{ name: "dollars", label: "Cap in dollars", kind: "number", hint: "No cap", half: true }]),
    ],
    verb: "Add the task",
    async act(values) {
      const answer = await steer("add", addedTask(values, under));
      if (answer?.task?.id) go({ task: answer.task.id });
      return answer;
    },
  });
}

function people() {
  return frame().team.map((member) => member.name);
}

function rolesOf() {
  const ofTeam = frame().team.flatMap((member) => member.roles ?? []);
  const ofTasks = [...frame().tasks.values()].map((task) => task.role);
  return [...new Set([...ofTeam, ...ofTasks])].filter(Boolean);
}

function addedTask(values, under) {
  const task = { title: trimmed(values.title), body: trimmed(values.body) };
  for (const name of ["role", "to", "check", "review"]) if (trimmed(values[name])) task[name] = trimmed(values[name]);
  if (words(values.needs).length) task.needs = words(values.needs);
  if (trimmed(values.priority)) task.priority = Number(values.priority);
  if (trimmed(values.dollars)) task.budget = { dollars: Number(values.dollars) };
  if (under) task.under = under;
  return task;
}

export function retry(task) {
  return steer("retry", { task });
}

export function askToCancel(task) {
  ask({
    title: `Cancel #${task.id}?`,
    says: `“${task.title}” ends as cancelled. A teammate that works on it stops.`,
    fields: [
      { name: "why", label: "Why", hint: "The team reads it" },
      { name: "dependents", label: "Cancel every task that waits for it, too", kind: "check" },
    ],
    verb: "Cancel the task", back: "Keep it", danger: true,
    act: (values) => steer("cancel", { task: task.id, why: trimmed(values.why), dependents: Boolean(values.dependents) }),
  });
}

export function askToRelease(task) {
  ask({
    title: `Release #${task.id}?`,
    says: `${task.teammate ?? "Its holder"} loses the task, and everyone may claim it.`,
    fields: [{ name: "why", label: "Why", hint: "The next teammate reads it" }],
    verb: "Release", act: (values) => steer("release", { task: task.id, why: trimmed(values.why) }),
  });
}

/** Cancel or retry all tasks of a selection, one after another, after a question that names their number. */
export function askForMany(verb, tasks) {
  const cancelling = verb === "cancel";
  const number = counted(tasks.length, "task");
  ask({
    title: `${cancelling ? "Cancel" : "Retry"} ${number}?`,
    says: cancelling ? `${number} of this filter end as cancelled.` : `${number} of this filter are opened again.`,
    fields: cancelling ? [{ name: "why", label: "Why", hint: "The team reads it" }] : [],
    verb: `${cancelling ? "Cancel" : "Retry"} ${number}`, danger: cancelling, back: cancelling ? "Keep them" : "Back",
    act: (values) => forEach(tasks, verb, cancelling ? { why: trimmed(values.why) } : {}),
  });
}

async function forEach(tasks, verb, more) {
  let done = 0;
  let refused = "";
  for (const task of tasks) {
    try {
      await post(boardPath(boardId(), verb), { key: freshKey(), task: task.id, ...more });
      done += 1;
    } catch (error) {
      if (error.status !== 409) {
        say(`${counted(done, "task")} done, then: ${error.message}`, true);
        return true;
      }
      refused = error.message;
    }
    if (done % 20 === 0) say(`${done} of ${tasks.length}…`);
  }
  const rest = tasks.length - done;
  const how = `${verb === "cancel" ? "Cancelled" : "Retried"} ${counted(done, "task")}.`;
  say(rest ? `${how} The board refused ${rest}: ${refused}` : how, rest > 0);
  return true;
}

// --- People --------------------------------------------------------------------------------------------------------

export function askToTell({ to = "", task, text = "" } = {}) {
  ask({
    title: task ? `Message about #${task}` : "Send a message",
    fields: [
      { name: "to", label: "To", value: to, required: true, options: people(), hint: "A teammate" },
      { name: "text", label: "Text", kind: "long", value: text, required: true, hint: "It sees it with its next turn" },
    ],
    verb: "Send", act: (values) => steer("tell", { to: trimmed(values.to), text: values.text, ...(task ? { task } : {}) }),
  });
}

export function askToStop(member) {
  ask({
    title: `Stop ${member.name}?`,
    says: "It finishes its task or gives it back, and then leaves.",
    fields: [
      { name: "why", label: "Why", hint: "It reads this" },
      { name: "now", label: "Stop it at once, without asking it", kind: "check" },
    ],
    verb: "Stop", danger: true,
    act: (values) => steer("stop", { name: member.name, why: trimmed(values.why), now: Boolean(values.now) }),
  });
}

export function askToSpawn() {
  ask({
    title: "Add a teammate",
    says: "It joins at once if a host has room for it, or else with the next run.",
    fields: [
      { name: "name", label: "Name", required: true, half: true },
      { name: "roles", label: "Roles", hint: "coder tester", half: true, options: rolesOf() },
      { name: "model", label: "Model", hint: "The team's own", half: true },
      { name: "prompt", label: "Prompt", kind: "long", hint: "What it should know about itself" },
      { name: "lead", label: "It leads: it plans, answers and directs the others", kind: "check" },
      { name: "plan", label: "It plans first, and waits for approval", kind: "check" },
    ],
    verb: "Add the teammate",
    act: (values) => steer("spawn", {
      name: trimmed(values.name), roles: words(values.roles), model: trimmed(values.model), prompt: values.prompt,
      lead: Boolean(values.lead), plan: Boolean(values.plan),
    }),
  });
}

// --- For you -------------------------------------------------------------------------------------------------------

export const answer = (request, text) => steer("answer", { request, text });
export const approve = (request, text = "") => steer("approve", { request, text });
const reject = (request, why) => steer("reject", { request, why });

export function askToReject(request) {
  ask({
    title: request.tool_call ? "Refuse this tool call?" : "Reject this?",
    fields: [{ name: "why", label: "Why", kind: "long", required: true, hint: "The teammate reads it" }],
    verb: "Reject", danger: true, act: (values) => reject(request.id, trimmed(values.why)),
  });
}

const RAISED = [["dollars", "Dollars", 1], ["tokens", "Tokens", 1], ["tasks", "Task runs", 1], ["minutes", "Minutes", 1]];
const CAPS = { dollars: "dollars_max", tokens: "tokens_max", tasks: "tasks_max", minutes: "seconds_max" };

/** Raise the caps of a goal. A held budget proposes a quarter more of what ran out. */
export function askToRaise(budget) {
  const proposed = (name) => {
    const cap = budget[CAPS[name]];
    const ranOut = budget.held && String(budget.held).includes(name === "minutes" ? "second" : name);
    if (!ranOut || !cap) return "";
    const more = (name === "minutes" ? cap / 60 : cap) / 4;
    return String(name === "dollars" ? Math.max(0.5, Math.ceil(more * 2) / 2) : Math.ceil(more));
  };
  const capped = RAISED.filter(([name]) => budget[CAPS[name]] !== null && budget[CAPS[name]] !== undefined);
  ask({
    title: "Raise the cap",
    says: `“${budget.title}” has spent ${money(budget.spent?.dollars)}. These amounts are added to its caps.`,
    fields: (capped.length ? capped : RAISED).map(([name, label]) => ({
      name, label, kind: "number", value: proposed(name), hint: "0", half: true,
    })),
    verb: "Raise the cap",
    act(values) {
      const given = RAISED.map(([name]) => [name, Number(values[name])]).filter(([, number]) => number > 0);
      if (!given.length) {
        say("Say how much to add.", true);
        return null;
      }
      return steer("budget", { root: budget.root, add: true, ...Object.fromEntries(given) });
    },
  });
}

export function askToNote() {
  ask({
    title: "Write a note",
    says: "All teammates can read it.",
    fields: [
      { name: "title", label: "Title", required: true },
      { name: "text", label: "Text", kind: "long", required: true },
    ],
    verb: "Write the note", act: (values) => steer("note", { title: trimmed(values.title), text: values.text }),
  });
}

export function markRead(messages) {
  return store.session?.scope === "steer" ? steer("read", { messages }, { quiet: true }) : null;
}

function Field({ field, first }) {
  const { name, label, kind = "line", value = "", hint = "", required = false, half, mono, options } = field;
  const list = options?.length ? `options-${name}` : undefined;
  // The page is drawn again while somebody types, so only the first value is ours.
  const shared = {
    name, required, defaultValue: value, placeholder: hint, autofocus: first, autocomplete: "off",
    class: mono ? "mono" : "",
  };
  if (kind === "check") {
    return html`<label class="field check"><input type="checkbox" name=${name} /><span>${label}</span></label>`;
  }
  return html`<label class="field ${half ? "half" : ""}">
    <span class="field-label">${label}</span>
    ${kind === "long"
      ? html`<textarea ...${shared} rows="5" />`
      : html`<input ...${shared} type="text" inputmode=${kind === "number" ? "decimal" : "text"}
          pattern=${kind === "number" ? "-?[0-9]*[.]?[0-9]*" : undefined} list=${list} />`}
    ${list && html`<datalist id=${list}>
      ${options.map((each) => html`<option value=${each} />`)}</datalist>`}
  </label>`;
}

function valuesOf(form) {
  const values = {};
  for (const control of form.elements) {
    if (control.name) values[control.name] = control.type === "checkbox" ? control.checked : control.value;
  }
  return values;
}

export function Dialog() {
  const { dialog } = store;
  const element = useRef(null);
  const [busy, setBusy] = useState(false);
  useLayoutEffect(() => {
    if (dialog && !element.current.open) element.current.showModal();
  }, [dialog]);
  if (!dialog) return null;
  const close = () => change({ dialog: null });
  const closed = () => !element.current?.open && close(); // The event comes late: another may be open already.
  const submit = async (event) => {
    event.preventDefault();
    setBusy(true);
    const accepted = await dialog.act(valuesOf(event.target));
    setBusy(false);
    if (accepted && store.dialog === dialog) close();
  };
  const hurry = (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) event.currentTarget.requestSubmit();
  };
  const { fields = [] } = dialog;
  return html`<dialog ref=${element} class="dialog" aria-labelledby="dialog-title" onClose=${closed}
    onClick=${(event) => event.target === element.current && close()}>
    <form key=${dialog} onSubmit=${submit} onKeyDown=${hurry}>
      <h2 id="dialog-title">${plain(dialog.title)}</h2>
      ${dialog.says && html`<p class="dialog-says">${plain(dialog.says)}</p>`}
      <div class="fields">${fields.map((field, at) => html`<${Field} key=${field.name} field=${field}
        first=${at === 0} />`)}</div>
      ${store.toast?.wrong && html`<p class="dialog-wrong" role="alert">${plain(store.toast.text)}</p>`}
      <footer class="dialog-foot">
        <${Button} onClick=${close}>${dialog.back ?? "Back"}<//>
        <button type="submit" class="button ${dialog.danger ? "danger" : "primary"}" disabled=${busy}>
          ${dialog.verb}</button>
      </footer>
    </form>
  </dialog>`;
}
