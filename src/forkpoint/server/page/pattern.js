// The states of a pattern's automaton, and how far the partial matches of a key are in it.

import { h } from "./dom.js";
import { layout, pathOf } from "./layout.js";
import { table, when } from "./parts.js";

const SIZE = { width: 190, height: 62 }, SHOWN = { title: 22, other: 26 }; // characters of a line in a box
const AROUND = 16; // from boxes to arrows back
const ACTIONS = { take: "takes", ignore: "passes over", proceed: "or" };

/** A pattern's states, from left to right, and the same in words. */
export function drawing(pattern) {
  const shown = ordered(pattern), rank = new Map(shown.map((number, i) => [number, i]));
  const arrows = shown.flatMap((from) => joined(pattern.states[from].edges).filter(({ target }) => target !== from && rank.has(target)).map((edge) => ({ ...edge, from })));
  const isBack = (each) => rank.get(each.target) < rank.get(each.from);
  const inputs = (number) => arrows.filter((each) => each.target === number && !isBack(each)).map((each) => ({ id: each.from, action: each.action }));
  const at = layout(shown.map((id) => ({ id, stage: 0, inputs: inputs(id) })), SIZE, false);
  return [
    h("h3", { key: "pattern" }, "Pattern"),
    h("div", { class: "scroll pattern", tabindex: 0, role: "region", "aria-label": "States of the pattern" },
      h("svg", { width: at.width, height: at.height, viewBox: `0 0 ${at.width} ${at.height}`, role: "img", "aria-label": shown.map((number) => pattern.states[number].name).join(", ") },
        h("defs", null, h("marker", { id: "step", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 9, markerHeight: 9, markerUnits: "userSpaceOnUse", orient: "auto" }, h("path", { d: "M0 0 8 4 0 8z" }))),
        at.edges.map((edge) => arrow(edge.id, edge.input.action, pathOf(edge.points, false), middle(edge.points))),
        arrows.filter(isBack).map((edge) => around(edge, at.nodes)),
        at.nodes.map((place) => box(place, pattern)))),
    h("pre", { key: "explanation" }, pattern.explanation),
  ];
}

/** The numbers of the states, each after those that lead to it, except where they repeat. */
function ordered({ states }) {
  const seen = new Set(), found = [];
  const visit = (number) => {
    if (seen.has(number) || states[number].kind === "stop") return;
    seen.add(number);
    for (const { target } of states[number].edges) visit(target);
    found.unshift(number);
  };
  visit(0);
  return found;
}

/** One edge for each target: what an event does to get there. */
function joined(edges) {
  const targets = [...new Set(edges.map((each) => each.target))];
  return targets.map((target) => ({ target, action: [...new Set(edges.filter((each) => each.target === target).map((each) => ACTIONS[each.action] ?? each.action))].join(", ") }));
}

function box({ id, x, y }, { states }) {
  const state = states[id], own = state.edges.filter((each) => each.target === id), forbids = state.edges.find((each) => states[each.target].kind === "stop");
  const takes = state.edges.find((each) => each.action === "take" && states[each.target].kind !== "stop");
  const also = [own.some((each) => each.action === "take") && "repeats", forbids && `no ${states[forbids.target].stage}`, own.some((each) => each.action === "ignore") && "passes over others"].filter(Boolean);
  const lines = state.kind === "final" ? ["match"] : [state.name, takes ? takes.condition || "any event" : state.kind === "pending" ? "until time is over" : "leaves it to the next", also.join(", ")];
  return h("g", { key: `n${id}`, class: `step ${id === 0 ? "first" : state.kind}` }, h("title", null, lines.filter(Boolean).join("\n")),
    h("rect", { x, y, width: SIZE.width, height: SIZE.height, rx: 8 }),
    lines.map((line, i) => h("text", { key: i, x: x + 10, y: y + 19 + i * 17 }, cut(line, i === 0 ? SHOWN.title : SHOWN.other))));
}

const cut = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);
const arrow = (key, action, path, { x, y }) => [h("path", { key: `p${key}`, class: "edge", d: path, "marker-end": "url(#step)" }), h("text", { key: `t${key}`, class: "ship", x, y: y - 5, "text-anchor": "middle" }, action)];
const middle = (points) => ({ x: (points.at(-2).x + points.at(-1).x) / 2, y: (points.at(-2).y + points.at(-1).y) / 2 });

/** An arrow to an earlier state, around the boxes between them: above, if there are others below in the column that it leaves. */
function around(edge, nodes) {
  const place = (number) => nodes.find(({ id }) => id === number), from = place(edge.from), to = place(edge.target);
  const between = nodes.filter((each) => each.x >= to.x && each.x <= from.x), isAbove = between.some((each) => each.x === from.x && each.y > from.y);
  const y = isAbove ? Math.min(...between.map((each) => each.y)) - AROUND : Math.max(...between.map((each) => each.y)) + SIZE.height + AROUND;
  const [x1, x2] = [from.x + SIZE.width / 2 - 14, to.x + SIZE.width / 2 + 14], [y1, y2] = [from.y, to.y].map((each) => (isAbove ? each : each + SIZE.height));
  return arrow(`${edge.from}<${edge.target}`, edge.action, `M${x1} ${y1} C${x1} ${y} ${x1} ${y} ${x1 - 20} ${y} L${x2 + 20} ${y} C${x2} ${y} ${x2} ${y} ${x2} ${y2}`, { x: (x1 + x2) / 2, y: y + 1 });
}

/** How far each partial match is. `saved`: the value of a key's state `partial_matches`. */
export function progress(pattern, saved) {
  const byName = new Map(pattern.states.map((state) => [state.name, state]));
  return saved.partial.map(({ waits_in: name, last_step: last }) => {
    const steps = [];
    for (let at = last; at >= 0; at = saved.steps[at].before) steps.unshift(saved.steps[at]);
    const state = byName.get(name), limits = [];
    if (pattern.total_ms !== null) limits.push(Number(steps[0].at_ms) + pattern.total_ms);
    if (state && state.within_ms !== null) limits.push(Number(steps.at(-1).at_ms) + state.within_ms);
    return { steps, waits: state === undefined ? [name] : waits(pattern, state), ends: limits.length === 0 ? null : Math.min(...limits) };
  });
}

/** The stages whose events a state takes, or one that it leaves the decision to. */
function waits(pattern, state) {
  const seen = new Set(), open = [state], found = [];
  while (open.length > 0) {
    const here = open.pop();
    if (seen.has(here) || here.kind === "stop") continue;
    seen.add(here);
    for (const edge of here.edges) {
      if (edge.action === "take" && pattern.states[edge.target].kind !== "stop") found.push(edge.condition ? `${here.stage} (${edge.condition})` : here.stage);
      else if (edge.action === "proceed") open.push(pattern.states[edge.target]);
    }
  }
  return [...new Set(found)];
}

export function progressView(pattern, saved) {
  const found = progress(pattern, saved);
  return table("Partial matches of this key", [["Has"], ["Waits for"], ["Until"]], found.slice(0, 200).map(({ steps, waits: wanted, ends }, i) => [i, [
    steps.map((step, n) => h("span", { key: n }, n > 0 && ", ", h("strong", null, step.stage), " at ", when(Number(step.at_ms)))), wanted.join(" or ") || "the end of its time", ends === null ? "–" : when(ends)]]));
}
