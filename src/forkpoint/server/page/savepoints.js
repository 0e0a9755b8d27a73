// A job's savepoints and runs as a tree, and what is selected in it.

import { takeSavepoint } from "./actions.js";
import { get, query } from "./api.js";
import { compareView } from "./compare.js";
import { h } from "./dom.js";
import { bytes, count } from "./format.js";
import { rowsOf, visible } from "./history.js";
import { action, emptiness, when } from "./parts.js";
import { savepointCard } from "./savepoint.js";

export function savepointsView(shared, rest) {
  let rows = [], listed = new Map(), broken = [], selected = null, focused = null, isLoaded = false, comparison = null, other = null;
  const closed = new Set(), card = savepointCard(shared, { compare, load });

  /** What the address names: a savepoint, perhaps with another one to compare. */
  function choose([id = null, word, second = null]) {
    other = word === "with" ? second : null;
    comparison = other === null ? null : compareView(shared, id, other, (each) => listed.get(each)?.label ?? each);
    if (id !== selected) card.choose(id);
    selected = id;
  }

  async function load() {
    const { root, name } = shared.details.overview;
    const [tree, all] = await Promise.all([get("/catalog/tree" + query({ root, job: name })), get("/catalog/savepoints" + query({ root }))]);
    rows = rowsOf(tree.nodes);
    listed = new Map(all.savepoints.map((each) => [each.id, each]));
    broken = all.broken.filter((each) => each.job === name);
    isLoaded = true;
    await card.load();
    await comparison?.load();
  }

  function select(row) {
    focused = row.id;
    if (row.node.kind === "savepoint") shared.app.go(`#/jobs/${shared.id}/savepoints/${encodeURIComponent(row.node.id)}`);
    else shared.app.redraw();
  }

  function compare(before, after) {
    shared.app.go(`#/jobs/${shared.id}/savepoints/${encodeURIComponent(before)}/with/${encodeURIComponent(after)}`);
  }

  function draw() {
    if (!isLoaded) return h("p", { class: "quiet" }, "Loading …");
    const hasAny = rows.some((row) => row.node.kind === "savepoint");
    const why = shared.app.whyNot() ?? (shared.details.state === "RUNNING" ? null : "The job is not running.");
    return [
      h("div", { class: "split" },
        h("div", { class: "card" }, h("h2", { id: "history" }, "History"), tree(),
          !hasAny && h("p", { class: "quiet" }, "No savepoints yet. A savepoint is all of a job's state at one epoch: go back to it, fork it, or open it."),
          !hasAny && action("Take the first one …", why, () => takeSavepoint(shared)),
          broken.length > 0 && h("p", { class: "quiet" }, `${count(broken.length)} unfinished or damaged: `, broken.map((each) => h("code", { key: each.path, title: each.problem }, each.path)))),
        selected === null ? emptiness("Nothing is selected", "Choose a savepoint on the left to see what is in it, and what can be done with it.") : card.draw(listed)),
      comparison?.draw(),
    ];
  }

  function tree() {
    const shown = visible(rows, closed), stop = shown.find((row) => row.id === focused) ?? shown.find((row) => row.node.id === selected) ?? shown[0];
    return h("ul", { class: "tree", role: "tree", "aria-labelledby": "history", on: { keydown: (event) => move(event, shown, stop) } },
      shown.map((row) => item(row, row === stop)));
  }

  function item(row, isStop) {
    const { node } = row, saved = listed.get(node.id), isSavepoint = node.kind === "savepoint";
    const chosen = isSavepoint && (node.id === selected || node.id === other);
    return h("li", { key: row.id, role: "treeitem", "aria-level": row.level, "aria-selected": String(chosen), tabindex: isStop ? 0 : -1, "data-row": row.id,
      "aria-expanded": row.children.length === 0 ? null : String(!closed.has(row.id)), class: `${node.kind}${chosen ? " chosen" : ""}${node.missing ? " missing" : ""}`,
      style: { "--indent": row.indent }, on: { click: () => select(row), focus: () => { focused = row.id; } } },
    row.children.length === 0 ? h("span", { class: "twist" }) : h("span", { class: "twist", "aria-hidden": "true", on: { click: (event) => { event.stopPropagation(); turn(row); } } }, closed.has(row.id) ? "▸" : "▾"),
    h("span", { class: "dot", "aria-hidden": "true" }),
    h("span", { class: "what" },
      h("span", { class: "strong" }, isSavepoint ? node.label ?? node.id : `Run ${node.id}`), " ",
      node.job !== shared.details.name && h("span", { class: "tag" }, node.job),
      isSavepoint ? node.drained && h("span", { class: "tag" }, "drained") : h("span", { class: "tag" }, node.state ?? "no record"),
      node.missing && isSavepoint && h("span", { class: "tag warn" }, "gone or elsewhere"),
      h("small", null, isSavepoint
        ? [node.label && [h("code", null, node.id), " · "], node.epoch !== null && `epoch ${count(node.epoch)} · `, saved && `${count(saved.entries)} entries, ${bytes(saved.bytes)} · `, when(node.created_ms), node.note && ` · ${node.note}`]
        : [node.program && `${node.program.split("/").pop()} · `, when(node.created_ms), node.emptied.length > 0 && ` · with empty state of ${node.emptied.join(", ")}`])));
  }

  function turn(row) {
    if (closed.has(row.id)) closed.delete(row.id);
    else closed.add(row.id);
    shared.app.redraw();
  }

  /** The keys of a tree: up and down, right opens or goes down, left closes or goes up, Enter selects. */
  function move(event, shown, at) {
    const i = shown.indexOf(at), isOpen = at.children.length > 0 && !closed.has(at.id);
    const to = { ArrowDown: shown[i + 1], ArrowUp: shown[i - 1], Home: shown[0], End: shown.at(-1), ArrowRight: isOpen ? shown[i + 1] : null, ArrowLeft: isOpen ? null : at.parent }[event.key];
    if (event.key === "Enter" || event.key === " ") select(at);
    else if ((event.key === "ArrowRight" && at.children.length > 0 && !isOpen) || (event.key === "ArrowLeft" && isOpen)) turn(at);
    else if (to) {
      focused = to.id;
      shared.app.redraw();
      [...event.currentTarget.children].find((each) => each.dataset.row === to.id).focus();
    } else return;
    event.preventDefault();
  }

  choose(rest);
  return { every: 2000, load, draw, turnTo: choose };
}
