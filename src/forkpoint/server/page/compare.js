// Two savepoints side by side: their states' types, entries and values.

import { call, finished, get, path, query } from "./api.js";
import { h } from "./dom.js";
import { count, isTime, value, watermark } from "./format.js";
import { progress, stateKey, table } from "./parts.js";

const TONES = { same: "", changed: "warn", added: "good", removed: "bad", other: "bad" };
const SCHEMA = ["kind", "key_type", "type"];

/** `nameOf(id)`: a savepoint's label, if it has one. */
export function compareView(shared, before, after, nameOf) {
  let found = null, types = [], request = null, problem = null, isAsked = false;

  async function load() {
    if (isAsked) return;
    isAsked = true;
    const root = query({ root: shared.details.overview.root });
    try {
      const accepted = await call("POST", `/catalog/diffs${root}`, { before, after, samples: 10 });
      types = await Promise.all([before, after].map(async (id) => (await get(path("catalog", "savepoints", id, "states") + root)).states));
      found = await finished(accepted, (asked) => { request = asked; shared.app.redraw(); });
    } catch (error) {
      problem = error.message;
    }
    shared.app.redraw();
  }

  function draw() {
    return h("section", { class: "card compare", "aria-labelledby": "compared", "aria-live": "polite", tabindex: -1, key: `${before}/${after}`, made: (section) => requestAnimationFrame(() => { section.focus({ preventScroll: true }); section.scrollIntoView(); }) },
      h("h2", { id: "compared" }, "Compared: ", nameOf(before), " → ", nameOf(after)),
      problem ? h("p", { class: "error", role: "alert" }, problem) : found === null ? h("p", { class: "quiet" }, request?.step ?? "Comparing …", " ", request && progress(request)) : result());
  }

  function result() {
    const changed = found.states.filter((state) => state.outcome !== "same");
    return [
      h("p", { class: `banner ${found.same ? "good" : ""}` }, found.same ? "They are the same." : told(changed)),
      schema(),
      h("h3", { key: "values" }, "Values"),
      table("States", [["uid"], ["State"], ["Outcome"], ["Rows before", "n"], ["Rows after", "n"], ["Added", "n"], ["Removed", "n"], ["Changed", "n"], ["Why"]],
        found.states.map((each) => [stateKey(each), [h("code", null, each.uid), each.state, h("span", { class: `tag ${TONES[each.outcome]}` }, each.outcome),
          count(each.rows_before), count(each.rows_after), count(each.added), count(each.removed), count(each.changed), each.why]])),
      changed.filter((each) => each.samples.length > 0).map((each, i) => samples(each, i === 0)),
      found.positions.length > 0 && [h("h3", { key: "p" }, "Positions of sources"), both("Positions", found.positions, (each) => h("code", null, value(each)))],
      found.watermarks.length > 0 && [h("h3", { key: "w" }, "Watermarks"), both("Watermarks", found.watermarks, (ms) => (isTime(ms) ? watermark(ms) : value(ms)))],
    ];
  }

  function told(changed) {
    const sum = (name) => found.states.reduce((all, state) => all + state[name], 0);
    return `${count(changed.length)} of ${count(found.states.length)} states differ: ${count(sum("added"))} entries added, ${count(sum("removed"))} removed, ${count(sum("changed"))} changed.`;
  }

  /** The states whose kind or types differ. */
  function schema() {
    const [old, now] = types.map((states) => new Map(states.map((each) => [stateKey(each), each])));
    const differing = [...new Set([...old.keys(), ...now.keys()])].filter((each) => SCHEMA.some((part) => old.get(each)?.[part] !== now.get(each)?.[part]));
    const shown = (each) => (each === undefined ? "–" : [each.kind, each.type && `of ${each.type}`, each.key_type && `by ${each.key_type}`].filter(Boolean).join(" "));
    return [h("h3", { key: "schema" }, "Schema"), differing.length === 0 ? h("p", { key: "none", class: "quiet" }, `All ${count(old.size)} states have the same types.`)
      : table("States with other types", [["State"], ["Before"], ["After"]], differing.map((each) => [each, [h("code", null, JSON.parse(each).join(" / ")), h("code", null, shown(old.get(each))), h("code", null, shown(now.get(each)))]]))];
  }

  return { load, draw };
}

function samples(state, isOpen) {
  const total = state.added + state.removed + state.changed, roles = Object.keys(state.samples[0]).filter((name) => !["change", "before", "after"].includes(name));
  return h("details", { key: stateKey(state), open: isOpen }, h("summary", null, h("code", null, `${state.uid} / ${state.state}`), `: ${count(state.samples.length)} of ${count(total)} differences`),
    table(`Differences of ${state.state}`, [...roles.map((role) => [role]), ["Change"], ["Before"], ["After"]],
      state.samples.map((each, i) => [i, [...roles.map((role) => h("code", null, value(each[role]))), each.change, h("code", null, each.before === null ? "–" : value(each.before)), h("code", null, each.after === null ? "–" : value(each.after))]])));
}

function both(caption, values, show) {
  const shown = (each) => (each === null ? "–" : show(each));
  return table(caption, [["uid"], ["Before"], ["After"]], values.map((each) => [each.uid, [h("code", null, each.uid), shown(each.before), shown(each.after)]]));
}
