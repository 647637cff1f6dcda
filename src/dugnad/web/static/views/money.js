/** Money: what each goal has spent, reserved and left; how fast; by whom, with which model, for what. */

import { html } from "../vendor/standalone.module.js";
import { capital, clock, compact, count, money, oneLine, plain, span } from "../format.js";
import { timeOf } from "../frame.js";
import { Button, Empty, Head, Link, Meter, Section, Steer, TaskLink, Until, useLoaded } from "../parts.js";
import { askToRaise } from "../steer.js";
import { frame, store } from "../store.js";

const CAPS = [
  { name: "dollars", cap: "dollars_max", says: money, unit: "" },
  { name: "tokens", cap: "tokens_max", says: compact, unit: " tokens" },
  { name: "seconds", cap: "seconds_max", says: (seconds) => span(seconds * 1000), unit: "" },
  { name: "tasks", cap: "tasks_max", says: count, unit: " task runs" },
];

const isCap = (value) => value !== null && value !== undefined;

/** The caps of a budget with what was used of each, the nearest first. */
export function usedOf(budget) {
  const found = CAPS.filter(({ cap }) => isCap(budget[cap])).map((kind) => {
    const most = budget[kind.cap];
    const spent = kind.name === "tasks" ? budget.runs : (budget.spent?.[kind.name] ?? 0);
    const reserved = kind.name === "tasks" ? 0 : (budget.reserved?.[kind.name] ?? 0);
    return { ...kind, most, spent, reserved, share: most ? spent / most : 1 };
  });
  return found.sort((a, b) => b.share - a.share);
}

function Line({ name, spent, reserved, most, says, unit }) {
  const free = Math.max(0, most - spent - reserved);
  const label = `${says(spent)} spent, ${says(reserved)} reserved, ${says(free)} free of ${says(most)}`;
  const of = (part) => (most ? part / most : 1);
  const parts = [
    { share: of(spent), kind: of(spent) > 0.9 ? "spent near" : "spent" },
    { share: Math.min(of(reserved), 1 - of(spent)), kind: "reserved" },
  ];
  return html`<div class="budget-line" data-cap=${name}>
    <${Meter} label=${label} parts=${parts} />
    <span class="budget-says"><span>${says(spent)} of ${says(most)}${unit}</span>
      <span class="budget-left">${says(free)} left</span></span>
  </div>`;
}

/** One goal: its title and a bar for each cap; with `most`, only for the nearest ones. */
export function Budget({ budget, most = 4, raise = false }) {
  const used = usedOf(budget);
  const nothing = !used.length;
  return html`<article class="budget ${budget.held ? "held" : ""}" data-budget=${budget.root}>
    <header class="budget-head">
      <${Link} to=${{ view: "board", filter: `goal:${budget.root}` }} class="budget-title">
        ${oneLine(budget.title || `Budget ${budget.root}`, 90)}<//>
      ${raise && html`<${Steer}><${Button} kind="small" onClick=${() => askToRaise(budget)}>Raise the cap<//><//>`}
    </header>
    ${budget.held && html`<p class="budget-held">Held: the cap on ${oneLine(budget.held, 40)} is reached.</p>`}
    ${used.slice(0, most).map((line) => html`<${Line} key=${line.name} ...${line} />`)}
    ${nothing && html`<p class="budget-says"><span>${money(budget.spent?.dollars)} spent</span>
      <span class="budget-left">no cap</span></p>`}
  </article>`;
}

const WIDE = 640;
const TALL = 150;
const LEFT = 52;

/** A round number at or above the highest, for the top of the chart. */
function roundUp(number) {
  if (!number) return 1;
  const size = 10 ** Math.floor(Math.log10(number));
  return [1, 2, 3, 4, 6, 8, 10].map((step) => step * size).find((step) => step >= number);
}

/** What was spent up to each moment, as a line. */
function Chart({ series, unit }) {
  const shown = unit === "dollars" ? money : compact;
  const points = series.map((point) => [point.at, point[unit] ?? 0]);
  const [from, to] = [points[0][0], Math.max(points.at(-1)[0], points[0][0] + 1000)];
  const top = roundUp(points.at(-1)[1]);
  const x = (at) => LEFT + ((at - from) / (to - from)) * (WIDE - LEFT - 8);
  const y = (value) => TALL - 22 - (value / top) * (TALL - 36);
  // Spending comes in steps, so the line does.
  const [[firstAt, firstValue]] = points;
  const steps = points.map(([at, value]) => `H${x(at).toFixed(1)}V${y(value).toFixed(1)}`);
  const line = `M${x(firstAt)} ${y(firstValue)}${steps.join("")}`;
  const now = timeOf(frame());
  return html`<svg class="chart" viewBox=${`0 0 ${WIDE} ${TALL}`} role="img"
    aria-label=${`Spent from ${clock(from, now)} to ${clock(to, now)}: ${shown(points.at(-1)[1])}`}>
    ${[0, 0.5, 1].map((share) => html`<g class="chart-grid">
      <line x1=${LEFT} x2=${WIDE - 8} y1=${y(top * share)} y2=${y(top * share)} /><text x=${LEFT - 8}
      y=${y(top * share) + 3.5} text-anchor="end">${shown(top * share)}</text></g>`)}
    <path class="chart-area" d=${`${line}V${y(0)}H${x(from)}Z`} /><path class="chart-line" d=${line} />
    <text class="chart-time" x=${LEFT} y=${TALL - 4}>${clock(from, now)}</text><text class="chart-time" x=${WIDE - 8}
      y=${TALL - 4} text-anchor="end">${clock(to, now)}</text>
  </svg>`;
}

/** A table with a bar for each line, so that the dearest is seen at once. */
function Shares({ rows, name, unit, shown }) {
  if (!rows.length) return null;
  const most = Math.max(...rows.map((row) => row[unit] ?? 0), 1e-9);
  return html`<${Section} title=${`By ${name}`}><table class="shares">
    <thead><tr><th scope="col">${capital(name)}</th><th scope="col" class="right">Turns</th>
      <th scope="col" class="right">Tokens</th><th scope="col" class="right">Cost</th></tr></thead>
    <tbody>${rows.map((row) => html`<tr key=${row[name]}>
      <td><span class="share-bar" style=${{ width: `${((row[unit] ?? 0) / most) * 100}%` }} />
        <span class="share-name">${shown(row)}</span></td>
      <td class="num right">${count(row.turns)}</td><td class="num right">${compact(row.tokens)}</td>
      <td class="num right">${row.dollars ? money(row.dollars) : "–"}</td></tr>`)}</tbody></table><//>`;
}

