// All jobs, at a glance.

import { query } from "./address.js";
import { get } from "./api.js";
import { field } from "./dialogs.js";
import { h } from "./dom.js";
import { count, duration, rate } from "./format.js";
import { action, emptiness, Rates, stateMark } from "./parts.js";
import { startJob } from "./starting.js";

const LIVE = new Set(["RUNNING", "INITIALIZING", "RESTARTING", "CANCELLING", "CREATED", "RECONCILING"]);
const names = new Intl.Collator("en", { numeric: true });

/** Which jobs can be shown: name in the address, label, and whether a job is one of them. */
const GROUPS = [
  ["", "All", () => true], ["wrong", "With problems", (job) => job.problems.length > 0], ["running", "Running", (job) => job.state === "RUNNING"],
  ["changing", "Starting or ending", (job) => LIVE.has(job.state) && job.state !== "RUNNING"],
  ["failed", "Failed or lost", (job) => ["FAILED", "SUSPENDED"].includes(job.state)], ["ended", "Ended", (job) => ["FINISHED", "CANCELED"].includes(job.state)],
];

/** What jobs can be sorted by: name in the address, heading, and a job's value. */
const COLUMNS = [
  ["name", "Job", (job) => job.name], ["state", "State", (job) => job["forkpoint-state"]], ["epoch", "Epoch", (job) => job.epoch],
  ["uptime", "Uptime", (job) => job.duration], ["records", "Records", (job) => job["records-read"]], ["rate", "Rate", (job, rates) => rates.get(job.jid)?.of("read") ?? null],
  ["late", "Late", (job) => job["late-records-dropped"]], ["restarts", "Restarts", (job) => job.restarts], ["told", null, (job) => told(job) || null],
];
const isText = (name) => ["name", "state", "told"].includes(name);

const told = (job) => job.problems[0]?.text ?? job.reason ?? job.doing ?? "";

