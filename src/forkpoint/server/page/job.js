// A job: what it is, what can be done with it, and its parts.

import { cancel, rescale, stop, takeSavepoint } from "./actions.js";
import { get, path } from "./api.js";
import { configView } from "./config.js";
import { h } from "./dom.js";
import { epochsView } from "./epochs.js";
import { exceptionsView } from "./exceptions.js";
import { bytes, count, duration, plural, rate } from "./format.js";
import { graphView } from "./graph.js";
import { logView } from "./log.js";
import { records } from "./operators.js";
import { action, facts, Rates, stateMark } from "./parts.js";
import { savepointsView } from "./savepoints.js";
import { forkJob, upgradeJob } from "./starting.js";
import { stateView } from "./state.js";

const TABS = [
  ["graph", "Graph", graphView], ["epochs", "Epochs", epochsView], ["savepoints", "Savepoints", savepointsView],
  ["state", "State", stateView], ["exceptions", "Exceptions", exceptionsView], ["log", "Log", logView],
  ["configuration", "Configuration", configView],
];

const TONES = { critical: "bad", warning: "warn" };

/** `before`: the view that was shown: the same job's goes on. */
export function jobView(app, [id, tab = "graph", ...rest], before) {
  if (before?.id === id) {
    before.turnTo(tab, rest);
    return before;
  }
  const shared = { id, app, details: null, rates: new Rates(), path: (...parts) => path("jobs", id, ...parts) };
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
      shared.rates.note(shared.details.now, { ...counts, ...busy, "": shared.details.overview["records-read"] ?? 0 });
      const mine = part;
      if (mine.load !== undefined && (now || Date.now() - asked >= (mine.every ?? 0))) {
        asked = Date.now();
        await mine.load();
      }
    },
    draw: () => [head(shared), tabs(), h("section", { class: "part", key: current, "aria-label": TABS.find(([name]) => name === current)[1] }, part.draw())],
  };

  function tabs() {
    return h("nav", { class: "tabs", "aria-label": "Parts of this job" }, TABS.map(([name, label]) =>
      h("a", { key: name, href: `#/jobs/${id}/${name}`, "aria-current": name === current ? "page" : null }, label)));
  }

  view.turnTo(tab, rest);
  return view;
}

function head(shared) {
  const { details, app } = shared, job = details.overview, isRunning = ["RUNNING", "RESTARTING", "INITIALIZING"].includes(details.state);
  const told = job.reason ?? job.doing;
  const notRunning = app.whyNot() ?? (isRunning ? null : "The job is not running.");
  return h("div", { class: "head job" },
    h("p", { class: "crumbs" }, h("a", { href: "#/jobs" }, "Jobs"), " / "),
    h("h1", null, details.name), stateMark(details.state, job["forkpoint-state"]),
    job.problems.map((each) => h("p", { class: `banner ${TONES[each.severity]}`, key: `${each.kind} ${each.uid}`, role: "status" }, each.text)),
    told && !job.problems.some((each) => each.text.includes(told)) && h("p", { class: `banner ${details.state === "RUNNING" ? "" : "bad"}`, role: "status" }, told),
    facts([
      ["Run", h("code", null, job.run)], ["Epoch", count(job.epoch)], [isRunning ? "Uptime" : "Took", duration(job.duration)],
      ["Records read", count(job["records-read"])], isRunning && ["Rate", rate(shared.rates.of(""))],
      ["Late", count(job["late-records-dropped"]), job["late-records-dropped"] ? "warn" : null], ["Restarts", count(job.restarts)],
      ["Parallelism", count(job.parallelism)],
      details["state-size"].entries !== null && ["State", stateSize(details["state-size"])],
    ]),
    h("div", { class: "actions", role: "group", "aria-label": "Actions" },
      action("Take savepoint …", notRunning, () => takeSavepoint(shared), "primary"),
      action("Upgrade …", notRunning ?? app.whyNot(true), () => upgradeJob(shared)),
      action("Fork …", app.whyNot(true), () => forkJob(shared)),
      action("Rescale …", notRunning, () => rescale(shared)),
      action("Stop …", notRunning, () => stop(shared)),
      action("Cancel …", notRunning, () => cancel(shared), "danger plain")));
}

function stateSize({ entries, bytes: size }) {
  const listed = plural(entries, "entry", "entries");
  return size === null ? listed : `${listed}, ${bytes(size)}`;
}

// Operators have ids in Flink's form; all else about them goes by uid.
function byUid(details) {
  for (const each of [...details.vertices, ...details.plan.nodes, ...details.plan.nodes.flatMap((node) => node.inputs)]) each.id = each.uid;
  return details;
}
