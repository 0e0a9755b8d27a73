// What a job's operators tell: counts, and what holds the watermarks back. Pure.

/** How many elements an operator has received, or emitted if it has no input. */
export const records = (vertex) => vertex.metrics["read-records"] + vertex.metrics["write-records"];

/** How much an operator keeps: entries and bytes of its states, and its timers in each time domain; null if that is not known. */
export function kept({ states }) {
  if (!states?.length) return null;
  const sum = (kind, of) => states.filter((each) => kind(each.kind)).reduce((all, each) => all + each[of], 0);
  const isState = (kind) => !kind.startsWith("timers-");
  return { entries: sum(isState, "entries"), bytes: sum(isState, "bytes"),
    eventTimers: sum((kind) => kind === "timers-event", "entries"), processingTimers: sum((kind) => kind === "timers-processing", "entries"),
    states: states.filter((each) => isState(each.kind)) };
}

/** For each source with a watermark: how far it is, the split that holds it, and by how much. `isNotable`: the split is far behind
 * the next one. `sources`: as the server shows them. */
export function holds(sources) {
  return sources.flatMap(({ uid, hold }) => (hold === null ? [] : [{ uid, watermark: hold.watermark, split: hold.next === null ? null : hold.split,
    others: hold.others, next: hold.next, behind: hold.behind, isNotable: hold.notable }]));
}

/** The sources that an operator's elements come from. `nodes`: of the plan. */
export function sourcesOf(uid, nodes) {
  const byId = new Map(nodes.map((node) => [node.id, node]));
  const found = new Set(), seen = new Set(), open = [uid];
  while (open.length > 0) {
    const id = open.pop();
    if (seen.has(id) || !byId.has(id)) continue;
    seen.add(id);
    const inputs = byId.get(id).inputs;
    if (inputs.length === 0) found.add(id);
    open.push(...inputs.map((each) => each.id));
  }
  return found;
}

/** The watermark at an operator: a source's is that of the split that is behind; one that is not told is the least of the inputs'. */
export function watermarkOf(uid, details, held, seen = new Set()) {
  const own = held.find((each) => each.uid === uid)?.watermark ?? details.vertices.find((each) => each.id === uid)?.watermark ?? null;
  if (own !== null || seen.has(uid)) return own;
  seen.add(uid);
  const inputs = details.plan.nodes.find((each) => each.id === uid)?.inputs ?? [];
  const marks = inputs.map((each) => watermarkOf(each.id, details, held, seen)).filter((each) => each !== null);
  return marks.length === 0 ? null : Math.min(...marks);
}
