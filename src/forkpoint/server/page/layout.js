// Where a graph's operators are drawn: columns from left to right (or rows, downwards), stage after stage. Pure.

const GAP = { along: 76, across: 26 }, TALL_GAP = { along: 56, across: 14 };
const MARGIN = 28, TALL_MARGIN = 10;
const SWEEPS = 4;

/** `nodes`: {id, stage, inputs: [{id}]}, in topological order. `size`: of a node. `isTall`: downwards. Edges have the points that
 * they pass. */
export function layout(nodes, size, isTall) {
  const columns = inColumns(nodes);
  const { layers, edges } = withBends(nodes, columns);
  order(layers, edges);
  const along = isTall ? size.height : size.width, across = isTall ? size.width : size.height;
  const gap = isTall ? TALL_GAP : GAP, margin = { along: MARGIN, across: isTall ? TALL_MARGIN : MARGIN };
  const widest = Math.max(1, ...layers.map((layer) => extent(layer, across, gap)));
  const places = new Map();
  layers.forEach((layer, column) => {
    let at = margin.across + (widest - extent(layer, across, gap)) / 2;
    for (const item of layer) {
      const thick = item.bend ? 8 : across;
      places.set(item.id, { along: margin.along + column * (along + gap.along), across: at, thick });
      at += thick + gap.across;
    }
  });
  const turn = (a, b) => (isTall ? { x: b, y: a } : { x: a, y: b });
  const total = turn(2 * margin.along + layers.length * along + (layers.length - 1) * gap.along, 2 * margin.across + widest);
  return {
    size, width: total.x, height: total.y,
    nodes: nodes.map((node) => ({ id: node.id, ...turn(places.get(node.id).along, places.get(node.id).across) })),
    edges: edges.map((edge) => ({ ...edge, points: points(edge, places, along).map(([a, b]) => turn(a, b)) })),
    stages: bands(nodes, columns, along, turn, 2 * margin.across + widest, gap),
  };
}

/** A column for each operator: after its inputs, and after all of the stages before its own. */
function inColumns(nodes) {
  const depth = new Map(), deepest = new Map(), stages = new Map(nodes.map((node) => [node.id, node.stage]));
  for (const node of nodes) {
    const before = node.inputs.filter((each) => depth.has(each.id) && stages.get(each.id) === node.stage).map((each) => depth.get(each.id) + 1);
    depth.set(node.id, Math.max(0, ...before));
    deepest.set(node.stage, Math.max(deepest.get(node.stage) ?? 0, depth.get(node.id)));
  }
  const start = new Map();
  let next = 0;
  for (const stage of [...deepest.keys()].sort((a, b) => a - b)) {
    start.set(stage, next);
    next += deepest.get(stage) + 1;
  }
  return new Map(nodes.map((node) => [node.id, start.get(node.stage) + depth.get(node.id)]));
}

/** The operators by column; an edge that passes a column has a bend there. */
function withBends(nodes, columns) {
  const layers = Array.from({ length: Math.max(0, ...columns.values()) + 1 }, () => []);
  const edges = [];
  for (const node of nodes) {
    layers[columns.get(node.id)].push({ id: node.id });
    node.inputs.forEach((input, number) => {
      if (!columns.has(input.id)) return;
      const edge = { id: `${input.id}>${node.id}#${number}`, from: input.id, to: node.id, input, bends: [] };
      for (let column = columns.get(input.id) + 1; column < columns.get(node.id); column++) {
        edge.bends.push(`${edge.id}@${column}`);
        layers[column].push({ id: edge.bends.at(-1), bend: true });
      }
      edges.push(edge);
    });
  }
  return { layers, edges };
}

/** Order each column by the middle of its neighbours, there and back, so that few edges cross. */
function order(layers, edges) {
  const neighbours = new Map();
  const link = (a, b) => neighbours.set(a, [...(neighbours.get(a) ?? []), b]);
  for (const edge of edges) {
    const way = [edge.from, ...edge.bends, edge.to];
    for (let i = 1; i < way.length; i++) [link(way[i - 1], way[i]), link(way[i], way[i - 1])];
  }
  for (let sweep = 0; sweep < SWEEPS; sweep++) {
    const there = sweep % 2 === 0;
    const sequence = there ? layers.slice(1) : layers.slice(0, -1).reverse();
    for (const layer of sequence) {
      const beside = layers[layers.indexOf(layer) + (there ? -1 : 1)];
      const rank = new Map(beside.map((item, i) => [item.id, i]));
      const middle = new Map(layer.map((item, i) => {
        const known = (neighbours.get(item.id) ?? []).filter((id) => rank.has(id)).map((id) => rank.get(id));
        return [item, known.length ? known.reduce((a, b) => a + b) / known.length : i];
      }));
      layer.sort((a, b) => middle.get(a) - middle.get(b));
    }
  }
}

const extent = (layer, across, gap) => layer.reduce((sum, item) => sum + (item.bend ? 8 : across), 0) + Math.max(0, layer.length - 1) * gap.across;

function points(edge, places, along) {
  const middle = (place) => place.across + place.thick / 2;
  const [from, to] = [places.get(edge.from), places.get(edge.to)];
  const passed = edge.bends.map((id) => places.get(id)).flatMap((place) => [[place.along, middle(place)], [place.along + along, middle(place)]]);
  return [[from.along + along, middle(from)], ...passed, [to.along, middle(to)]];
}

/** The extent of each stage. */
function bands(nodes, columns, along, turn, across, gap) {
  const stages = [...new Set(nodes.map((node) => node.stage))].sort((a, b) => a - b);
  return stages.map((stage) => {
    const own = nodes.filter((node) => node.stage === stage).map((node) => columns.get(node.id));
    const from = MARGIN + Math.min(...own) * (along + gap.along) - 20, to = MARGIN + Math.max(...own) * (along + gap.along) + along + 14;
    const start = turn(from, 2), size = turn(to - from, across - 4);
    return { stage, x: start.x, y: start.y, width: size.x, height: size.y };
  });
}

/** The path of an edge: straight along columns that it passes, curved between them. */
export function pathOf(points, isTall) {
  const [first, ...rest] = points;
  let d = `M${first.x} ${first.y}`;
  let last = first;
  for (const point of rest) {
    const half = isTall ? (point.y - last.y) / 2 : (point.x - last.x) / 2;
    d += isTall
      ? ` C${last.x} ${last.y + half} ${point.x} ${point.y - half} ${point.x} ${point.y}`
      : ` C${last.x + half} ${last.y} ${point.x - half} ${point.y} ${point.x} ${point.y}`;
    last = point;
  }
  return d;
}
