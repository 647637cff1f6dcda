/** Where the nodes of the graph stand: layers from left to right, one band for each goal. Nothing here touches the page.

Layers: a node stands right of everything it needs. Order within a layer: the mean place of its neighbours, a few sweeps
in both directions. Heights: as near to the neighbours as the order allows. */

export const SIZE = { width: 196, height: 38, across: 64, down: 12, band: 44 };
const SWEEPS = 6;
const BENDS_MOST = 4000; // Long edges get a bend in each layer, so that they pass between nodes.

function neighbours(nodes, edges) {
  const links = new Map(nodes.map((node) => [node.id, { into: [], out: [] }]));
  for (const edge of edges) {
    links.get(edge.from).out.push(edge);
    links.get(edge.to).into.push(edge);
  }
  return links;
}

/** The layer of each node. An edge that closes a circle, which folding can make, is left out. */
function layersOf(nodes, links) {
  const layer = new Map();
  const open = new Set();
  const place = (start) => {
    const path = [[start, 0]];
    open.add(start);
    while (path.length) {
      const top = path.at(-1);
      const edge = links.get(top[0]).into[top[1]++];
      if (edge) {
        if (!layer.has(edge.from) && !open.has(edge.from)) {
          open.add(edge.from);
          path.push([edge.from, 0]);
        }
        continue;
      }
      const before = links.get(top[0]).into.map((each) => layer.get(each.from) ?? -1);
      layer.set(top[0], Math.max(-1, ...before) + 1);
      open.delete(top[0]);
      path.pop();
    }
  };
  for (const node of nodes) if (!layer.has(node.id)) place(node.id);
  pullRight(nodes, links, layer);
  return layer;
}

/** A node that needs nothing stands just before the first node that needs it. */
function pullRight(nodes, links, layer) {
  for (const node of nodes) {
    const { into, out } = links.get(node.id);
    if (into.length || !out.length) continue;
    const first = Math.min(...out.map((edge) => layer.get(edge.to)));
    if (first - 1 > layer.get(node.id)) layer.set(node.id, first - 1);
  }
}

/** The places of one band: columns of nodes and bends, and the points of each edge. */
function columnsOf(nodes, edges, layer) {
  const columns = [];
  const put = (at, item) => (columns[at] ??= []).push(item);
  const items = new Map();
  for (const node of nodes) {
    const item = { id: node.id, tall: SIZE.height, into: [], out: [], y: 0 };
    items.set(node.id, item);
    put(layer.get(node.id), item);
  }
  let bends = 0;
  const lines = [];
  for (const edge of edges) {
    const line = [items.get(edge.from)];
    const from = layer.get(edge.from);
    const to = layer.get(edge.to);
    for (let at = from + 1; at < to && bends < BENDS_MOST; at += 1) {
      const bend = { id: null, tall: 6, into: [], out: [], y: 0 };
      bends += 1;
      put(at, bend);
      line.push(bend);
    }
    line.push(items.get(edge.to));
    if (to > from) for (let i = 1; i < line.length; i += 1) {
      line[i - 1].out.push(line[i]);
      line[i].into.push(line[i - 1]);
    }
    lines.push({ edge, line });
  }
  return { columns: Array.from(columns, (column) => column ?? []), items, lines };
}

const mean = (items, of) => items.reduce((sum, item) => sum + of(item), 0) / items.length;

function order(columns) {
  const number = (column) => column.forEach((item, at) => { item.at = at; });
  columns.forEach(number);
  for (let sweep = 0; sweep < SWEEPS; sweep += 1) {
    const rightwards = sweep % 2 === 0;
    for (const column of rightwards ? columns : [...columns].reverse()) {
      for (const item of column) {
        const near = rightwards ? item.into : item.out;
        item.wish = near.length ? mean(near, (each) => each.at) : item.at;
      }
      column.sort((a, b) => a.wish - b.wish || a.at - b.at);
      number(column);
    }
  }
}