/** `parameters`: of the address. */
export function jobsView(app, parameters) {
  let jobs = [], asked = false;
  const rates = new Map();
  const wanted = { q: parameters.get("q") ?? "", show: oneOf(GROUPS, parameters.get("show")), sort: oneOf(COLUMNS, parameters.get("sort")), down: parameters.get("down") === "1" };
  app.jobs = address();

  function address() {
    return `#/jobs${query({ ...wanted, down: wanted.sort && wanted.down ? "1" : null })}`;
  }

  function want(changes) {
    Object.assign(wanted, changes);
    app.jobs = address();
    history.replaceState(null, "", app.jobs);
    app.redraw();
  }

  async function load() {
    jobs = (await get("/jobs/overview")).jobs;
    asked = true;
    const known = new Set(jobs.map((job) => job.jid));
    for (const id of rates.keys()) if (!known.has(id)) rates.delete(id);
    for (const job of jobs) {
      if (!rates.has(job.jid)) rates.set(job.jid, new Rates());
      if (job["records-read"] !== null) rates.get(job.jid).note(Date.now(), { read: job["records-read"] });
    }
  }

  function draw() {
    const found = jobs.filter((job) => matches(job, wanted.q, app.config.roots.length > 1 ? job.root : "")), listed = sorted(found.filter(GROUPS.find(([name]) => name === wanted.show)[2]));
    const live = listed.filter((job) => LIVE.has(job.state)), rest = listed.filter((job) => !LIVE.has(job.state));
    return [
      h("div", { class: "head" }, h("h1", null, "Jobs"), h("p", { class: "quiet" }),
        h("div", { class: "actions" }, action("Start a job …", app.whyNot(true), () => startJob(app), "primary"))),
      jobs.length > 0 && tools(found),
      asked && jobs.length === 0 ? emptiness("No jobs yet", h("span", null, "Start a Python program with ", h("code", null, "forkpoint run -d app.py"),
        " below this server's state root, or here. It appears within a second.")) : null,
      jobs.length > 0 && listed.length === 0 && emptiness("No job is like this", `There are ${count(jobs.length)} jobs in all.`,
        h("button", { type: "button", on: { click: () => want({ q: "", show: "" }) } }, "Show all")),
      live.length > 0 && jobTable("Jobs that run", "What is wrong", live),
      rest.length > 0 && [h("h2", { key: "ended" }, "Ended"), jobTable("Jobs that have ended", "Why it ended", rest)],
    ];
  }

  function tools(found) {
    return h("div", { class: "tools jobs-tools", role: "search" },
      field("Search", h("input", { type: "search", name: "q", value: wanted.q, placeholder: "name, run or what is wrong", autocomplete: "off", on: { input: (event) => want({ q: event.target.value }) } })),
      h("div", { class: "chips", role: "group", "aria-label": "Show" }, GROUPS.map(([name, label, is]) => {
        const n = found.filter(is).length;
        return (n > 0 || name === "" || name === wanted.show) && h("button", { key: name, type: "button", "aria-pressed": String(wanted.show === name), on: { click: () => want({ show: name }) } }, label, h("span", { class: "quiet" }, ` ${count(n)}`));
      })),
      h("label", { class: "by" }, "Sort by", h("select", { value: wanted.sort, on: { change: (event) => want({ sort: event.target.value, down: event.target.value !== "" && !isText(event.target.value) }) } },
        h("option", { value: "" }, "started last"), COLUMNS.map(([name, heading]) => h("option", { key: name, value: name }, heading ?? "What is wrong")))));
  }

  function sorted(found) {
    if (wanted.sort === "") return found;
    const of = COLUMNS.find(([name]) => name === wanted.sort)[2], sign = wanted.down ? -1 : 1;
    const keyed = found.map((job) => [of(job, rates), job]);
    keyed.sort(([a], [b]) => (a === null ? (b === null ? 0 : 1) : b === null ? -1 : sign * (typeof a === "string" ? names.compare(a, b) : a - b)));
    return keyed.map(([, job]) => job);
  }

  /** First the way that is asked for most, then the other one, then none. */
  function turn(name) {
    const first = !isText(name);
    if (wanted.sort !== name) want({ sort: name, down: first });
    else want(wanted.down === first ? { down: !first } : { sort: "", down: false });
  }

  function jobTable(caption, last, listed) {
    return h("div", { class: "card" }, h("table", { class: "jobs" },
      h("caption", { class: "hidden" }, caption),
      h("thead", null, h("tr", null, COLUMNS.map(([name, heading]) => {
        const isSorted = wanted.sort === name;
        return h("th", { key: name, scope: "col", class: isText(name) ? null : "n", "aria-sort": isSorted ? (wanted.down ? "descending" : "ascending") : null },
          h("button", { type: "button", class: "sort", on: { click: () => turn(name) } }, heading ?? last, h("span", { class: "way", "aria-hidden": "true" }, isSorted ? (wanted.down ? "▼" : "▲") : "")));
      }))),
      h("tbody", null, listed.map((job) => row(job)))));
  }

  function row(job) {
    const isLive = LIVE.has(job.state), why = told(job), more = job.problems.length - 1;
    const cell = (label, content, kind = "n") => h("td", { "data-label": label, class: kind }, content);
    return h("tr", { key: job.jid },
      h("th", { scope: "row" }, h("a", { href: `#/jobs/${job.jid}`, class: "strong", title: job.name }, job.name), app.config.roots.length > 1 && h("small", null, job.root)),
      cell("State", stateMark(job.state, job["forkpoint-state"]), "s"),
      cell("Epoch", count(job.epoch)), cell("Uptime", duration(job.duration)), cell("Records", count(job["records-read"])),
      cell("Rate", isLive ? rate(rates.get(job.jid)?.of("read")) : "–"), cell("Late", count(job["late-records-dropped"])),
      cell("Restarts", count(job.restarts)),
      cell("", why !== "" && [h("div", { class: "lines-3", title: why }, why), more > 0 && h("a", { href: `#/jobs/${job.jid}` }, `and ${count(more)} more`)], why === "" ? "why none" : "why"));
  }

  return { title: "Jobs", load, draw };
}

/** The name if it is one of those known; else none. */
const oneOf = (known, name) => (known.some(([each]) => each === name) ? name : "");

/** `where`: the state root, if there are several. */
function matches(job, q, where) {
  const words = q.toLowerCase().split(/\s+/).filter(Boolean), text = [job.name, job.run, where, job["forkpoint-state"], told(job)].join("\n").toLowerCase();
  return words.every((word) => text.includes(word));
}
