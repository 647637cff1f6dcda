/** What an attempt said and what it changed: the transcript turn by turn, and the diff. */

import { html, useEffect, useLayoutEffect, useMemo, useRef, useState } from "../vendor/standalone.module.js";
import { boardPath, get } from "../api.js";
import { compact, count, counted, oneLine, plain, shortCommit, span } from "../format.js";
import { At, Button, Choices, Cost, Empty, Icon, reading, State, useLoaded, Words } from "../parts.js";
import { Rows } from "../rows.js";
import { steer } from "../steer.js";
import { boardId, canSteer, frame, go, say, store } from "../store.js";

const PAGE = 50;
const KINDS = { request: "Asked", reply: "", summary: "Summary", trouble: "Trouble", tool: "Tool" };

/** The turns of an attempt, page by page; a running attempt goes on. */
function useTurns(id, epoch) {
  const [held, setHeld] = useState({ turns: [], more: true, after: 0, error: "" });
  const busy = useRef(false);
  const load = async () => {
    if (busy.current || epoch === undefined) return;
    busy.current = true;
    try {
      const found = await reading(get(boardPath(boardId(), `tasks/${id}/turns`), { epoch, after: held.after, page: PAGE }));
      setHeld((before) => {
        const known = new Set(before.turns.map((turn) => turn.number));
        const fresh = found.turns.filter((turn) => !known.has(turn.number));
        const after = found.after ?? found.turns.at(-1)?.number ?? before.after;
        return { turns: [...before.turns, ...fresh], more: found.more, after, error: "" };
      });
    } catch (error) {
      setHeld((before) => ({ ...before, more: false, error: error.message }));
    }
    busy.current = false;
  };
  useEffect(() => { load(); }, [id, epoch]);
  const summary = frame().live ? frame().tasks.get(id) : null;
  useEffect(() => {
    if (!held.more && held.turns.length) load();
  }, [summary]);
  const whole = async (turn) => {
    try {
      const found = await get(boardPath(boardId(), `tasks/${id}/turns/${epoch}/${turn.number}`));
      const full = { ...(found.turn ?? found), whole: true };
      setHeld((before) => ({ ...before, turns: before.turns.map((each) => (each.number === turn.number ? full : each)) }));
    } catch (error) {
      say(error.message, true);
    }
  };
  return { ...held, load, whole };
}

/** The arguments of a call in a few words: of one argument its value, else the names and values. */
function brief(text) {
  try {
    const found = JSON.parse(text);
    const entries = Object.entries(found);
    const [first] = entries;
    if (!first) return "";
    const value = typeof first[1] === "string" ? first[1] : JSON.stringify(first[1]);
    return oneLine(value, 110);
  } catch {
    return oneLine(text, 110);
  }
}

/** Arguments as lines of name and value, so that line breaks in them are line breaks. */
function pretty(text) {
  try {
    const said = (value) => (typeof value === "string" ? value : JSON.stringify(value, null, 2));
    return Object.entries(JSON.parse(text)).map(([name, value]) => `${name}: ${said(value)}`).join("\n");
  } catch {
    return text;
  }
}

function Call({ call }) {
  return html`<details class="call ${call.failed ? "failed" : ""}">
    <summary><span class="call-name mono">${oneLine(call.name, 60)}</span><span class="call-brief mono">
      ${brief(call.arguments)}</span>${call.failed && html`<${State} state="failed" word="failed" />`}</summary>
    ${call.arguments && html`<${Words} text=${pretty(call.arguments)} mono class="call-arguments" />`}
    ${call.result !== undefined && html`<${Words} text=${call.result} mono class="call-result" />`}
  </details>`;
}

const isCut = (turn) => !turn.whole && (turn.cut || (turn.calls ?? []).some((call) => call.cut));

function Turn({ turn, whole }) {
  const { used = {} } = turn;
  const kind = KINDS[turn.kind] ?? turn.kind;
  return html`<article class="turn k-${turn.kind}" aria-label=${`Turn ${turn.number}`}>
    <header class="turn-head"><span class="turn-number num">${turn.number}</span>${kind && html`<span class="turn-kind">
      ${kind}</span>`}
      <span class="line-more"><${At} at=${turn.at} />${turn.model && html`<span class="turn-model">
        ${oneLine(turn.model.split(":").pop(), 30)}</span>`}
        ${used.tokens > 0 && html`<span class="num">${compact(used.tokens)} tok</span>`}<${Cost} dollars=${used.dollars}
          tokens=${0} />${used.seconds >= 1 && html`<span class="num">
          ${span(used.seconds * 1000)}</span>`}</span></header>
    ${turn.kind === "reply" && turn.said && turn.text !== undefined && html`<details class="fold told">
      <summary>It was told</summary><${Words} text=${turn.said} /></details>`}
    ${turn.kind === "reply" && turn.text === undefined && turn.said && html`<${Words} text=${turn.said}
      class="turn-text" />`}
    ${turn.text && (turn.kind === "request" ? html`<details class="fold told"><summary>
      ${oneLine(turn.text, 110)}</summary><${Words} text=${turn.text} /></details>` : html`<${Words} text=${turn.text}
      class="turn-text" mono=${turn.kind === "trouble" || turn.kind === "tool"} />`)}
    ${turn.summary && html`<${Words} text=${turn.summary} class="turn-text" />`}
    ${turn.run && html`<p class="empty">${plain(turn.run)}</p>`}
    ${(turn.calls ?? []).map((call, at) => html`<${Call} key=${at} call=${call} />`)}
    ${isCut(turn) && html`<button type="button" class="quiet show-all"
      onClick=${() => whole(turn)}>Show the whole turn</button>`}
  </article>`;
}

