// The graph of a job's operators, and one of them in detail.

import { h } from "./dom.js";
import { bytes, count, duration, iso, isTime, plural, rate, share, shortWatermark, watermark } from "./format.js";
import { layout, pathOf } from "./layout.js";
import { holds, kept, records, sourcesOf, watermarkOf } from "./operators.js";
import { emptiness, facts, table, when } from "./parts.js";
import { drawing } from "./pattern.js";
import { LEVELS, pressure } from "./pressure.js";

const HEIGHT = 156, WIDTH = { most: 208, least: 148 };
const NARROW = 700;
const MUCH_S = 5; // so long it would take to read what waits
const SHIP = { FORWARD: "forward", HASH: "by key", REBALANCE: "rebalance", BROADCAST: "broadcast", RESCALE: "rescale", SHUFFLE: "shuffle", GLOBAL: "global" };

export function graphView(shared, [uid = null]) {
  let selected = uid, drawn = null, drawnFor = "";

  function placed(nodes, isTall) {
    const now = JSON.stringify([isTall, innerWidth, nodes.map((node) => [node.id, node.stage, node.inputs])]);
    if (now === drawnFor) return drawn;
    [drawn, drawnFor] = [layout(nodes, { width: WIDTH.most, height: HEIGHT }, isTall), now];
    // Downwards, those in a row share the width.
    const narrower = Math.max(WIDTH.least, Math.floor((innerWidth - 86) / 2));
    if (isTall && drawn.width > innerWidth - 50 && narrower < WIDTH.most) drawn = layout(nodes, { width: narrower, height: HEIGHT }, isTall);
    return drawn;
  }

  function draw() {
    const { details } = shared, nodes = details.plan.nodes;
    if (nodes.length === 0) return emptiness("No plan", "This run was started by an older release, which did not note its operators.");
    const held = holds(details.sources), isTall = innerWidth < NARROW, vertices = new Map(details.vertices.map((each) => [each.id, each]));
    const at = placed(nodes, isTall), slow = pressure(nodes, busyOf, details.vertices.some(waitsLong));
    return [
      h("div", { class: "scroll graph", role: "group", "aria-label": "Operators: arrow keys follow the edges, Enter shows details",
        on: { keydown: (event) => move(event, at, isTall) } },
      h("div", { class: "canvas", style: { width: `${at.width}px`, height: `${at.height}px` } },
        edges(at, isTall),
        at.nodes.map((place) => operator(place, vertices.get(place.id), nodes.find((node) => node.id === place.id), held, isTall, slow.get(place.id))))),
      selected !== null && vertices.has(selected) ? detail(vertices.get(selected), held, slow.get(selected)) : null,
      legend(),
      h("h2", { key: "all" }, "Operators"), operatorTable(details, held, slow),
    ];
  }

  function pick(id) {
    selected = selected === id ? null : id;
    history.replaceState(null, "", `#/jobs/${shared.id}/graph${selected === null ? "" : `/${encodeURIComponent(selected)}`}`);
    shared.app.redraw();
  }

  /** The share of its time in which an operator is at work, over all subtasks; null if that is not known. */
  function busyOf(id) {
    const vertex = shared.details.vertices.find((each) => each.id === id), perSecond = shared.rates.of(`busy ${id}`);
    return perSecond === null || shared.details.state !== "RUNNING" ? null : perSecond / 1000 / Math.max(1, vertex.parallelism);
  }

  /** Whether more waits to be read at a source than it reads in some seconds. */
  function waitsLong({ id, backlog }) {
    const perSecond = backlog === null ? null : shared.rates.of(backlog.unit === "bytes" ? `bytes ${id}` : id);
    return perSecond !== null && backlog.amount > MUCH_S * perSecond;
  }

  function operator({ id, x, y }, vertex, node, held, isTall, slow) {
    const mine = held.find((each) => each.uid === id), own = watermarkOf(id, shared.details, held), perSecond = shared.rates.of(id), hasInput = node.inputs.length > 0;
    const behind = lag(own, shared.details), isNone = watermark(own) === "none yet";
    return h("button", { key: id, type: "button", class: `operator ${slow.level ?? ""}${mine?.isNotable ? " holding" : ""}`, "data-uid": id, "aria-pressed": String(selected === id),
      style: { left: `${x}px`, top: `${y}px`, width: `${drawn.size.width}px`, height: `${drawn.size.height}px` }, on: { click: () => pick(id) } },
    h("span", { class: "name" }, vertex.name), h("code", { class: "uid" }, id),
    h("span", { class: "line" }, h("span", { class: "n" }, counted(vertex) ? count(records(vertex)) : "–"), h("span", { class: "quiet" }, hasInput ? "in" : "read"),
      h("span", { class: "n end" }, counted(vertex) ? rate(perSecond) : "")),
    h("span", { class: "line", title: isTime(own) ? `Watermark: ${iso(own)}` : null },
      h("span", { class: behind === null && isTime(own) && isTall ? "hidden" : "quiet" }, behind !== null ? "lag" : isTime(own) ? "up to" : isNone ? "no watermark yet" : "watermark"), h("span", { class: "n end" }, isNone ? "" : behind === null ? shortWatermark(own) : duration(behind))),
    h("span", { class: "line" }, h("span", { class: "quiet" }, "busy"), h("span", { class: "meter", "aria-hidden": "true" }, h("span", { style: { width: share(slow.busy ?? 0).replace(" ", "") } })),
      h("span", { class: "n" }, slow.busy === null ? "–" : share(slow.busy))),
    h("span", { class: "line tags" },
      slow.level === "slow" && h("span", { class: "tag bad" }, LEVELS.slow[0]),
      slow.level === "held" && h("span", { class: "tag warn" }, `${LEVELS.held[0]} ${share(slow.held)}`),
      vertex.backlog && h("span", { class: "tag", title: `Waits to be read: ${waiting(vertex.backlog)}` }, `backlog ${waiting({ ...vertex.backlog, files: null })}`),
      vertex.stateful && h("span", { class: "tag" }, "state"),
      vertex["late-records-dropped"] > 0 && h("span", { class: "tag warn" }, `${count(vertex["late-records-dropped"])} late`),
      mine?.split && h("span", { class: `tag ${mine.isNotable ? "warn" : ""}` }, mine.isNotable ? `held by ${mine.split}` : `slowest: ${mine.split}`)));
  }

  function detail(vertex, held, slow) {
    const { details } = shared, node = details.plan.nodes.find((each) => each.id === vertex.id), source = details.sources.find((each) => each.uid === vertex.id);
    const own = watermarkOf(vertex.id, details, held), behind = lag(own, details);
    return h("section", { class: "card detail", "aria-labelledby": "operator-name" },
      h("div", { class: "spread" }, h("h2", { id: "operator-name" }, vertex.name), h("button", { class: "plain", type: "button", on: { click: () => pick(vertex.id) } }, "Close")),
      facts([["uid", h("code", null, vertex.id)], ["Kind", vertex.kind], ["Records", counted(vertex) ? count(records(vertex)) : "not counted"], ["Rate", rate(shared.rates.of(vertex.id))],
        ["Watermark", isTime(own) ? when(own) : watermark(own)], behind !== null && ["Behind the clock", duration(behind)],
        ...measured(vertex, slow),
        ["Late, dropped", count(vertex["late-records-dropped"]), vertex["late-records-dropped"] ? "warn" : null], ["Keeps state", vertex.stateful ? "yes" : "no"],
        ...sizes(kept(vertex)), ...told(node.optimizer_properties),
        shared.details.unpublished[vertex.id] ? ["Epochs not published", count(shared.details.unpublished[vertex.id]), "warn"] : null]),
      node.type && h("p", { class: "quiet" }, "Emits ", h("code", null, node.type)),
      node.inputs.length === 0 ? null : reason(vertex, held),
      node.pattern && drawing(node.pattern),
      (kept(vertex)?.states.length ?? 0) > 1 && states(kept(vertex)),
      source && source.splits.length > 0 && splits(source, held.find((each) => each.uid === source.uid)));
  }

  /** What an operator tells about itself. */
  function told({ changes, key, keeps, runs }) {
    return [runs && ["Runs", runs], changes && ["Result", changes], key && ["Key", key], keeps && ["Keeps", keeps, keeps.endsWith("without limit") ? "warn" : null]];
  }

  /** What the watermark of an operator with inputs waits for. */
  function reason(vertex, held) {
    const from = sourcesOf(vertex.id, shared.details.plan.nodes);
    const slowest = held.filter((each) => from.has(each.uid)).sort((a, b) => a.watermark - b.watermark)[0];
    if (slowest === undefined) return null;
    return h("p", null, "Its watermark waits for ", h("button", { class: "link", type: "button", on: { click: () => pick(slowest.uid) } }, `source ${slowest.uid}`),
      slowest.split ? `, there for split ${slowest.split}.` : ".");
  }

  function splits(source, held) {
    const ordered = [...source.splits].sort((a, b) => a.idle - b.idle || a.watermark - b.watermark).slice(0, 200);
    return [h("h3", { key: "splits" }, "Splits"), table("Splits of this source, slowest first",
      [["Split"], ["Watermark", "n"], ["Behind the next", "n"], ["Records", "n"], ["Last record", "n"]],
      ordered.map((split) => [split.split, [[h("strong", null, split.split), " ", status(split, held)], isTime(split.watermark) ? when(split.watermark) : watermark(split.watermark),
        split.holds && held?.behind ? duration(held.behind) : "", count(split.records), when(split.last_active)], { class: split.holds && held?.isNotable ? "marked" : null }]))];
  }

  function operatorTable(details, held, slow) {
    return table("All operators", [["Operator"], ["uid"], ["Records", "n"], ["Rate", "n"], ["Busy", "n"], ["Back pressure", "n"], ["Backlog", "n"], ["Watermark", "n"], ["Late", "n"], ["State", "n"], ["Timers", "n"]],
      details.vertices.map((vertex) => {
        const own = watermarkOf(vertex.id, details, held), mine = kept(vertex);
        return [vertex.id, [vertex.name, h("button", { class: "link", type: "button", on: { click: () => pick(vertex.id) } }, h("code", null, vertex.id)),
          counted(vertex) ? count(records(vertex)) : "–", counted(vertex) ? rate(shared.rates.of(vertex.id)) : "–",
          ...pressed(slow.get(vertex.id)), vertex.backlog ? waiting(vertex.backlog) : "", isTime(own) ? when(own) : watermark(own),
          count(vertex["late-records-dropped"]), mine === null ? (vertex.stateful ? "yes" : "no") : `${count(mine.entries)} · ${bytes(mine.bytes)}`,
          mine === null ? "" : count(mine.eventTimers + mine.processingTimers)]];
      }));
  }

  return { draw, turnTo: ([id = null]) => { selected = id; shared.app.redraw(); } };
}