function Cooling({ cooldowns }) {
  if (!cooldowns.length) return null;
  return html`<${Section} title="Cooling keys"><ul class="lines">${cooldowns.map((each) => html`<li key=${each.key}
    class="line">
    <span class="mono">${oneLine(each.key, 60)}</span><span class="faint clip">${oneLine(each.reason, 120)}</span>
      <span class="line-more">free in <${Until} at=${each.until} /></span></li>`)}</ul><//>`;
}

function Rate({ data, unit }) {
  const last = data.series.at(-1);
  const { rate } = data;
  return html`<dl class="figures">
    <div><dt>Spent</dt><dd>${unit === "dollars" ? money(last?.dollars) : `${compact(last?.tokens)} tokens`}</dd></div>
    <div><dt>An hour</dt><dd>
      ${unit === "dollars" ? money(rate?.dollars_per_hour) : `${compact(rate?.tokens_per_hour)} tokens`}</dd></div>
    <div><dt>Tokens</dt><dd>${compact(last?.tokens)}</dd></div>
  </dl>`;
}

function byNeed(a, b) {
  return Number(Boolean(b.held)) - Number(Boolean(a.held)) || (usedOf(b)[0]?.share ?? -1) - (usedOf(a)[0]?.share ?? -1);
}

function Spent({ data }) {
  const unit = data.series.at(-1)?.dollars ? "dollars" : "tokens";
  // Budgets change with the stream; the sums come with the next read.
  const budgets = data.budgets.map((budget) => frame().budgets.get(budget.root) ?? budget).sort(byNeed);
  return html`<div class="body two money">
    <div class="body-main">
      ${data.series.length > 0 && html`<${Section} title="Spent over time"><${Rate} data=${data} unit=${unit} />
        <${Chart} series=${data.series} unit=${unit} /><//>`}
      <${Shares} name="teammate" unit=${unit} rows=${data.by_teammate}
        shown=${(row) => plain(row.teammate ?? "nobody")} />
      <${Shares} name="model" unit=${unit} rows=${data.by_model}
        shown=${(row) => oneLine(row.model ?? "the team's own", 60)} />
      <${Shares} name="task" unit=${unit} rows=${data.by_task}
        shown=${(row) => (row.task ? html`<${TaskLink} id=${row.task} title=${row.title} data-item />` : "no task")} />
    </div>
    <aside class="body-side" aria-label="Budgets">
      <${Section} title="Goals">${budgets.slice(0, 60).map((budget) => html`<${Budget} key=${budget.root}
        budget=${budget} raise />`)}<//>
      <${Cooling} cooldowns=${frame().cooldowns} />
    </aside>
  </div>`;
}

export function Money() {
  const { data, error } = useLoaded("money");
  const nothing = data && !data.series.length && !data.budgets.length;
  return html`
    <${Head} title="Money" says=${html`<span class="legend-item"><span class="swatch spent" />spent</span>
      <span class="legend-item"><span class="swatch reserved" />reserved</span><span class="legend-item">
      <span class="swatch free" />free</span>`} />
    ${error && html`<div class="body"><${Empty} says=${error} /></div>`}
    ${nothing && html`<div class="body"><${Empty}
      says="Nothing has been spent yet. A goal gets a cap when it is added."
      command='dugnad add "..." --dollars 2' /></div>`}
    ${data && !nothing && html`<${Spent} data=${data} key=${store.route.board} />`}`;
}
