// The page: what the address names is shown, and kept up to date while it can be seen.

import { parsed } from "./address.js";
import { forgetToken, get, hasToken, setToken, takeToken } from "./api.js";
import { h, render, say } from "./dom.js";
import { closeDialogs } from "./dialogs.js";
import { jobView } from "./job.js";
import { jobsView } from "./jobs.js";
import { requestsView } from "./requests.js";
import { emptiness } from "./parts.js";
import { time, visible } from "./format.js";

const TICK_MS = Number(sessionStorage.getItem("forkpoint-tick")) || 1000;

/** What all views share. `config`: what the server is, and what the token may do. */
const app = {
  config: null,
  jobs: "#/jobs", // where all jobs were last seen, as they were filtered
  get mayOperate() { return app.config?.role === "operate"; },
  get takesPrograms() { return app.config?.features["web-submit"] === true; },
  /** Why an action cannot be used; null if it can. */
  whyNot(needsPrograms = false) {
    if (!app.mayOperate) return "Your token may only read.";
    return needsPrograms && !app.takesPrograms ? "Programs can be uploaded to `forkpoint server` only." : null;
  },
  go(address) { location.hash = address; },
  redraw: draw,
  /** Look at once, as something has changed. */
  refresh() { return look(true); },
};

let view = null;
let shown = "";
let trouble = null;
let answered = null;
let looking = null;

const main = document.getElementById("main");

function route() {
  const { parts: [kind, ...rest], parameters } = parsed(location.hash);
  if (kind === "requests") return requestsView(app, rest);
  if (kind === "jobs" && rest[0]) return jobView(app, rest, view);
  return jobsView(app, parameters);
}

/** Show what the address names. */
async function show() {
  if (location.hash === "#main") return history.replaceState(null, "", shown || "#/jobs");
  const before = shown.split("/").slice(0, 3).join("/");
  shown = location.hash;
  closeDialogs();
  if (!hasToken()) return askForToken();
  const next = route();
  const isOther = view !== next && location.hash.split("/").slice(0, 3).join("/") !== before;
  view?.left?.();
  view = next;
  if (isOther) render(main, h("p", { class: "quiet loading" }, "Loading …"));
  await look(true);
  if (isOther && before !== "") main.focus({ preventScroll: true });
}

/** Ask for news and draw them; one question at a time. */
async function look(now = false) {
  if (looking !== null && !now) return;
  const mine = (looking = Symbol());
  const asked = view;
  try {
    app.config ??= await get("/config");
    await asked?.load(now);
    if (view !== asked) return;
    answered = Date.now();
    trouble = null;
  } catch (problem) {
    if (view !== asked) return;
    if (problem.status === undefined) throw problem;
    if (problem.status === 401) return askForToken("This token is not, or no longer, valid for this server.");
    trouble = problem;
  } finally {
    if (looking === mine) looking = null;
  }
  draw();
}

function draw() {
  if (!hasToken() || view === null) return;
  drawTop();
  const isGone = trouble?.status === 0;
  document.body.classList.toggle("gone", isGone);
  render(document.getElementById("trouble"), trouble && isGone && h("p", { class: "banner bad" },
    h("strong", null, "The server does not answer. "),
    answered === null ? "Trying again …" : `What you see is from ${time(answered)}. Trying again …`));
  if (trouble && !isGone) return render(main, missing(trouble));
  if (view.ready === false) return;
  document.title = visible(`${view.title} · forkpoint`);
  render(main, view.draw());
}

function missing(problem) {
  const what = problem.status === 404 ? "There is no such thing" : problem.status === 503 ? "Not now" : "This did not work";
  return emptiness(what, problem.message, h("a", { href: "#/jobs", class: "button" }, "All jobs"));
}

function drawTop() {
  const is = (prefix) => (location.hash.startsWith(prefix) || (prefix === "#/jobs" && !location.hash.startsWith("#/requests")) ? "page" : null);
  render(document.getElementById("top"),
    h("a", { class: "brand", href: "#/jobs" }, h("img", { src: "icon.svg", alt: "", width: 24, height: 24 }), h("span", null, "forkpoint")),
    h("nav", { "aria-label": "Main" },
      h("a", { href: "#/jobs", "aria-current": is("#/jobs") }, "Jobs"),
      h("a", { href: "#/requests", "aria-current": is("#/requests") }, "Requests")),
    h("div", { class: "who" },
      app.config && !app.mayOperate && h("span", { class: "tag", title: "Your token may only read." }, "read only"),
      h("button", { class: "plain", on: { click: () => { forgetToken(); app.config = null; askForToken(); } } }, "Sign out")));
}

function askForToken(why = null) {
  view?.left?.();
  view = null;
  app.config = null;
  document.title = "forkpoint";
  render(document.getElementById("top"), h("span", { class: "brand" }, h("img", { src: "icon.svg", alt: "", width: 24, height: 24 }), h("span", null, "forkpoint")));
  render(document.getElementById("trouble"));
  const enter = (event) => {
    event.preventDefault();
    const given = event.target.elements.token.value.trim();
    if (given === "") return;
    setToken(given);
    show();
  };
  render(main, h("form", { class: "token card", on: { submit: enter } },
    h("h1", null, "Enter a token"),
    h("p", { class: "quiet" }, "forkpoint server prints an address with a token in it when it starts; a job's own port has its token in the ",
      "file that “forkpoint list” reads. It stays in this tab."),
    why && h("p", { class: "error", role: "alert" }, why),
    h("label", null, "Token", h("input", { name: "token", type: "password", autocomplete: "off", required: true, made: (input) => setTimeout(() => input.focus()) })),
    h("button", { class: "primary", type: "submit" }, "Continue")));
  if (why !== null) say(why);
}

takeToken();
addEventListener("hashchange", () => { takeToken(); show(); });
document.addEventListener("visibilitychange", () => { if (!document.hidden) look(); });
let drawing = 0;
addEventListener("resize", () => { cancelAnimationFrame(drawing); drawing = requestAnimationFrame(draw); });
setInterval(() => { if (!document.hidden && hasToken() && view !== null) look(); }, TICK_MS);
show();