/** Places for a column in its order, each as near to its wish as the others allow (pool adjacent violators). */
function settle(column) {
  const pools = [];
  let above = 0;
  for (const item of column) {
    const offset = above + item.tall / 2;
    above += item.tall + SIZE.down;
    pools.push({ items: [[item, offset]], sum: item.wish - offset, weight: 1 });
    while (pools.length > 1 && pools.at(-2).sum / pools.at(-2).weight > pools.at(-1).sum / pools.at(-1).weight) {
      const last = pools.pop();
      const pool = pools.at(-1);
      pool.items.push(...last.items);
      pool.sum += last.sum;
      pool.weight += last.weight;
    }
  }
  for (const pool of pools) for (const [item, offset] of pool.items) item.y = pool.sum / pool.weight + offset;
}

function heights(columns) {
  for (const column of columns) {
    let y = 0;
    for (const item of column) {
      item.y = y + item.tall / 2;
      y += item.tall + SIZE.down;
    }
  }
  for (let sweep = 0; sweep < SWEEPS; sweep += 1) {
    for (const column of sweep % 2 ? [...columns].reverse() : columns) {
      for (const item of column) {
        const near = [...item.into, ...item.out];
        item.wish = near.length ? mean(near, (each) => each.y) : item.y;
      }
      settle(column);
    }
  }
}

function bandOf(nodes, edges, layer) {
  const laid = columnsOf(nodes, edges, layer);
  order(laid.columns);
  heights(laid.columns);
  const all = laid.columns.flat();
  const top = Math.min(...all.map((item) => item.y - item.tall / 2));
  for (const item of all) item.y -= top;
  laid.columns.forEach((column, at) => column.forEach((item) => { item.x = at * (SIZE.width + SIZE.across); }));
  const height = Math.max(...all.map((item) => item.y + item.tall / 2));
  return { ...laid, height, width: laid.columns.length * (SIZE.width + SIZE.across) - SIZE.across };
}

/** A curve through the bends of an edge, from the right side of one node to the left side of the other. */
function curve(points) {
  const [first, ...rest] = points;
  let path = `M${first.x} ${first.y}`;
  let from = first;
  for (const to of rest) {
  // An edge that leads back bends out on both sides.
    const half = to.x > from.x ? Math.max(16, (to.x - from.x) / 2) : 64;
    path += `C${from.x + half} ${from.y} ${to.x - half} ${to.y} ${to.x} ${to.y}`;
    from = to;
  }
  return path;
}

function pointsOf(line, down) {
  const start = { x: line[0].x + SIZE.width, y: line[0].y + down };
  const end = { x: line.at(-1).x, y: line.at(-1).y + down };
  const between = line.slice(1, -1).flatMap((bend) =>
    [{ x: bend.x, y: bend.y + down }, { x: bend.x + SIZE.width, y: bend.y + down }]);
  return [start, ...between, end].map(({ x, y }) => ({ x: Math.round(x), y: Math.round(y) }));
}

/** {places: Map id -> {x, y}, paths: [{edge, path, middle}], bands: [{root, y, height}], width, height}. */
export function layout(nodes, edges) {
  const byRoot = new Map();
  for (const node of nodes) {
    if (!byRoot.has(node.root)) byRoot.set(node.root, []);
    byRoot.get(node.root).push(node);
  }
  const rootOf = new Map(nodes.map((node) => [node.id, node.root]));
  // The layers are those of the whole graph, so that an edge from goal to goal leads to the right as well.
  const layer = layersOf(nodes, neighbours(nodes, edges));
  const result = { places: new Map(), paths: [], bands: [], width: 0, height: 0 };
  for (const [root, members] of [...byRoot].sort(([a], [b]) => a - b)) {
    const own = edges.filter((edge) => rootOf.get(edge.from) === root && rootOf.get(edge.to) === root);
    addBand(result, root, bandOf(members, own, layer));
  }
  const across = edges.filter((edge) => rootOf.get(edge.from) !== rootOf.get(edge.to));
  for (const edge of across) addAcross(result, edge);
  return result;
}

function addBand(result, root, band) {
  const down = result.height + SIZE.band;
  for (const [id, item] of band.items) {
    result.places.set(id, { x: Math.round(item.x), y: Math.round(item.y + down - SIZE.height / 2) });
  }
  for (const { edge, line } of band.lines) {
    const points = pointsOf(line, down);
    result.paths.push({ edge, path: curve(points), middle: middle(points) });
  }
  result.bands.push({ root, y: down, height: band.height });
  result.height = down + band.height;
  result.width = Math.max(result.width, band.width);
}

