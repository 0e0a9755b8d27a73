// Small parts that several views have.

import { h } from "./dom.js";
import { count, iso, time } from "./format.js";

/** The tone of a state, by which its mark looks different; the word says the same. */
const TONES = {
  RUNNING: "good", FINISHED: "done", CANCELED: "done", FAILED: "bad", SUSPENDED: "bad", RESTARTING: "warn",
  RECONCILING: "warn", CANCELLING: "warn", INITIALIZING: "busy", CREATED: "busy",
  IN_PROGRESS: "busy", COMPLETED: "good",
};
const MARKS = { good: "M8 2a6 6 0 1 0 0 12A6 6 0 0 0 8 2z", done: "M3 3h10v10H3z", bad: "M8 1.5 15 14H1z",
  warn: "M8 1 15 8 8 15 1 8z", busy: "M8 2a6 6 0 1 0 0 12A6 6 0 0 0 8 2zm0 2a4 4 0 0 1 0 8z" };

export function stateMark(state, word = state.toLowerCase().replaceAll("_", " ")) {
  const tone = TONES[state] ?? "done";
  return h("span", { class: `state ${tone}` },
    h("svg", { viewBox: "0 0 16 16", "aria-hidden": "true" }, h("path", { d: MARKS[tone] })), word);
}

/** Where there is nothing yet: what would be here, and what to do. */
export function emptiness(title, text, ...actions) {
  return h("div", { class: "empty" }, h("h2", null, title), h("p", null, text), h("div", { class: "actions" }, ...actions));
}

/** A time, with the exact one for pointers and machines. */
export function when(ms) {
  return h("time", { datetime: iso(ms), title: iso(ms) }, time(ms));
}

export function facts(pairs) {
  return h("dl", { class: "facts" }, pairs.filter(Boolean).map(([name, value, tone]) =>
    h("div", { key: name, class: tone }, h("dt", null, name), h("dd", null, value))));
}

/** Tells a state of a job from all others, whatever is in the names. */
export const stateKey = ({ uid, state }) => JSON.stringify([uid, state]);

/** A table that scrolls inside its own box where it is too wide. `columns`: [title, class]; `rows`: [key, cells, props]. */
export function table(caption, columns, rows) {
  return h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": caption }, h("table", null,
    h("caption", { class: "hidden" }, caption),
    h("thead", null, h("tr", null, columns.map(([title, kind], i) => h("th", { key: i, scope: "col", class: kind }, title)))),
    h("tbody", null, rows.map(([key, cells, props]) => h("tr", { key, ...props },
      cells.map((cell, i) => h("td", { key: i, class: columns[i][1] }, cell)))))));
}

/** A button for an action that may be unavailable, with the reason. */
export function action(label, why, click, kind = "") {
  return h("button", { type: "button", class: kind, "aria-disabled": why === null ? null : "true", title: why,
    on: { click: () => (why === null ? click() : null) } }, label, why && h("span", { class: "hidden" }, ` (not possible: ${why})`));
}

/** How far a request is, for a bar; null if that is not known. */
export function progress(request) {
  if (!request.total) return request.status === "IN_PROGRESS" ? h("progress", { "aria-label": "under way" }) : null;
  return h("progress", { max: request.total, value: request.done, "aria-label": `${count(request.done)} of ${count(request.total)}` });
}

const WINDOW_MS = 10_000, ENOUGH_MS = 3_000;

/** Keep rates by name from counts that are looked at again and again: over the last ten seconds or so. */
export class Rates {
  #samples = [];

  /** Note counts at a time; a count that has fallen begins anew. */
  note(now, counts) {
    const last = this.#samples.at(-1);
    if (last !== undefined && now - last.now < 300) return;
    if (last !== undefined && Object.entries(last.counts).some(([name, n]) => (counts[name] ?? n) < n)) this.#samples = [];
    this.#samples.push({ now, counts });
    while (now - this.#samples[1]?.now >= WINDOW_MS) this.#samples.shift();
  }

  /** Per second; null until that can be told. Counts grow with each epoch: what has not grown may only have been looked at for too
   * short a time. */
  of(name) {
    const [first, last] = [this.#samples[0], this.#samples.at(-1)];
    if (first === last || first.counts[name] === undefined || last.counts[name] === undefined) return null;
    const grown = last.counts[name] - first.counts[name], ms = last.now - first.now;
    return ms < (grown > 0 ? ENOUGH_MS : WINDOW_MS) ? null : (grown * 1000) / ms;
  }
}
