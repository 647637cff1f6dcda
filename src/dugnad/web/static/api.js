/** The only place that speaks with the server. All addresses are relative, so that the page can be mounted anywhere. */

export class Refusal extends Error {
  constructor(status, kind, message) {
    super(message);
    this.status = status;
    this.kind = kind;
  }
}

async function answer(response) {
  let body = null;
  try {
    body = await response.json();
  } catch (error) {
    if (error.name === "AbortError") throw error;
    // A proxy in between may answer with a page of its own; the status below says enough.
  }
  if (response.ok && body !== null) return body;
  const says = body?.error?.message ?? `The server answered with ${response.status}.`;
  throw new Refusal(response.status, body?.error?.kind ?? "unknown", says);
}

async function ask(path, options) {
  try {
    return await answer(await fetch(path, { credentials: "same-origin", cache: "no-store", ...options }));
  } catch (error) {
    if (error instanceof Refusal || error.name === "AbortError") throw error;
    throw new Refusal(0, "unreachable", "The server does not answer. The page tries again by itself.");
  }
}

function withQuery(path, query = {}) {
  const given = Object.entries(query).filter(([, value]) => value !== undefined && value !== null && value !== "");
  return given.length ? `${path}?${new URLSearchParams(given)}` : path;
}

export function get(path, query, signal) {
  return ask(withQuery(path, query), { signal });
}

export function post(path, body) {
  return ask(path, {
    method: "POST", body: JSON.stringify(body), headers: { "Content-Type": "application/json", "X-Dugnad": "1" },
  });
}

export function boardPath(board, rest) {
  return `api/boards/${encodeURIComponent(board)}/${rest}`;
}

/** A key for one write: sent again, it takes effect once. */
export function freshKey() {
  const bytes = crypto.getRandomValues(new Uint8Array(12));
  return `page-${[...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("")}`;
}

const PAUSES = [500, 1000, 2000, 4000, 8000];

/** Follow the board. `from()` says after which event. `on` has news, facts, reset, up, down and gone. Returns how to
stop. */
export function follow(board, from, on) {
  let source = null;
  let timer = 0;
  let failures = 0;
  let stopped = false;

  const again = async () => {
    on.down();
    const pause = PAUSES[Math.min(failures, PAUSES.length - 1)];
    failures += 1;
    timer = setTimeout(async () => {
      // An event source does not tell why it was refused, so the session is asked.
      try {
        await get("api/session");
      } catch (error) {
        if (stopped) return;
        if (error.status === 401) return on.gone();
        return again();
      }
      if (!stopped) open();
    }, pause);
  };

  const open = () => {
    source = new EventSource(withQuery(boardPath(board, "stream"), { after: from() }));
    source.onopen = () => {
      failures = 0;
      on.up();
    };
    source.onmessage = (message) => on.news(JSON.parse(message.data));
    source.addEventListener("reset", () => on.reset());
    for (const kind of ["hosts", "reading", "trouble"]) {
      source.addEventListener(kind, (message) => on.facts(kind, JSON.parse(message.data)));
    }
    source.addEventListener("end", () => {
      source.close();
      on.gone();
    });
    source.onerror = () => {
      // The browser's own way to try again is slow and gives up on some answers; ours does neither.
      source.close();
      if (!stopped) again();
    };
  };

  open();
  return () => {
    stopped = true;
    clearTimeout(timer);
    source?.close();
  };
}
