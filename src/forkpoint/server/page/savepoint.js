// One savepoint: what is in it, and what can be done with it.

import { call, get, path, query } from "./api.js";
import { ask, check, field } from "./dialogs.js";
import { h, say } from "./dom.js";
import { bytes, count } from "./format.js";
import { action, emptiness, facts, stateKey, table, when } from "./parts.js";
import { checkProgram, forkJob } from "./starting.js";

/** `compare(before, after)` shows a comparison; `load()` looks again. */
export function savepointCard(shared, { compare, load }) {
  let id = null, states = null, problem = null;
  const place = (...more) => path("catalog", "savepoints", id, ...more);
  const root = () => query({ root: shared.details.overview.root });

  async function fetchStates() {
    if (id === null || states !== null) return;
    try {
      ({ states } = await get(place("states") + root()));
    } catch (error) {
      if (![404, 409].includes(error.status)) throw error;
      [problem, states] = [error.message, []];
    }
  }

  function draw(listed) {
    const saved = listed.get(id);
    if (saved === undefined) return emptiness("This savepoint is gone", problem ?? "It was disposed, or is not below this server's state roots.");
    const why = shared.app.whyNot(), others = [...listed.values()].filter((each) => each.id !== id);
    return h("section", { class: "card", "aria-labelledby": "savepoint" },
      h("h2", { id: "savepoint" }, saved.label ?? saved.id),
      saved.note && h("p", { class: "lines" }, saved.note),
      facts([["Id", h("code", null, saved.id)], ["Job", saved.job], ["Epoch", count(saved.epoch)], ["Taken", when(saved.created_ms)], ["Run", h("code", null, saved.run)],
        ["Entries", count(saved.entries)], ["Size", bytes(saved.bytes)], saved.drained && ["Drained", "yes", "warn"]]),
      h("div", { class: "actions", role: "group", "aria-label": "Savepoint actions" },
        h("a", { class: "button primary", href: `#/jobs/${shared.id}/state/${encodeURIComponent(id)}` }, "Open its state"),
        action("Check a program …", shared.app.whyNot(true), () => checkProgram(shared, saved)),
        action("Fork …", shared.app.whyNot(true), () => forkJob(shared, saved)),
        action("Label …", why, () => label(saved)), action("Dispose …", why, () => dispose(saved), "danger plain")),
      others.length > 0 && h("form", { class: "tools", on: { submit: (event) => { event.preventDefault(); compare(id, event.target.elements.other.value); } } },
        h("label", null, "Compare with", h("select", { name: "other" }, others.reverse().map((each) =>
          h("option", { key: each.id, value: each.id }, `${each.label ?? each.id} · ${each.job}, epoch ${count(each.epoch)}`)))),
        h("button", { type: "submit" }, "Compare")),
      problem && h("p", { class: "error" }, problem),
      states === null ? h("p", { class: "quiet" }, "Loading …") : table("States in this savepoint", [["uid"], ["State"], ["Kind"], ["Key"], ["Type"], ["Rows", "n"], ["Bytes", "n"]],
        states.map((each) => [stateKey(each), [h("code", null, each.uid), h("a", { href: `#/jobs/${shared.id}/state/${[id, each.uid, each.state].map(encodeURIComponent).join("/")}` }, each.state),
          each.kind, each.key_type ?? "–", h("code", null, each.type ?? "–"), count(each.rows), bytes(each.bytes)]])));
  }

  async function label(saved) {
    const made = await ask({
      title: "Label this savepoint", label: "Save",
      fields: () => [field("Label", h("input", { name: "label", value: saved.label ?? "", autocomplete: "off", maxlength: 100 }), "empty: no label"),
        field("Note", h("textarea", { name: "note", rows: 3, maxlength: 2000, value: saved.note ?? "" })),
        check("force", "Take the label from another savepoint that has it")],
      submit: async (form) => {
        const name = form.elements.label.value.trim();
        const body = { note: form.elements.note.value.trim(), force: form.elements.force.checked };
        if (name !== "") body.label = name;
        else if (saved.label !== null) body.remove = true;
        return call("PATCH", place() + root(), body);
      },
    });
    if (made === undefined) return;
    say("The savepoint is labelled.");
    await load();
    shared.app.redraw();
  }

  async function dispose(saved) {
    const made = await ask({
      title: `Dispose of ${saved.label ?? saved.id}?`, text: "Its files are deleted. This cannot be undone.", label: "Dispose", danger: true,
      fields: () => [check("force", "Even if a run or another savepoint depends on it")],
      submit: (form) => call("DELETE", place() + query({ root: shared.details.overview.root, force: form.elements.force.checked })),
    });
    if (made === undefined) return;
    say("The savepoint is gone.");
    shared.app.go(`#/jobs/${shared.id}/savepoints`);
  }

  return { choose: (chosen) => { [id, states, problem] = [chosen, null, null]; }, load: fetchStates, draw };
}
