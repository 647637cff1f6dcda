/** The filter line: `role:tester state:waiting cost:>1 words`. Nothing here touches the page. */

export const STATES = ["claimed", "waiting", "ready", "scheduled", "blocked", "failed", "done", "skipped", "cancelled"];
export const OPEN_STATES = new Set(["claimed", "waiting", "ready", "scheduled", "blocked"]);

const same = (a, b) => String(a ?? "").toLowerCase() === b;

// What each word before a colon asks of a task. `says` is shown beside the completion.
const WORDS = {
  state: { says: "ready, waiting, open, …", test: (task, value) => inState(task, value) },
  role: { says: "a role, or none", test: (task, value) => same(task.role || "none", value) },
  by: { says: "a teammate", test: (task, value) => same(task.teammate, value) || same(task.assignee, value) },
  goal: { says: "the number of a goal", test: (task, value) => same(task.root, value.replace("#", "")) },
  kind: { says: "goal, work, review, message", test: (task, value) => same(task.kind, value) },
  waiting: { says: "human, plan, tasks, budget", test: (task, value) => same(task.waiting_for, value) },
  outcome: { says: "a word such as approved", test: (task, value) => same(task.outcome, value) },
  needs: { says: "the number of a task", test: (task, value) => needs(task, value) },
};
const NUMBERS = {
  cost: { says: "dollars, such as >1", of: (task) => task.dollars ?? 0 },
  tokens: { says: "tokens, such as >1000", of: (task) => task.tokens ?? 0 },
  tries: { says: "failed attempts, such as >0", of: (task) => task.tries ?? 0 },
  priority: { says: "a priority, such as >0", of: (task) => task.priority ?? 0 },
};

function inState(task, value) {
  if (value === "open") return OPEN_STATES.has(task.state);
  if (value === "ended") return !OPEN_STATES.has(task.state);
  return same(task.state, value);
}

function needs(task, value) {
  return (task.needs ?? []).some(([id]) => same(id, value.replace("#", "")));
}

const UNITS = { k: 1e3, m: 1e6 };

function comparison(value) {
  const found = /^(>=|<=|>|<|=)?\$?(\d+(?:\.\d+)?)([km])?$/i.exec(value);
  if (!found) return null;
  const number = Number(found[2]) * (UNITS[(found[3] ?? "").toLowerCase()] ?? 1);
  const tests = {
    ">": (it) => it > number, "<": (it) => it < number, ">=": (it) => it >= number, "<=": (it) => it <= number,
    "=": (it) => it === number,
  };
  return tests[found[1] ?? "="];
}

/** The parts of a line: [{key, value, not}]. A part without a colon has the key "". */
export function parts(line) {
  const found = String(line ?? "").matchAll(/(-?)(?:([a-z]+):)?("[^"]*"?|[^\s"]+)/gi);
  return [...found].map(([, not, key, value]) => ({
    key: (key ?? "").toLowerCase(), value: value.replaceAll('"', ""), not: not === "-",
  }));
}

function tester({ key, value }) {
  const wanted = value.toLowerCase();
  if (WORDS[key]) {
    const choices = wanted.split(",").filter(Boolean);
    return (task) => !choices.length || choices.some((choice) => WORDS[key].test(task, choice));
  }
  if (NUMBERS[key]) {
    const fits = comparison(wanted);
    return fits && ((task) => fits(NUMBERS[key].of(task)));
  }
  const text = key ? `${key}:${wanted}` : wanted;
  return (task) => `#${task.id} ${task.title} ${task.reason ?? ""}`.toLowerCase().includes(text);
}

/** A test for tasks, and the parts of the line that say nothing we know. */
export function compile(line) {
  const tests = [];
  const unknown = [];
  for (const part of parts(line)) {
    const test = tester(part);
    if (!test) unknown.push(`${part.key}:${part.value}`);
    else tests.push(part.not ? (task) => !test(task) : test);
  }
  return { empty: !tests.length, unknown, matches: (task) => tests.every((test) => test(task)) };
}

function values(key, frame) {
  const tasks = frame ? [...frame.tasks.values()] : [];
  const of = {
    state: () => ["open", "ended", ...STATES],
    role: () => [...tasks.map((task) => task.role), ...(frame?.team ?? []).flatMap((member) => member.roles)],
    by: () => (frame?.team ?? []).map((member) => member.name),
    goal: () => tasks.filter((task) => task.id === task.root).map((task) => [String(task.id), task.title]),
    kind: () => ["goal", "work", "review", "message", "human_message"],
    waiting: () => ["human", "plan", "tasks", "budget"],
    outcome: () => tasks.map((task) => task.outcome),
    cost: () => [">0.1", ">1", ">10"], tokens: () => [">1000", ">100k"], tries: () => [">0", ">1"],
    priority: () => [">0"],
  };
  const found = new Map();
  for (const each of of[key]?.() ?? []) {
    const [value, says] = Array.isArray(each) ? each : [each, ""];
    if (value) found.set(value, says);
  }
  return [...found];
}

/** The line without a last part that is still being typed: until it names something, it would hide everything. */
export function settledLine(line, frame) {
  const last = /(?:^|\s)-?([a-z]+):(\S*)$/i.exec(line);
  const unfinished = last && complete(line, frame).some((each) => each.label !== last[2].split(",").at(-1));
  return (unfinished ? line.slice(0, last.index) : line).trim();
}

/** What may stand at the end of the line: [{line, label, says}]. */
export function complete(line, frame, most = 9) {
  const last = /(?:^|\s)(-?)(\S*)$/.exec(line);
  const before = line.slice(0, line.length - last[2].length);
  const colon = last[2].indexOf(":");
  if (colon < 0) {
    const typed = last[2].toLowerCase();
    return Object.entries({ ...WORDS, ...NUMBERS })
      .filter(([key]) => key.startsWith(typed))
      .map(([key, { says }]) => ({ line: `${before}${key}:`, label: `${key}:`, says }))
      .slice(0, most);
  }
  const key = last[2].slice(0, colon).toLowerCase();
  const typed = last[2].slice(colon + 1);
  const comma = typed.lastIndexOf(",") + 1;
  const wanted = typed.slice(comma).toLowerCase();
  return values(key, frame)
    .filter(([value, says]) => value.toLowerCase().startsWith(wanted) || (wanted && says.toLowerCase().includes(wanted)))
    .filter(([value]) => value.toLowerCase() !== wanted)
    .map(([value, says]) => ({ line: `${before}${key}:${typed.slice(0, comma)}${value} `, label: value, says }))
    .slice(0, most);
}