export function Transcript({ id, attempts }) {
  const named = attempts.find((attempt) => attempt.epoch === store.route.attempt) ??
    attempts.findLast((attempt) => attempt.spent?.turns) ?? attempts.at(-1);
  if (!named) return html`<${Empty} says="Nobody has worked on this task yet, so it has no transcript." />`;
  return html`${attempts.length > 1 && html`<${Choices} label="Attempt" value=${named.epoch}
    options=${attempts.map((attempt) => [attempt.epoch, `${attempt.number} ${oneLine(attempt.teammate, 16)}`])}
      onChoose=${(epoch) => go({ attempt: epoch }, { replace: true })} />`}
    <${Turns} key=${named.epoch} id=${id} epoch=${named.epoch} />`;
}

function Turns({ id, epoch }) {
  const { turns: all, more, error, load, whole } = useTurns(id, epoch);
  // In the past, a transcript ends where it ended then.
  const turns = frame().live ? all : all.filter((turn) => turn.at <= frame().now);
  if (error && !turns.length) return html`<${Empty} says=${error} />`;
  if (!turns.length) return html`<${Empty} says=${more ? "Reading the transcript…" : "This attempt has no turns."} />`;
  return html`<${Rows} items=${turns} keyOf=${(turn) => turn.number} measured size=${() => 96} label="Turns"
    class="turns" tabindex="0"
    onEnd=${() => more && load()} row=${(turn) => html`<${Turn} turn=${turn} whole=${whole} />`} />`;
}

const SIDE_BY_SIDE = 900; // Pixels.
const LINE_MOST = 2000;

/** Lines as pairs of old and new: a run of removed lines stands beside the run of added lines after it. */
function paired(lines) {
  const rows = [];
  let removed = [];
  let added = [];
  const flush = () => {
    for (let at = 0; at < Math.max(removed.length, added.length); at += 1) {
      rows.push({ old: removed[at] ?? null, new: added[at] ?? null });
    }
    removed = [];
    added = [];
  };
  for (const line of lines) {
    if (line.kind === "-") {
      if (added.length) flush();
      removed.push(line);
    } else if (line.kind === "+") added.push(line);
    else {
      flush();
      rows.push(line.kind === "@" ? { hunk: line } : { old: line, new: line });
    }
  }
  flush();
  return rows;
}

/** All rows of the diff in one list: files, hunks and lines, and the form where somebody comments. */
function rowsOf(files, closed, wide, remark) {
  const rows = [];
  for (const file of files) {
    rows.push({ id: file.path, file });
    if (closed.has(file.path)) continue;
    const lines = wide ? paired(file.lines) : file.lines.map((line) => (line.kind === "@" ? { hunk: line } : { line }));
    lines.forEach((row, at) => {
      const id = `${file.path}:${at}`;
      rows.push({ id, path: file.path, ...row });
      if (remark?.row === id) rows.push({ id: `${id}:form`, form: remark });
    });
    if (file.cut) rows.push({ id: `${file.path}:cut`, says: "The rest of this file is not shown." });
  }
  return rows;
}

function Code({ line, comment, old = false }) {
  if (!line) return html`<span class="code none" />`;
  const number = old || line.kind === "-" ? line.old : line.new;
  const sign = line.kind === "+" || line.kind === "-" ? line.kind : " ";
  const gutter = comment
    ? html`<button type="button" class="gutter num" aria-label=${`Comment on line ${number}`}
      title="Comment on this line" onClick=${() => comment(line)}>${number}</button>`
    : html`<span class="gutter num">${number}</span>`;
  return html`<span class="code ${{ "+": "added", "-": "removed" }[line.kind] ?? ""}">${gutter}<span class="sign">
    ${sign}</span><span class="code-text">${plain(String(line.text).slice(0, LINE_MOST))}</span></span>`;
}