/** The shares of its time that an operator is busy, and held up. */
const pressed = ({ busy, held }) => (busy === null ? ["–", "–"] : [share(busy), share(held)]);

/** What is measured of an operator beside its records: how much of a subtask's time it is at work, bytes, and what waits to be read. */
function measured({ metrics, backlog }, slow) {
  return [
    slow.busy !== null && ["Busy", share(slow.busy)], slow.held > 0 && ["Back pressure", share(slow.held), "warn"],
    metrics["read-bytes"] > 0 && ["Bytes in", bytes(metrics["read-bytes"])], metrics["write-bytes"] > 0 && ["Bytes out", bytes(metrics["write-bytes"])],
    backlog && ["Waits to be read", waiting(backlog)],
  ];
}

function legend() {
  return h("ul", { class: "plain legend levels", "aria-label": "What the colours of operators mean", key: "legend" }, Object.entries(LEVELS).map(([level, [name, meaning]]) =>
    h("li", { key: level }, h("span", { class: `swatch ${level}`, "aria-hidden": "true" }), h("strong", null, name), ` ${meaning}`)));
}

/** About how much an operator keeps. */
function sizes(found) {
  if (found === null) return [];
  const { eventTimers, processingTimers } = found;
  return [
    found.states.length > 0 && ["State", `${plural(found.entries, "entry", "entries")}, ${bytes(found.bytes)}`],
    eventTimers > 0 && ["Event-time timers", count(eventTimers)], processingTimers > 0 && ["Processing-time timers", count(processingTimers)],
  ];
}

