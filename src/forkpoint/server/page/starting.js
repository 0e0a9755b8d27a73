// What starts or replaces jobs with a program: upgrade, fork, start, and the check before.

import { call, finished, get, Problem, query, upload } from "./api.js";
import { ask, check, field } from "./dialogs.js";
import { h, say } from "./dom.js";
import { count } from "./format.js";
import { checked } from "./outcomes.js";

/** The fields for a program: a file, or one that was uploaded before. `given`: the arguments that a job was started with. */
async function programFields(given = []) {
  const { programs } = await get("/programs");
  let isArchive = false;
  return (redraw) => [
    field("Program", h("input", { type: "file", name: "file", accept: ".py,.zip", on: { change: (event) => { isArchive = event.target.files[0]?.name.endsWith(".zip") ?? false; redraw(); } } }),
      "a Python file, or a ZIP archive with its modules beside it"),
    programs.length > 0 && field("or one that was uploaded before", h("select", { name: "program" }, h("option", { value: "" }, "–"),
      programs.slice(0, 50).map((each) => h("option", { key: each.id, value: each.id }, `${each.name} · ${new Date(each.uploaded_ms).toLocaleString()}`)))),
    isArchive && field("The program's file in the archive", h("input", { name: "main", placeholder: "app.py", autocomplete: "off" })),
    field("Arguments", h("textarea", { name: "arguments", rows: 2, autocomplete: "off", spellcheck: "false", value: given.join("\n") }), "one a line"),
  ];
}

/** The arguments that a job's newest run was started with. */
async function argumentsOf(shared) {
  const { runs } = await get(shared.path("runs"));
  return runs.find((run) => run.newest)?.arguments ?? [];
}

/** The id of the form's program, after it was uploaded, and its arguments. */
async function programOf(form, tell) {
  const { file, program, main, arguments: given } = form.elements;
  const lines = given.value.split("\n").filter((line) => line !== "");
  if (file.files.length === 0) {
    if (!program?.value) throw new Error("Choose a program.");
    return { program: program.value, arguments: lines };
  }
  const [chosen] = file.files, isArchive = chosen.name.endsWith(".zip");
  const name = isArchive ? main.value.trim() || "app.py" : chosen.name;
  tell(`Uploading ${chosen.name} …`);
  return { program: (await upload(`/programs${query({ name })}`, chosen)).id, arguments: lines };
}

const dropped = () => check("drop", "Drop state and fields that the program no longer has");
const parallelism = () => field("Parallelism", h("input", { name: "parallelism", type: "number", min: 1, max: 32768 }), "empty: as it is");
const numberOf = (input) => (input.value === "" ? null : input.valueAsNumber);

/** Ask for what is needed, begin it, and go to the request. */
async function begin(app, options, where, bodyOf, job = null) {
  const program = await programFields(job === null ? [] : await argumentsOf(job));
  const accepted = await ask({
    ...options, fields: (redraw) => [program(redraw), options.more],
    submit: async (form, tell) => call("POST", where, bodyOf(form, await programOf(form, tell))),
  });
  if (accepted !== undefined) app.go(`#/requests/${accepted["request-id"]}`);
}

export function upgradeJob(shared) {
  return begin(shared.app, {
    title: `Upgrade ${shared.details.name}`, label: "Upgrade",
    text: "The new program is checked against the job's state and started beside the old one. Its output is withheld during a trial; if it fails, the old program goes on as if nothing had been.",
    more: [field("Epochs of the trial", h("input", { name: "epochs", type: "number", min: 0, max: 1_000_000, value: 3, required: true }), "that it must commit before its output is published"),
      parallelism(), dropped(), check("stop", "Stop the old version first", "for clusters without room for both")],
  }, shared.path("upgrade"), (form, program) => ({
    ...program, watch_epochs: form.elements.epochs.valueAsNumber, parallelism: numberOf(form.elements.parallelism),
    allow_non_restored_state: form.elements.drop.checked, stop_first: form.elements.stop.checked,
  }), shared);
}

/** From a savepoint, or the current state of the job. */
export function forkJob(shared, saved = null) {
  const from = saved === null ? `the current state of ${shared.details.name}` : `savepoint ${saved.label ?? saved.id}`;
  return begin(shared.app, {
    title: `Fork ${shared.details.name}`, label: "Fork", text: `A new job starts from ${from}. The old one is not touched.`,
    more: [field("Name of the new job", h("input", { name: "name", required: true, maxlength: 200, autocomplete: "off" })), parallelism(), dropped()],
  }, shared.path("fork"), (form, program) => ({
    ...program, name: form.elements.name.value.trim(), origin: saved?.id ?? null, parallelism: numberOf(form.elements.parallelism),
    allow_non_restored_state: form.elements.drop.checked,
  }), shared);
}

