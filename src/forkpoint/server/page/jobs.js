// All jobs, at a glance.

import { get } from "./api.js";
import { h } from "./dom.js";
import { count, duration, rate } from "./format.js";
import { action, emptiness, Rates, stateMark } from "./parts.js";
import { startJob } from "./starting.js";

const LIVE = new Set(["RUNNING", "INITIALIZING", "RESTARTING", "CANCELLING", "CREATED", "RECONCILING"]);

export function jobsView(app) {
  let jobs = [], health = { problems: [] };
  const rates = new Map();

  async function load() {
    const [overview, found] = await Promise.all([get("/jobs/overview"), get("/health")]);
    [jobs, health] = [overview.jobs, found];
    const known = new Set(jobs.map((job) => job.jid));
    for (const id of rates.keys()) if (!known.has(id)) rates.delete(id);
    for (const job of jobs) {
      if (!rates.has(job.jid)) rates.set(job.jid, new Rates());
      if (job["records-read"] !== null) rates.get(job.jid).note(Date.now(), { read: job["records-read"] });
    }
  }

  function draw() {
    const live = jobs.filter((job) => LIVE.has(job.state)), rest = jobs.filter((job) => !LIVE.has(job.state));
    return [
      h("div", { class: "head" }, h("h1", null, "Jobs"), h("p", { class: "quiet" }, summary(jobs)),
        h("div", { class: "actions" }, action("Start a job …", app.whyNot(true), () => startJob(app), "primary"))),
      health.problems.length > 0 && h("section", { class: "problems", "aria-label": "What is wrong" },
        h("h2", null, "What is wrong"), h("ul", null, health.problems.map((each) => h("li", { key: `${each.jid} ${each.text}`, class: each.severity },
          h("a", { href: `#/jobs/${each.jid}` }, each.job), `: ${each.text}`)))),
      jobs.length === 0 ? emptiness("No jobs yet", h("span", null, "Start a Python program with ", h("code", null, "forkpoint run -d app.py"),
        " below this server's state root, or here. It appears within a second.")) : null,
      live.length > 0 && jobTable("Jobs that run", "What is wrong", live),
      rest.length > 0 && [h("h2", { key: "ended" }, "Ended"), jobTable("Jobs that have ended", "Why it ended", rest)],
    ];
  }

  function jobTable(caption, told, listed) {
    const columns = ["Job", "State", "Epoch", "Uptime", "Records", "Rate", "Late", "Restarts", told];
    return h("div", { class: "card" }, h("table", { class: "jobs" },
      h("caption", { class: "hidden" }, caption),
      h("thead", null, h("tr", null, columns.map((name, i) => h("th", { key: i, scope: "col", class: i > 1 && i < 8 ? "n" : null }, name)))),
      h("tbody", null, listed.map((job) => row(job)))));
  }

  function row(job) {
    const told = job.problems[0]?.text ?? job.reason ?? job.doing, isLive = LIVE.has(job.state);
    const cell = (label, content, kind = "n") => h("td", { "data-label": label, class: kind }, content);
    return h("tr", { key: job.jid },
      h("th", { scope: "row" }, h("a", { href: `#/jobs/${job.jid}`, class: "strong" }, job.name), app.config.roots.length > 1 && h("small", null, job.root)),
      cell("State", stateMark(job.state, job["forkpoint-state"]), "s"),
      cell("Epoch", count(job.epoch)), cell("Uptime", duration(job.duration)), cell("Records", count(job["records-read"])),
      cell("Rate", isLive ? rate(rates.get(job.jid)?.of("read")) : "–"), cell("Late", count(job["late-records-dropped"])),
      cell("Restarts", count(job.restarts)), cell("", told === null ? "" : told, told === null ? "why none" : "why"));
  }

  return { title: "Jobs", load, draw };
}

function summary(jobs) {
  const states = new Map();
  for (const job of jobs) states.set(job["forkpoint-state"], (states.get(job["forkpoint-state"]) ?? 0) + 1);
  return [...states].map(([state, n]) => `${n} ${state}`).join(" · ");
}
