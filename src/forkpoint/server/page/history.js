// The history of jobs as rows of a tree: a branch is indented only where there are several, so long lines stay straight. Pure.

const id = (kind, name, job) => (kind === "savepoint" ? `savepoint:${name}` : `run:${job}/${name}`);

/** Rows from the oldest on, each after its parent: {id, node, level, indent, parent, children}. `nodes`: as the server shows them. */
export function rowsOf(nodes) {
  const known = new Map(nodes.map((node) => [id(node.kind, node.id, node.job), { id: id(node.kind, node.id, node.job), node, children: [], parent: null }]));
  const roots = [];
  for (const row of known.values()) {
    const { parent } = row.node;
    const found = parent === null ? undefined : known.get(id(parent.kind, parent.id, parent.job));
    if (found === undefined || found === row) roots.push(row);
    else {
      row.parent = found;
      found.children.push(row);
    }
  }
  const rows = [];
  const byAge = (a, b) => (a.node.created_ms ?? 0) - (b.node.created_ms ?? 0);
  const open = roots.sort(byAge).reverse().map((row) => [row, 1, 0]);
  while (open.length > 0) {
    const [row, level, indent] = open.pop();
    rows.push(Object.assign(row, { level, indent }));
    const children = row.children.sort(byAge);
    // The longest line goes on straight below; others branch off before it, as do savepoints that nothing has started from.
    const going = children.filter((each) => each.node.kind === "run" || each.children.length > 0);
    const straight = going.reduce((best, each) => (best === null || depth(each) >= depth(best) ? each : best), null);
    const ordered = [...children.filter((each) => each !== straight), straight].filter(Boolean);
    for (const child of ordered.reverse()) open.push([child, level + 1, child === straight ? indent : indent + 1]);
  }
  return rows;
}

function depth(row) {
  let deepest = 0;
  const open = [[row, 1]];
  while (open.length > 0) {
    const [each, at] = open.pop();
    deepest = Math.max(deepest, at);
    for (const child of each.children) open.push([child, at + 1]);
  }
  return deepest;
}

/** The rows that can be seen while some are closed. */
export function visible(rows, closed) {
  const hidden = new Set();
  return rows.filter((row) => {
    if (row.parent !== null && (hidden.has(row.parent.id) || closed.has(row.parent.id))) hidden.add(row.id);
    return !hidden.has(row.id);
  });
}
