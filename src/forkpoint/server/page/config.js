// What a job was started with.

import { get } from "./api.js";
import { h } from "./dom.js";
import { count, duration, value } from "./format.js";
import { stateMark, table, when } from "./parts.js";

const RUN_STATES = { running: "RUNNING", finished: "FINISHED", stopped: "FINISHED", superseded: "FINISHED", cancelled: "CANCELED", failed: "FAILED", lost: "SUSPENDED", restarting: "RESTARTING" };

export function configView(shared) {
  let config = null, runs = [];

  async function load() {
    [config, { runs }] = await Promise.all([get(shared.path("config")), get(shared.path("runs"))]);
  }

  function draw() {
    if (config === null) return h("p", { class: "quiet" }, "Loading …");
    const execution = config["execution-config"];
    return [
      h("h2", { key: "runs" }, "Runs"),
      table("Runs of this job, newest first", [["Run"], ["State"], ["Started", "n"], ["Ran", "n"], ["Epoch", "n"], ["From"], ["Program"], ["Why it ended"]],
        runs.map((run) => [run.run, [h("code", null, run.run), stateMark(RUN_STATES[run.state] ?? "CREATED", run.state), when(run.started_ms),
          duration((run.ended_ms ?? shared.details.now) - run.started_ms), count(run.epoch), origin(run.parent), h("code", null, run.program ?? "–"), run.reason ?? ""]])),
      h("h2", { key: "options" }, "Options"),
      pairs("Options", { ...config.options, restart_strategy: execution["restart-strategy"], state_root: shared.details.overview.root }),
      Object.keys(execution["user-config"]).length > 0 && [h("h2", { key: "parameters" }, "Parameters of the program"), pairs("Parameters", execution["user-config"])],
      h("h2", { key: "versions" }, "Versions"),
      pairs("Versions", config.versions),
    ];
  }

  return { every: 5000, load, draw };
}

function origin(parent) {
  if (parent.kind === "savepoint") return ["savepoint ", h("code", null, parent.savepoint_id ?? parent.savepoint_path)];
  return parent.kind === "checkpoint" ? ["epoch ", count(parent.epoch), " of ", h("code", null, parent.run ?? parent.job)] : "the beginning";
}

function pairs(caption, all) {
  const kept = Object.entries(all).filter(([, each]) => each !== null && !(typeof each === "object" && Object.keys(each).length === 0));
  return table(caption, [["Name", "name"], ["Value"]], kept.map(([name, each]) => [name, [name.replaceAll("_", " "), h("code", null, value(each))]]));
}
