/** Text, numbers and times as people read them. Nothing here touches the page. */

// Every text of a person or an agent passes `plain` before it is shown. Characters that cannot be seen, or that change
// the order in which others are read, become visible marks. A tab and a line break stay.
const UNSEEN = /[\p{Cc}\p{Cf}\p{Cs}\p{Co}\p{Zl}\p{Zp}\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0]/gu;
const KEPT = new Set(["\n", "\t"]);
const NAMES = { 0: "NUL", 7: "BEL", 8: "BS", 11: "VT", 12: "FF", 13: "CR", 14: "SO", 15: "SI", 27: "ESC", 127: "DEL" };

function mark(character) {
  if (KEPT.has(character)) return character;
  const code = character.codePointAt(0);
  return `\u2039${NAMES[code] ?? `U+${code.toString(16).toUpperCase().padStart(4, "0")}`}\u203a`;
}

/** The text with every invisible character shown as a mark. */
export function plain(text) {
  const whole = String(text ?? "").replaceAll("\r\n", "\n");
  return whole.replace(UNSEEN, mark);
}

/** The text on one line, of at most `most` characters. */
export function oneLine(text, most = 200) {
  // The cut comes first: a text may have a million characters, and only the beginning is shown.
  const start = String(text ?? "").slice(0, most * 2 + 16).replace(/\s+/gu, " ").trim();
  const said = plain(start);
  return said.length > most ? `${said.slice(0, most - 1).trimEnd()}…` : said;
}

const whole = new Intl.NumberFormat("en-US");

export function count(number) {
  return whole.format(Math.round(number ?? 0));
}

const MANY = { reply: "replies", query: "queries", "follow-up": "follow-ups" };

/** "1 task", "2 tasks". */
export function counted(number, noun) {
  return `${count(number)} ${number === 1 ? noun : (MANY[noun] ?? `${noun}s`)}`;
}

/** A large number in four characters: 940, 12.3k, 1.2M. */
export function compact(number) {
  const size = Math.abs(number ?? 0);
  if (size < 1000) return String(Math.round(number ?? 0));
  const [scale, unit] = size < 999_950 ? [1e3, "k"] : size < 999_950_000 ? [1e6, "M"] : [1e9, "G"];
  const scaled = number / scale;
  return `${Math.abs(scaled) < 99.95 ? scaled.toFixed(1) : Math.round(scaled)}${unit}`;
}

/** Dollars and cents; four decimals for less than a cent. */
export function money(dollars) {
  const sum = dollars ?? 0;
  if (sum > 0 && sum < 0.01) return `$${sum.toFixed(4)}`;
  return `$${sum.toLocaleString("en-US", { minimumFractionDigits: 2, maximumFractionDigits: 2 })}`;
}

const UNITS = [[86_400, "d"], [3_600, "h"], [60, "m"], [1, "s"]];

/** A duration: 40s, 12m, 3h 5m, 2d 4h. Below an hour one unit is enough. */
export function span(milliseconds) {
  const seconds = Math.max(0, Math.floor((milliseconds ?? 0) / 1000));
  const at = UNITS.findIndex(([size]) => seconds >= size);
  if (at < 0) return "0s";
  const [size, unit] = UNITS[at];
  const first = `${Math.floor(seconds / size)}${unit}`;
  if (at > 1) return first;
  const [less, small] = UNITS[at + 1];
  const rest = Math.floor((seconds % size) / less);
  return rest ? `${first} ${rest}${small}` : first;
}

/** A countdown: 0:42, 12:05, 1:02:05. */
export function countdown(milliseconds) {
  const seconds = Math.max(0, Math.ceil(milliseconds / 1000));
  const hours = Math.floor(seconds / 3600);
  const minutes = Math.floor(seconds / 60) % 60;
  return hours ? `${hours}:${two(minutes)}:${two(seconds % 60)}` : `${minutes}:${two(seconds % 60)}`;
}

const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

function two(number) {
  return String(number).padStart(2, "0");
}

/** A moment: 14:32:07 if it is of the same day as `now`, else 17 Nov 14:32. */
export function clock(at, now = Date.now()) {
  if (!at) return "";
  const moment = new Date(at);
  const time = `${two(moment.getHours())}:${two(moment.getMinutes())}`;
  if (new Date(now).toDateString() === moment.toDateString()) return `${time}:${two(moment.getSeconds())}`;
  return `${moment.getDate()} ${MONTHS[moment.getMonth()]} ${time}`;
}

/** A moment in full, for a tooltip. */
export function moment(at) {
  const when = new Date(at);
  const day = `${when.getFullYear()}-${two(when.getMonth() + 1)}-${two(when.getDate())}`;
  return `${day} ${two(when.getHours())}:${two(when.getMinutes())}:${two(when.getSeconds())}`;
}

/** 0.42 as "42 %". */
export function percent(share) {
  return `${Math.round((share ?? 0) * 100)} %`;
}

/** "a", "a and b", "a, b and c". */
export function listed(words) {
  if (words.length < 2) return words.join("");
  return `${words.slice(0, -1).join(", ")} and ${words.at(-1)}`;
}

/** A word with a capital. */
export function capital(text) {
  return text ? text[0].toUpperCase() + text.slice(1) : "";
}

/** A commit as people name it. */
export function shortCommit(commit) {
  return plain(String(commit ?? "").slice(0, 8));
}
