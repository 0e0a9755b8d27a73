// The failures of a job's newest run.

import { get } from "./api.js";
import { h } from "./dom.js";
import { plural } from "./format.js";
import { emptiness, when } from "./parts.js";

export function exceptionsView(shared) {
  let found = null;

  function draw() {
    if (found === null) return h("p", { class: "quiet" }, "Loading …");
    const { entries, truncated } = found.exceptionHistory;
    if (entries.length === 0) return emptiness("No exceptions", "Nothing has failed in this run.");
    return [
      truncated && h("p", { class: "quiet" }, `The newest ${entries.length}; there were more.`),
      h("ol", { class: "plain" }, entries.map((each, i) => h("li", { key: `${each.timestamp}/${each.stacktrace.length}`, class: "card" },
        h("p", { class: "spread" }, h("strong", { class: "error" }, each.exceptionName), h("span", { class: "quiet" }, when(each.timestamp),
          each.restarts === null ? "" : `, ${plural(each.restarts, "restart")} before`)),
        each.taskName && h("p", null, "in ", h("code", null, each.taskName)),
        h("details", { open: i === 0 }, h("summary", null, "All of it"), h("pre", { tabindex: 0 }, each.stacktrace))))),
    ];
  }

  return { every: 2000, load: async () => { found = await get(shared.path("exceptions")); }, draw };
}