function states(found) {
  return [h("h3", { key: "states" }, "States"), table("States of this operator", [["State"], ["Kind"], ["Entries", "n"], ["Bytes", "n"]],
    found.states.map((each) => [each.name, [h("strong", null, each.name), each.kind, count(each.entries), bytes(each.bytes)]]))];
}

function waiting({ amount, unit, files }) {
  const much = unit === "bytes" ? bytes(amount) : plural(amount, "record");
  return files === null ? much : `${much} in ${plural(files, "file")}`;
}

function status(split, held) {
  if (split.holds && held?.split) return h("span", { class: `tag ${held.isNotable ? "warn" : ""}` }, held.isNotable ? "holds the watermark back" : "slowest");
  return split.idle ? h("span", { class: "tag" }, "idle") : null;
}

/** Operators without records of their own, such as filters in a chain, have no counts; nor has what ended before it counted any. */
const counted = (vertex) => vertex.metrics["read-records-complete"] && (vertex.kind === "source" || records(vertex) > 0 || vertex.watermark !== null);

/** How far a watermark is behind the clock; null if that says nothing. */
function lag(mark, details) {
  return isTime(mark) && details.state === "RUNNING" && details.now >= mark && details.now - mark < 1000 * 86_400_000 ? details.now - mark : null;
}

