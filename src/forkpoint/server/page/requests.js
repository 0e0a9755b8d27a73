// What was asked for and takes a while: how far it is, and what came of it.

import { get } from "./api.js";
import { h } from "./dom.js";
import { emptiness, progress, stateMark, when } from "./parts.js";
import { outcomes } from "./outcomes.js";

const WORDS = { savepoint: "Savepoint", rescale: "Rescale", run: "Start", fork: "Fork", upgrade: "Upgrade", check: "Check", diff: "Compare", dispose: "Dispose",
  edit: "Edit", gc: "Clean up", recover: "Recover", ab: "Compare versions", doctor: "Doctor" };

const WAYS = {
  upgrade: "The program is checked and started beside the old one; then it is on trial for its first epochs …",
  check: "The program runs up to its first execute() …", fork: "The new job is starting …", run: "The job is starting …",
};

export function requestsView(app, [id = null]) {
  let all = [];

  async function load() {
    all = (await get("/requests")).requests;
  }

  function draw() {
    return [
      h("div", { class: "head" }, h("h1", null, "Requests"), h("p", { class: "quiet" }, "What this server was asked to do, newest first. It is forgotten when the server ends.")),
      all.length === 0 ? emptiness("No requests", "Savepoints, upgrades, forks, checks and comparisons appear here with their progress.")
        : h("ol", { class: "plain requests" }, all.map((request) => card(request))),
    ];
  }

  function card(request) {
    const isOpen = request.id === id;
    return h("li", { key: request.id, class: "card", id: `request-${request.id}` },
      h("div", { class: "spread" },
        h("h2", null, WORDS[request.kind] ?? request.kind, request.job && [" · ", request.job]),
        h("span", null, stateMark(...stateOf(request)), " ", h("span", { class: "quiet" }, when(request.started_ms), request.by === "None" ? "" : ` by ${request.by}`))),
      request.status === "IN_PROGRESS" && h("p", { role: "status" }, request.step ?? request.remarks.at(-1) ?? WAYS[request.kind] ?? "Under way …"),
      progress(request),
      request.error && h("p", { class: "error" }, h("strong", null, request.error.code), ": ", h("span", { class: "lines" }, request.error.message)),
      request.result && outcomes(request),
      (request.remarks.length > 0 || request.result) && h("details", { open: isOpen && request.status === "IN_PROGRESS" },
        h("summary", null, "What it said"), request.remarks.length > 0 && h("ol", { class: "remarks" }, request.remarks.map((remark, i) => h("li", { key: i }, remark))),
        request.result && h("pre", { tabindex: 0 }, JSON.stringify(request.result, null, 1))));
  }

  return { title: "Requests", load, draw };
}

/** A request's state, and the word for it: an upgrade that went back was answered, but has not succeeded. */
export function stateOf(request) {
  if (request.status === "COMPLETED" && request.result?.outcome === "rolled-back") return ["RESTARTING", "went back"];
  if (request.status === "COMPLETED" && request.result?.fits === false) return ["RESTARTING", "does not fit"];
  return [request.status, { IN_PROGRESS: "under way", COMPLETED: "done", FAILED: "failed" }[request.status]];
}