/** Start a job again that has ended, where it ended or from a savepoint, like its newest run or an earlier one. */
export async function restartJob(shared) {
  const { details } = shared, job = details.overview;
  const [{ runs }, { savepoints }] = await Promise.all([get(shared.path("runs")), get(shared.path("savepoints"))]);
  const known = runs.filter((run) => run.program !== null), newest = runs.find((run) => run.newest) ?? runs[0];
  let chosen = newest, saved = "";
  const fields = (redraw) => [
    known.length > 1 && field("As run", h("select", { name: "run", on: { change: (event) => { chosen = runs.find((run) => run.run === event.target.value); redraw(); } } },
      known.slice(0, 50).map((run) => h("option", { key: run.run, value: run.run, selected: run === chosen }, `${run.run} · ${run.state} · ${run.program.split("/").pop()}`)))),
    h("dl", { class: "facts" }, h("div", null, h("dt", null, "Program"), h("dd", null, h("code", null, chosen.program ?? "not on record"))),
      h("div", null, h("dt", null, "Arguments"), h("dd", null, h("code", null, chosen.arguments?.join(" ") || "none")))),
    field("From", h("select", { name: "savepoint", on: { change: (event) => { saved = event.target.value; redraw(); } } },
      h("option", { value: "" }, job.epoch === null ? "where it ended" : `where it ended: epoch ${count(job.epoch)}`),
      [...savepoints].reverse().slice(0, 50).map((each) => h("option", { key: each.id, value: each.id }, `savepoint ${each.label ?? each.id}`))),
    saved === "" ? "nothing is lost, nothing is read twice" : "all since then is read again, and its output is written again"),
    parallelism(), dropped(),
    job["forkpoint-state"] === "stopped" && check("drained", "Also if it was stopped with a drain"),
  ];
  const made = await ask({
    title: `Start ${details.name} again?`, label: "Start again",
    text: "It runs in the background, on the server's machine, with the program as it was then, and the same arguments and options.", fields,
    submit: async (form, tell) => {
      const found = await finished(await call("POST", shared.path("restart"), {
        run: chosen.run, savepoint: saved || null, parallelism: numberOf(form.elements.parallelism),
        allow_non_restored_state: form.elements.drop.checked, allow_drained: form.elements.drained?.checked ?? false,
      }), (asked) => tell(asked.step ?? "The job is starting …"));
      if (found.failure) throw new Problem(409, `It runs as ${found.run}, but its first epoch fails again and again: ${found.failure}`);
      return found;
    },
  });
  if (made !== undefined) say(`${details.name} runs again.`);
  shared.app.refresh();
}

export function startJob(app) {
  const { roots } = app.config;
  return begin(app, {
    title: "Start a job", label: "Start", text: "It runs in the background, on the server's machine.",
    more: [roots.length > 1 && field("State root", h("select", { name: "root" }, roots.map((root) => h("option", { key: root, value: root }, root)))),
      field("Name", h("input", { name: "name", maxlength: 200, autocomplete: "off" }), "empty: the program's own"),
      field("Savepoint", h("input", { name: "savepoint", autocomplete: "off" }), "an id, a label, or “latest”; empty: where the job ended, or from the beginning"), parallelism(), dropped()],
  }, `/jobs${query({ root: roots.length === 1 ? roots[0] : null })}`, (form, program) => ({
    ...program, name: form.elements.name.value.trim() || null, savepoint: form.elements.savepoint.value.trim() || null,
    parallelism: numberOf(form.elements.parallelism), allow_non_restored_state: form.elements.drop.checked,
  }));
}

/** Check a program against a savepoint; the table is shown in the dialog, which stays. */
export async function checkProgram(shared, saved) {
  const program = await programFields(await argumentsOf(shared));
  let result = null;
  return ask({
    title: `Check a program against ${saved.label ?? saved.id}`, label: "Check", stays: true,
    text: "The program runs up to its first execute(). No job is started, and nothing is written.",
    fields: (redraw) => [program(redraw), dropped(), h("div", { class: "checked", "aria-live": "polite" }, result && checked(result))],
    submit: async (form, tell) => {
      result = null;
      const body = { ...(await programOf(form, tell)), savepoint: saved.id, name: saved.job, allow_non_restored_state: form.elements.drop.checked };
      tell("Checking …");
      const accepted = await call("POST", `/check${query({ root: shared.details.overview.root })}`, body);
      result = await finished(accepted, (found) => tell(found.remarks.at(-1) ?? "Checking …"));
    },
  });
}
