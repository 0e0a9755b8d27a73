// Results of requests, in words and tables.

import { h } from "./dom.js";
import { count, duration, value } from "./format.js";
import { facts, table } from "./parts.js";

const ORDER = ["refused", "dropped", "migrated", "new", "kept", "restored"];  // what matters first
const TONES = { restored: "good", migrated: "busy", dropped: "warn", refused: "bad", new: "busy" };

/** What came of a request. */
export function outcomes(request) {
  const { kind, result } = request;
  if (Array.isArray(result.rows) && typeof result.fits === "boolean") return checked(result);
  if (kind === "upgrade") return upgraded(result);
  if (kind === "rescale") return h("p", null, `Runs with parallelism ${count(result.parallelism)} from epoch ${count(result.epoch)} on.`);
  const shown = Object.entries(result).filter(([, each]) => each !== null && typeof each !== "object");
  return facts(shown.map(([name, each]) => [name.replaceAll("_", " "), h("code", null, value(each))]));
}

/** What a restore would do with each state, as a table. */
export function checked(result) {
  const refused = result.rows.filter((row) => row.outcome === "refused").length;
  return h("div", null,
    h("p", { class: `banner ${result.fits ? "good" : "bad"}` }, h("strong", null, result.fits ? "It fits. " : "It does not fit. "),
      result.fits ? "The program can be restored from this savepoint." : `${count(refused)} ${refused === 1 ? "part of the state is" : "parts of the state are"} refused; a run would not start.`),
    table("What a restore would do", [["Outcome"], ["What"], ["uid"], ["State"], ["Why"]],
      [...result.rows].sort((a, b) => ORDER.indexOf(a.outcome) - ORDER.indexOf(b.outcome)).map((row, i) => [i, [h("span", { class: `tag ${TONES[row.outcome] ?? ""}` }, row.outcome), row.subject, h("code", null, row.uid), row.name, row.why]])));
}

/** What came of an upgrade, and the way there. */
export function upgraded(result) {
  const back = result.outcome === "rolled-back", refused = result.outcome === "refused";
  const steps = refused
    ? [["done", "Checked: the program does not fit the job's state"], ["done", "Nothing was stopped"]]
    : [["done", "Checked against the job's state"], ["done", "Started beside the old version"],
      back ? ["bad", "Its trial failed"] : ["done", "Its trial succeeded"],
      back ? ["done", result.run === result.previous_run ? "The old version runs on" : "The old version runs again"] : ["done", "The new version runs"]];
  return h("div", { class: "upgrade" },
    h("p", { class: `banner ${back ? "warn" : "good"}` }, h("strong", null, back ? "It went back to the old version. " : "The new version runs. "),
      back ? "The new program failed in its trial; none of its output was published." : result.downtime_ms === null ? "" : `From commit to commit it took ${duration(result.downtime_ms)}.`),
    h("ol", { class: "steps" }, steps.map(([tone, text], i) => h("li", { key: i, class: tone }, text))),
    result.failure && h("pre", { class: "failure", tabindex: 0 }, result.failure),
    facts([["Runs", h("code", null, result.run)], ["Ran before", h("code", null, result.previous_run)], result.savepoint && ["Savepoint before", h("code", null, result.savepoint.split("/").pop())]]));
}
