// Who is slow: how busy each operator is, and which wait for a slower one after them. Pure.
//
// All operators work on one epoch after the other. So an operator waits while those after it are at work, and as long as more is to
// be read, the busiest one sets the pace: as back pressure does in Flink.

const FULL = 0.7; // of the time of all subtasks, over the longest way from a source: the job is at its limit
const ALWAYS = 0.5; // of the time is some subtask at work, and yet much waits to be read
const BUSY = 0.5, IDLE = 0.1;

export const LEVELS = {
  slow: ["slowest", "sets the pace: the others wait for it"],
  held: ["back pressure", "waits for a slower operator after it"],
  busy: ["busy", "at work for half of the time or more"],
  idle: ["idle", "at work for less than a tenth of the time"],
};

/** For each operator `busy`: the share of its time in which it is at work; `held`: the share of an epoch that operators after it take;
 * and its `level`, null if that says nothing. `busyOf(uid)`: null if it is not known. `waits`: whether much waits to be read. */
export function pressure(nodes, busyOf, waits) {
  const after = new Map(nodes.map((node) => [node.id, []])), before = new Map(nodes.map((node) => [node.id, node.inputs.map((each) => each.id)]));
  for (const node of nodes) for (const input of node.inputs) after.get(input.id)?.push(node.id);
  const own = new Map(nodes.map((node) => [node.id, Math.min(1, busyOf(node.id) ?? 0)])), below = new Map();
  for (const node of [...nodes].reverse()) below.set(node.id, Math.max(0, ...after.get(node.id).map((id) => own.get(id) + (below.get(id) ?? 0))));
  const longest = Math.max(0, ...nodes.map((node) => own.get(node.id) + below.get(node.id))), subtasks = Math.max(1, ...nodes.map((node) => node.parallelism));
  const isFull = longest >= FULL || (waits && longest * subtasks >= ALWAYS);
  const slowest = isFull ? [...own].sort((a, b) => b[1] - a[1])[0][0] : null;
  const held = slowest === null ? new Set() : reached(slowest, before);
  return new Map(nodes.map(({ id }) => {
    const busy = busyOf(id);
    const level = busy === null ? null : id === slowest ? "slow" : held.has(id) ? "held" : busy >= BUSY ? "busy" : busy < IDLE ? "idle" : null;
    return [id, { busy, held: held.has(id) ? below.get(id) / longest : 0, level }];
  }));
}

/** All operators that can be reached from one. */
function reached(id, ways) {
  const found = new Set(), open = [...(ways.get(id) ?? [])];
  while (open.length > 0) {
    const next = open.pop();
    if (found.has(next)) continue;
    found.add(next);
    open.push(...(ways.get(next) ?? []));
  }
  return found;
}