function edges(at, isTall) {
  return h("svg", { width: at.width, height: at.height, "aria-hidden": "true" },
    h("defs", null, h("marker", { id: "arrow", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 9, markerHeight: 9, markerUnits: "userSpaceOnUse", orient: "auto" }, h("path", { d: "M0 0 8 4 0 8z" }))),
    at.stages.map((band) => h("g", { key: `s${band.stage}` }, h("rect", { class: "stage", x: band.x, y: band.y, width: band.width, height: band.height, rx: 10 }),
      h("text", { class: "stage-name", x: band.x + 10, y: band.y + 16 }, `Stage ${band.stage}`))),
    at.edges.map((edge) => h("path", { key: edge.id, class: `edge ${edge.input.exchange === "local" ? "local" : "crosses"}`, d: pathOf(edge.points, isTall), "marker-end": "url(#arrow)" })),
    at.edges.map((edge) => {
      const [a, b] = edge.points.slice(-2), ship = SHIP[edge.input.ship_strategy] ?? edge.input.ship_strategy.toLowerCase();
      return h("text", { key: edge.id, class: "ship", x: (a.x + b.x) / 2, y: (a.y + b.y) / 2 - (isTall ? 0 : 6), "text-anchor": "middle" }, edge.input.tag ? `${ship} · ${edge.input.tag}` : ship);
    }));
}

/** Arrow keys: along the edges, and to the operators beside. */
function move(event, at, isTall) {
  const id = event.target.closest?.(".operator")?.dataset.uid;
  const keys = isTall ? { ArrowDown: 1, ArrowUp: -1, ArrowRight: "next", ArrowLeft: "last" } : { ArrowRight: 1, ArrowLeft: -1, ArrowDown: "next", ArrowUp: "last" };
  const way = keys[event.key];
  if (id === undefined || way === undefined) return;
  event.preventDefault();
  const here = at.nodes.find((node) => node.id === id);
  const [along, across] = isTall ? ["y", "x"] : ["x", "y"];
  const beside = at.nodes.filter((node) => node[along] === here[along]).sort((a, b) => a[across] - b[across]);
  const to = way === 1 ? at.edges.find((edge) => edge.from === id)?.to : way === -1 ? at.edges.find((edge) => edge.to === id)?.from
    : beside[beside.indexOf(here) + (way === "next" ? 1 : -1)]?.id;
  if (to !== undefined) [...event.currentTarget.querySelectorAll(".operator")].find((each) => each.dataset.uid === to).focus();
}
