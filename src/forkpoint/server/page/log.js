// The end of a job's log.

import { getText, query } from "./api.js";
import { h } from "./dom.js";
import { emptiness } from "./parts.js";

const AMOUNTS = [200, 1000, 5000];

export function logView(shared) {
  let text = null, problem = null, wanted = "", lines = AMOUNTS[0], follows = true, box = null;

  async function load() {
    try {
      [text, problem] = [await getText(shared.path("log") + query({ lines })), null];
    } catch (error) {
      if (error.status !== 404) throw error;
      problem = error.message;
    }
    if (follows) requestAnimationFrame(() => box?.scrollTo(0, box.scrollHeight));
  }

  function draw() {
    if (problem !== null) return emptiness("No log", problem);
    if (text === null) return h("p", { class: "quiet" }, "Loading …");
    const all = text.split("\n"), kept = wanted === "" ? all : all.filter((line) => line.toLowerCase().includes(wanted.toLowerCase()));
    return [
      h("div", { class: "tools" },
        h("label", null, "Lines with", h("input", { type: "search", on: { input: (event) => { wanted = event.target.value; shared.app.redraw(); } } })),
        h("label", null, "From the last", h("select", { on: { change: (event) => { lines = Number(event.target.value); shared.app.refresh(); } } },
          AMOUNTS.map((n) => h("option", { key: n, value: n }, `${n} lines`)))),
        h("label", { class: "check" }, h("input", { type: "checkbox", checked: true, on: { change: (event) => { follows = event.target.checked; } } }), "Follow")),
      h("pre", { class: "log", tabindex: 0, role: "log", "aria-live": "off", "aria-label": "Log", made: (element) => { box = element; } },
        kept.join("\n").trim() === "" ? (wanted === "" ? "The log is empty." : "No line has this.") : kept.join("\n")),
    ];
  }

  return { every: 1000, load, draw };
}
