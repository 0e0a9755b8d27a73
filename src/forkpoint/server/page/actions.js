// What can be done with a running job. Each asks first.

import { call, finished } from "./api.js";
import { ask, check, field } from "./dialogs.js";
import { h, say } from "./dom.js";
import { count } from "./format.js";

export async function takeSavepoint(shared) {
  const made = await ask({
    title: `Take a savepoint of ${shared.details.name}`, text: "The job goes on meanwhile.", label: "Take savepoint",
    fields: () => [field("Label", h("input", { name: "label", autocomplete: "off", maxlength: 100 }), "optional; savepoints can be named by it"),
      field("Note", h("input", { name: "note", autocomplete: "off", maxlength: 1000 }), "optional")],
    submit: async (form, tell) => {
      const body = { label: form.elements.label.value.trim() || null, note: form.elements.note.value.trim() || null };
      const result = await finished(await call("POST", shared.path("savepoints"), body), (found) => tell(found.step ?? "Under way …"));
      return result.savepoint;
    },
  });
  if (made === undefined) return;
  say("The savepoint was taken.");
  shared.app.go(`#/jobs/${shared.id}/savepoints/${encodeURIComponent(made.split("/").pop())}`);
}

export async function stop(shared) {
  const made = await ask({
    title: `Stop ${shared.details.name}?`, text: "It stops with a savepoint, from which it can go on later.", label: "Stop with savepoint", danger: true,
    fields: () => [check("drain", "Drain", "send the end of event time first: all windows and timers fire, and the job should not be resumed")],
    submit: async (form, tell) => finished(
      await call("POST", shared.path("stop"), { drain: form.elements.drain.checked }), (found) => tell(found.step ?? "Stopping …")),
  });
  if (made !== undefined) done(shared, `${shared.details.name} is stopped.`);
}

export async function cancel(shared) {
  const made = await ask({
    title: `Cancel ${shared.details.name}?`, text: "It ends without a savepoint. What it has committed stays; it can go on from its latest epoch.",
    label: "Cancel job", danger: true, submit: () => call("PATCH", `${shared.path()}?mode=cancel`),
  });
  if (made !== undefined) done(shared, `${shared.details.name} is cancelled.`);
}

export async function rescale(shared) {
  const { details } = shared;
  const made = await ask({
    title: `Rescale ${details.name}`, text: `It runs with parallelism ${count(details.overview.parallelism)}. It pauses for a moment between two epochs.`,
    label: "Rescale",
    fields: () => [field("Parallelism", h("input", { name: "parallelism", type: "number", min: 1, required: true, value: details.overview.parallelism,
      max: details.maxParallelism > 0 ? details.maxParallelism : 32768 }), details.maxParallelism > 0 ? `1 to ${details.maxParallelism}` : null)],
    submit: async (form, tell) => finished(
      await call("PATCH", `${shared.path("rescaling")}?parallelism=${form.elements.parallelism.valueAsNumber}`), (found) => tell(found.step ?? "Rescaling …")),
  });
  if (made !== undefined) done(shared, `${details.name} runs with parallelism ${made.parallelism}.`);
}

function done(shared, text) {
  say(text);
  shared.app.refresh();
}
