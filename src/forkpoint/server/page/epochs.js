// A running job's latest epochs: how long each took, by phase, and how much it wrote.

import { get } from "./api.js";
import { h } from "./dom.js";
import { bytes, count, duration } from "./format.js";
import { emptiness, facts, stateMark, table, when } from "./parts.js";

const PHASES = ["planned", "computed", "written", "committed", "published"];
const STEPS = { computed: "compute", written: "write", committed: "commit", published: "publish" };
const SHOWN = 60, LISTED = 20;
const HEIGHT = 160;

export function epochsView(shared) {
  let found = null, settings = null;

  async function load() {
    settings ??= await get(shared.path("checkpoints", "config"));
    found = await get(shared.path("checkpoints"));
  }

  function draw() {
    if (found === null) return h("p", { class: "quiet" }, "Loading …");
    if (found.history.length === 0) return emptiness("No epochs", "A job notes its latest epochs while it runs.");
    const { end_to_end_duration: took, checkpointed_size: size } = found.summary, { counts } = found;
    return [
      facts([["Committed", count(counts.completed)], ["Attempts failed", count(counts.failed), counts.failed ? "warn" : null], ["Interval", duration(settings.interval)],
        ["Median", duration(took.p50)], ["90 %", duration(took.p90)], ["99 %", duration(took.p99)], ["Longest", duration(took.max)],
        ["Size, median", bytes(size.p50)], ["Size, largest", bytes(size.max)],
        found.latest.restored && ["Restored from epoch", count(found.latest.restored.id)]]),
      chart(found.history.slice(0, SHOWN).reverse()),
      h("h2", { key: "latest" }, "Latest epochs"),
      table("Latest epochs, newest first",
        [["Epoch", "n"], ["Begun", "n"], ["State"], ...Object.values(STEPS).map((name) => [name, "n"]), ["In all", "n"], ["Written", "n"], ["Records", "n"]],
        found.history.slice(0, LISTED).map((epoch) => [epoch.id, [count(epoch.id), when(epoch.trigger_timestamp), stateMark(epoch.status, epoch.status === "COMPLETED" ? "committed" : "under way"),
          ...stretches(epoch).map((each) => (each.ms === null ? "–" : duration(each.ms))), duration(epoch.end_to_end_duration), bytes(epoch.checkpointed_size), count(read(epoch))]])),
    ];
  }

  /** What its sources read in an epoch. */
  function read(epoch) {
    const sources = shared.details.plan.nodes.filter((node) => node.inputs.length === 0);
    return sources.reduce((sum, node) => sum + (epoch.records[node.id] ?? 0), 0);
  }

  return { load, draw };
}

/** The time from phase to phase. */
function stretches(epoch) {
  let last = epoch.phases.planned ?? epoch.trigger_timestamp;
  return PHASES.slice(1).map((phase) => {
    const at = epoch.phases[phase];
    const ms = at === undefined ? null : Math.max(0, at - last);
    last = at ?? last;
    return { phase, ms };
  });
}

function chart(epochs) {
  const bars = epochs.map((epoch) => [epoch, stretches(epoch)]);
  const longest = nice(Math.max(1, ...bars.map(([, parts]) => parts.reduce((sum, part) => sum + (part.ms ?? 0), 0))));
  const y = (ms) => HEIGHT - (ms / longest) * HEIGHT;
  const told = `Time that each of the latest ${epochs.length} epochs took, by phase; the table below has the numbers.`;
  return h("figure", { class: "card chart" },
    h("figcaption", null, h("span", { class: "strong" }, "Time by phase"), h("span", { class: "legend" }, Object.entries(STEPS).map(([phase, name]) =>
      h("span", { key: phase }, h("svg", { viewBox: "0 0 10 10", "aria-hidden": "true" }, h("rect", { class: phase, width: 10, height: 10, rx: 2 })), name)))),
    h("div", { class: "plot" },
      h("svg", { viewBox: `0 0 ${SHOWN * 10} ${HEIGHT}`, role: "img", "aria-label": told, preserveAspectRatio: "none" },
        [0, 0.5, 1].map((share) => h("line", { key: share, class: "grid", x1: 0, x2: SHOWN * 10, y1: y(share * longest), y2: y(share * longest) })),
        bars.map(([epoch, parts], i) => h("g", { key: epoch.id }, h("title", null, `Epoch ${epoch.id}: ${parts.map(({ phase, ms }) => `${STEPS[phase]} ${duration(ms)}`).join(", ")}`),
          stacked(parts).map(({ phase, from, to }) => h("rect", { key: phase, class: phase, x: (SHOWN - epochs.length + i) * 10 + 1, width: 8, y: y(to), height: y(from) - y(to) }))))),
      h("div", { class: "axis", "aria-hidden": "true" }, [1, 0.5, 0].map((share) => h("span", { key: share, style: { top: `${100 - share * 100}%` } }, duration(share * longest))))));
}

/** The phases that took time, each from where the one before ends. */
function stacked(parts) {
  let at = 0;
  return parts.filter((part) => part.ms).map(({ phase, ms }) => ({ phase, from: at, to: (at += ms) }));
}

/** The next round number. */
function nice(ms) {
  const magnitude = 10 ** Math.floor(Math.log10(ms));
  return [1, 2, 5, 10].map((n) => n * magnitude).find((n) => n >= ms);
}
