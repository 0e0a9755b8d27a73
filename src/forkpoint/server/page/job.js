// A job: what it is, what can be done with it, and its parts.

import { cancel, rescale, stop, takeSavepoint } from "./actions.js";
import { get, path } from "./api.js";
import { configView } from "./config.js";
import { h } from "./dom.js";
import { epochsView } from "./epochs.js";
import { exceptionsView } from "./exceptions.js";
import { bytes, count, duration, rate } from "./format.js";
import { graphView } from "./graph.js";
import { logView } from "./log.js";
import { records } from "./operators.js";
import { noticesOf } from "./notices.js";
import { action, facts, Rates, stateMark } from "./parts.js";
import { savepointsView } from "./savepoints.js";
import { forkJob, restartJob, upgradeJob } from "./starting.js";
import { stateView } from "./state.js";

const TABS = [
  ["graph", "Graph", graphView], ["epochs", "Epochs", epochsView], ["savepoints", "Savepoints", savepointsView],
  ["state", "State", stateView], ["exceptions", "Exceptions", exceptionsView], ["log", "Log", logView],
  ["configuration", "Configuration", configView],
];

const ENDED = ["finished", "stopped", "cancelled", "failed", "superseded", "lost", "elsewhere", "unknown"];

/** `before`: the view that was shown: the same job's goes on. */
export function jobView(app, [id, tab = "graph", ...rest], before) {
  if (before?.id === id) {
    before.turnTo(tab, rest);
    return before;
  }
  const shared = { id, app, details: null, rates: new Rates(), path: (...parts) => path("jobs", id, ...parts) };
  const notices = noticesOf(shared);
  let current = null, part = null, asked = 0;

  const view = {
    id,
    get title() { return shared.details === null ? "Job" : `${shared.details.name} · ${TABS.find(([name]) => name === current)[1]}`; },
    get ready() { return shared.details !== null; },
    turnTo(name, more) {
      if (name === current) return part.turnTo?.(more);
      current = TABS.some(([known]) => known === name) ? name : "graph";
      part = TABS.find(([known]) => known === current)[2](shared, more);
      asked = 0;
    },
    async load(now) {
      shared.details = byUid(await get(shared.path()));
      const counts = Object.fromEntries(shared.details.vertices.map((each) => [each.id, records(each)]));
      const busy = Object.fromEntries(shared.details.vertices.map((each) => [`busy ${each.id}`, each.metrics["accumulated-busy-time"]]));
      const inBytes = Object.fromEntries(shared.details.vertices.map((each) => [`bytes ${each.id}`, each.metrics["read-bytes"]]));
      shared.rates.note(shared.details.now, { ...counts, ...busy, ...inBytes, "": shared.details.overview["records-read"] ?? 0 });
      const mine = part;
      if (mine.load !== undefined && (now || Date.now() - asked >= (mine.every ?? 0))) {
        asked = Date.now();
        await mine.load();
      }
    },
    draw: () => [head(shared), tabs(), notices.draw(), h("section", { class: "part", key: current, "aria-label": TABS.find(([name]) => name === current)[1] }, part.draw())],
  };

  function tabs() {
    return h("nav", { class: "tabs", "aria-label": "Parts of this job" }, TABS.map(([name, label]) =>
      h("a", { key: name, href: `#/jobs/${id}/${name}`, "aria-current": name === current ? "page" : null }, label)));
  }

  view.turnTo(tab, rest);
  return view;
}

/** What is always there, in the same places, whatever the job does: its actions don't move under the pointer. */
function head(shared) {
  const { details, app } = shared, job = details.overview, size = details["state-size"], isRunning = ["RUNNING", "RESTARTING", "INITIALIZING"].includes(details.state);
  const notRunning = app.whyNot() ?? (isRunning ? null : "The job is not running.");
  const notEnded = app.whyNot() ?? (ENDED.includes(job["forkpoint-state"]) ? null : "The job has not ended.");
  return h("div", { class: "head job" },
    h("p", { class: "crumbs" }, h("a", { href: app.jobs }, "Jobs"), " / "),
    h("div", { class: "title" }, h("h1", null, details.name), stateMark(details.state, job["forkpoint-state"])),
    h("div", { class: "actions", role: "group", "aria-label": "Actions" },
      action("Take savepoint …", notRunning, () => takeSavepoint(shared), notRunning === null ? "primary" : ""),
      action("Upgrade …", notRunning ?? app.whyNot(true), () => upgradeJob(shared)),
      action("Fork …", app.whyNot(true), () => forkJob(shared)),
      action("Rescale …", notRunning, () => rescale(shared)),
      action("Stop …", notRunning, () => stop(shared)),
      action("Cancel …", notRunning, () => cancel(shared), "danger plain"),
      action("Start again …", notEnded, () => restartJob(shared), notEnded === null ? "primary" : "")),
    facts([
      ["Run", h("code", null, job.run)], ["Epoch", count(job.epoch)], [isRunning ? "Uptime" : "Took", duration(job.duration)],
      ["Records read", count(job["records-read"])], ["Rate", rate(isRunning ? shared.rates.of("") : null)],
      ["Late", count(job["late-records-dropped"]), job["late-records-dropped"] ? "warn" : null], ["Restarts", count(job.restarts)],
      ["Parallelism", count(job.parallelism ?? details.plan.nodes[0]?.parallelism)], ["State", bytes(size.bytes)], ["Entries", count(size.entries)],
    ]));
}

// Operators have ids in Flink's form; all else about them goes by uid.
function byUid(details) {
  for (const each of [...details.vertices, ...details.plan.nodes, ...details.plan.nodes.flatMap((node) => node.inputs)]) each.id = each.uid;
  return details;
}