function FileHead({ file, closed, toggle }) {
  const open = !closed.has(file.path);
  return html`<button type="button" class="file-head" aria-expanded=${String(open)} onClick=${() => toggle(file.path)}>
    <${Icon} name=${open ? "down" : "right"} size=${12} /><span class="mono file-path">${plain(file.path)}</span>
    <span class="num added-count">+${count(file.added)}</span>
      <span class="num removed-count">−${count(file.removed)}</span></button>`;
}

function RemarkForm({ remark, task, close }) {
  const box = useRef(null);
  const [text, setText] = useState("");
  useLayoutEffect(() => box.current.focus(), []);
  const send = async (as) => {
    if (!text.trim()) return box.current.focus();
    const { path, line } = remark;
    const quote = String(line.text).slice(0, 1000);
    const at = line.new ?? line.old;
    const accepted = await steer("remark", { task: task.id, path, line: at, quote, text: text.trim(), as });
    return accepted && close();
  };
  return html`<form class="remark" onSubmit=${(event) => event.preventDefault()}>
    <textarea ref=${box} rows="3"
      aria-label=${plain(`Comment on line ${remark.line.new ?? remark.line.old} of ${remark.path}`)}
      placeholder="What about this line?" value=${text}
      onInput=${(event) => setText(event.target.value)} onKeyDown=${(event) => event.key === "Escape" && close()} />
    <div class="remark-foot">
      <${Button} kind="primary" onClick=${() => send("message")}
        disabled=${!task.teammate}>Send to ${oneLine(task.teammate ?? "nobody", 24)}<//>
      <${Button} onClick=${() => send("task")}>Make it a follow-up<//>
      <${Button} onClick=${close}>Back<//>
    </div>
  </form>`;
}

function Row({ row, wide, closed, toggle, startRemark, task, closeRemark }) {
  if (row.file) return html`<${FileHead} file=${row.file} closed=${closed} toggle=${toggle} />`;
  if (row.hunk) return html`<div class="hunk mono">${oneLine(row.hunk.text, 200)}</div>`;
  if (row.says) return html`<p class="empty">${row.says}</p>`;
  if (row.form) return html`<${RemarkForm} remark=${row.form} task=${task} close=${closeRemark} />`;
  const comment = canSteer() ? (line) => startRemark({ row: row.id, path: row.path, line }) : null;
  if (!wide) return html`<div class="diff-line mono"><${Code} line=${row.line} comment=${comment} /></div>`;
  // A line that stayed is commented on where it is now.
  return html`<div class="diff-line pair mono"><${Code} line=${row.old} old
    comment=${row.old?.kind === "-" ? comment : null} /><${Code} line=${row.new} comment=${comment} /></div>`;
}

function useWide(place) {
  const [wide, setWide] = useState(false);
  useEffect(() => {
    const watcher = new ResizeObserver(([entry]) => setWide(entry.contentRect.width >= SIDE_BY_SIDE));
    watcher.observe(place.current);
    return () => watcher.disconnect();
  }, []);
  return wide;
}

/** What the lines are of: how many files, and the commit. */
function DiffSays({ data }) {
  const more = data.more_files ? ` and ${count(data.more_files)} more` : "";
  const how = data.merged === false ? "not merged yet:" : `merged${data.into ? ` into ${plain(data.into)}` : ""} as`;
  const hint = canSteer() ? ". A click on a line's number comments on it." : "";
  return html`<p class="diff-says">${counted(data.files.length, "file")}${more}${data.commit &&
    html`, ${how} <code>${shortCommit(data.commit)}</code>`}${hint}</p>`;
}

export function Diff({ id, task }) {
  const early = !frame().live && !task.merged_as; // What lay on its branch at that time is not known any more.
  const { data, error } = useLoaded(early ? null : `tasks/${id}/diff`, {}, task.merged_as);
  const [closed, setClosed] = useState(new Set());
  const [remark, setRemark] = useState(null);
  const place = useRef(null);
  const wide = useWide(place);
  const toggle = (path) => setClosed((before) => {
    const next = new Set(before);
    if (!next.delete(path)) next.add(path);
    return next;
  });
  const files = data?.files ?? [];
  const rows = useMemo(() => rowsOf(files, closed, wide, remark), [files, closed, wide, remark]);
  const says = early ? "At this time its work was not merged yet." : error || data?.says;
  const shared = { wide, closed, toggle, startRemark: setRemark, task, closeRemark: () => setRemark(null) };
  return html`<div class="diff" ref=${place}>
    ${!data && !says && html`<${Empty} says="Reading the diff…" />`}
    ${says && html`<${Empty} says=${plain(says)} />`}
    ${files.length > 0 && html`<${DiffSays} data=${data} />
    <${Rows} items=${rows} measured size=${(row) => (row.file ? 34 : 20)} label="Diff" class="diff-rows" tabindex="0"
      row=${(row) => html`<${Row} row=${row} ...${shared} />`} />`}
  </div>`;
}
