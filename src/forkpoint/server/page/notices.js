// What is wrong with a job, in a place that is always there: what comes and goes moves nothing beside it.

import { h } from "./dom.js";
import { count, duration } from "./format.js";
import { holds } from "./operators.js";

const TONES = { critical: "bad", warning: "warn" };
const START = 60; // characters by which a failure is known again
const LINES = 2, NARROW = 700;

/** The sentences, the worst first; each failure once, and in full. */
function sentences({ details, id }) {
  const job = details.overview, held = holds(details.sources).filter((each) => each.isNotable), slow = new Set(held.map((each) => each.uid));
  const found = job.problems.filter((each) => each.kind !== "watermark" || !slow.has(each.uid))
    .map((each) => ({ key: `${each.kind} ${each.uid}`, tone: TONES[each.severity], text: each.text }));
  const told = (job.reason ?? job.doing)?.trim();
  if (told) {
    const start = told.split("\n")[0].trim().slice(0, START), same = found.find((each) => each.text.includes(start));
    if (same !== undefined) same.text = same.text.slice(0, same.text.indexOf(start)) + told;
    else if (details.state === "RUNNING" && job.reason) found.push({ key: "told", tone: "", text: `It has restarted after: ${told}` });
    else found.push({ key: "told", tone: job.reason ? "bad" : "", text: told });
  }
  return [...found, ...held.map((each) => heldBack(each, id))];
}

function heldBack(held, id) {
  const others = held.others > 0 ? ` (and ${count(held.others)} more)` : "";
  const why = held.behind === null ? "it has no watermark yet, the others have" : `it is ${duration(held.behind)} behind the next one, ${held.next}`;
  return { key: `held ${held.uid}`, tone: "warn", text: `Split ${held.split} of source ${held.uid} holds the watermark back${others}: ${why}.`,
    more: h("a", { href: `#/jobs/${id}/graph/${encodeURIComponent(held.uid)}` }, "Show its splits") };
}

/** Two lines, and all on request. */
export function noticesOf(shared) {
  let isOpen = false;

  function draw() {
    const all = sentences(shared);
    if (all.length === 0) return h("div", { class: "notices", key: "notices", role: "status" }, h("p", { class: "quiet" }, "Nothing is wrong."));
    const [worst] = all, isLong = all.length > 1 || worst.text.includes("\n") || worst.text.length > room();
    const label = isOpen ? "Show less" : all.length > 1 ? `Show all ${count(all.length)}` : "Show all";
    return h("div", { class: `notices ${worst.tone}${isOpen && isLong ? " open" : ""}`, key: "notices", role: "status" },
      h("div", { class: "told", id: "told", tabindex: isOpen && isLong ? 0 : null }, (isOpen ? all : [worst]).map((each) => h("p", { key: each.key, class: each.tone }, each.text, each.more && [" ", each.more]))),
      isLong && h("button", { type: "button", class: "plain", "aria-expanded": String(isOpen), "aria-controls": "told", on: { click: () => { isOpen = !isOpen; shared.app.redraw(); } } }, label));
  }

  return { draw };
}

/** About how many characters there is room for. */
const room = () => LINES * ((Math.min(innerWidth, 1760) - (innerWidth < NARROW ? 60 : 220)) / 8.2);