function addAcross(result, edge) {
  const [from, to] = [result.places.get(edge.from), result.places.get(edge.to)];
  const points = [
    { x: from.x + SIZE.width, y: from.y + SIZE.height / 2 }, { x: to.x, y: to.y + SIZE.height / 2 },
  ];
  result.paths.push({ edge, path: curve(points), middle: middle(points) });
}

/** Where the word of an edge stands: in the first gap after its start. */
function middle([from, to]) {
  return { x: (from.x + to.x) / 2, y: (from.y + to.y) / 2 };
}

const GAP_SHARE = 0.025; // A squeezed gap takes this share of the width,
const GAP_LEAST = 3 * 60_000; // and only a gap of at least this length is squeezed,
const GAP_TIMES = 0.04; // or of this share of the working time, if that is longer.

/** The stretches in which somebody works, in order, joined where they touch. */
function busyStretches(bars, end) {
  const sorted = bars.map((bar) => [bar.start, bar.end ?? end]).sort((a, b) => a[0] - b[0]);
  const joined = [];
  for (const [from, to] of sorted) {
    const last = joined.at(-1);
    if (last && from <= last[1]) last[1] = Math.max(last[1], to);
    else joined.push([from, Math.max(to, from + 1)]);
  }
  return joined;
}

function pieces(bars, from, to, squeezed) {
  if (!squeezed) return [{ from, to, idle: false }];
  const busy = busyStretches(bars, to).map(([a, b]) => [Math.max(a, from), Math.min(b, to)]).filter(([a, b]) => b > a);
  const work = busy.reduce((sum, [a, b]) => sum + b - a, 0);
  const least = Math.max(GAP_LEAST, work * GAP_TIMES);
  const found = [];
  let at = from;
  const reach = (moment, idle) => {
    if (moment <= at) return;
    const last = found.at(-1);
    if (last && last.idle === idle) last.to = moment;
    else found.push({ from: at, to: moment, idle });
    at = moment;
  };
  for (const [a, b] of busy) {
    reach(a, a - at >= least);
    reach(b, false);
  }
  reach(to, to - at >= least);
  return found.length ? found : [{ from, to, idle: false }];
}

/** An axis from 0 to 1: `place(moment)`, `moment(place)`, and its `pieces` with their places. */
export function axis(bars, from, to, squeezed) {
  const found = pieces(bars, from, Math.max(to, from + 1000), squeezed);
  const idle = found.filter((piece) => piece.idle).length;
  const gap = Math.min(GAP_SHARE, idle ? 0.3 / idle : 0);
  const work = found.reduce((sum, piece) => sum + (piece.idle ? 0 : piece.to - piece.from), 0) || 1;
  let left = 0;
  for (const piece of found) {
    const share = piece.idle ? gap : ((1 - gap * idle) * (piece.to - piece.from)) / work;
    Object.assign(piece, { left, right: left + share });
    left += share;
  }
  const between = (value, a, b, x, y) => x + ((y - x) * (value - a)) / (b - a || 1);
  return {
    pieces: found,
    from, to,
    place(moment) {
      const piece = found.find((each) => moment <= each.to) ?? found.at(-1);
      return between(moment, piece.from, piece.to, piece.left, piece.right);
    },
    moment(place) {
      const piece = found.find((each) => place <= each.right) ?? found.at(-1);
      return between(place, piece.left, piece.right, piece.from, piece.to);
    },
  };
}

const STEPS = [
  1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400, 172_800, 604_800,
];

/** Round moments for the labels of the axis, at least `apart` (a share of the width) from one another. */
export function labels(scale, apart) {
  const found = [];
  for (const piece of scale.pieces.filter((each) => !each.idle)) {
    const wide = piece.right - piece.left;
    const wanted = ((piece.to - piece.from) / wide) * apart;
    const step = 1000 * (STEPS.find((each) => each * 1000 >= wanted) ?? STEPS.at(-1));
    const shift = new Date(piece.from).getTimezoneOffset() * 60_000; // Round in the local day, not in UTC.
    let at = Math.ceil((piece.from - shift) / step) * step + shift;
    for (; at < piece.to; at += step) {
      const place = scale.place(at);
      if (!found.length || place - found.at(-1).place >= apart * 0.9) found.push({ at, place, step });
    }
  }
  return found;
}
