// State, by key and in SQL: that of the job's last committed epoch, or of a savepoint.

import { takeSavepoint } from "./actions.js";
import { call, get, path, query } from "./api.js";
import { h } from "./dom.js";
import { bytes, count, identifier, plural, time, value } from "./format.js";
import { action, emptiness, stateKey, table } from "./parts.js";
import { progressView } from "./pattern.js";

const LIMIT = 100;
const LIVE = "live"; // in the place of a savepoint's id

export function stateView(shared, rest) {
  let savepoints = [], isLoaded = false, id = null, states = null, chosen = null, key = "", entries = null, answer = null, problem = null, sql = "";
  const isLive = () => id === LIVE;
  const root = () => (isLive() ? null : shared.details.overview.root);
  const place = (...more) => (isLive() ? path("jobs", shared.id, ...more) : path("catalog", "savepoints", id, ...more));
  const within = (...more) => place(isLive() ? "state" : "states", ...more);

  /** What the address names: the job or a savepoint, perhaps with a state. */
  function choose([savepoint = LIVE, uid = null, state = null]) {
    if (savepoint !== id) [states, answer, problem] = [null, null, null];
    [id, chosen, entries, key] = [savepoint, state === null ? null : { uid, state }, null, ""];
  }

  async function load() {
    savepoints = (await get("/catalog/savepoints" + query({ root: shared.details.overview.root }))).savepoints.reverse();
    isLoaded = true;
    if (states === null) await attempt(async () => { ({ states } = await get(within() + query({ root: root() }))); });
    if (chosen !== null && (entries === null || (isLive() && key !== "" && problem === null))) await look();
  }

  /** A question whose refusal is shown beside it. */
  async function attempt(ask) {
    try {
      problem = null;
      await ask();
    } catch (error) {
      if (![400, 404, 409].includes(error.status)) throw error;
      problem = error.message;
    }
  }

  const look = () => attempt(async () => {
    entries ??= { rows: [], total: 0 };
    entries = await get(within(chosen.uid, chosen.state) + query({ root: root(), key, limit: LIMIT }));
  });

  function ask(event) {
    event.preventDefault();
    [key, entries] = [event.target.elements.key.value, null];
    look().then(shared.app.redraw, shared.app.refresh);
  }

  function run(event) {
    event.preventDefault();
    sql = event.target.elements.sql.value;
    attempt(async () => { answer = await call("POST", place("query") + query({ root: root() }), { sql }); }).then(shared.app.redraw, shared.app.refresh);
  }

  const address = (...parts) => `#/jobs/${shared.id}/state/${parts.map(encodeURIComponent).join("/")}`;

  function draw() {
    if (!isLoaded) return h("p", { class: "quiet" }, "Loading …");
    const why = shared.app.whyNot() ?? (shared.details.state === "RUNNING" ? null : "The job is not running.");
    return [
      h("div", { class: "tools" },
        h("label", null, "State of", h("select", { value: id, on: { change: (event) => shared.app.go(address(event.target.value)) } },
          h("option", { key: LIVE, value: LIVE }, "the last committed epoch"),
          savepoints.map((each) => h("option", { key: each.id, value: each.id }, `${each.label ?? each.id} · ${each.job}, epoch ${count(each.epoch)}, ${time(each.created_ms)}`)))),
        action("Take a savepoint …", why, () => takeSavepoint(shared))),
      problem && h("p", { class: "error", role: "alert" }, problem),
      states !== null && h("div", { class: "split" }, list(), chosen === null ? emptiness("Choose a state", "Its rows appear here; give a key to see what is kept for it.") : rows()),
      states !== null && inSql(),
    ];
  }

  function list() {
    return h("nav", { class: "card states", "aria-label": "States" }, h("h2", null, "States"), states.length === 0 && h("p", { class: "quiet" }, "There are no states."),
      h("ul", { class: "plain" }, states.map((each) => h("li", { key: stateKey(each) },
        h("a", { href: address(id, each.uid, each.state), "aria-current": chosen?.uid === each.uid && chosen.state === each.state ? "true" : null },
          h("span", { class: "strong" }, each.state), " ", h("code", null, each.uid), h("small", null, [each.type ? `${each.kind} of ${each.type}` : each.kind, each.rows !== null && `${plural(each.rows, "row")}, ${bytes(each.bytes)}`].filter(Boolean).join(" · ")))))));
  }

  /** The pattern whose partial matches are chosen, of the program that runs. */
  const pattern = () => (isLive() && chosen.state === "partial_matches" ? shared.details.plan.nodes.find((each) => each.id === chosen.uid)?.pattern ?? null : null);

  function rows() {
    const type = states.find((each) => each.uid === chosen.uid && each.state === chosen.state)?.key_type;
    const columns = entries === null || entries.rows.length === 0 ? [] : Object.keys(entries.rows[0]);
    return h("section", { class: "card", "aria-label": `Rows of ${chosen.state}`, key: stateKey(chosen) },
      h("h2", null, chosen.state, " ", h("code", null, chosen.uid)),
      type && h("form", { class: "tools", role: "search", on: { submit: ask } },
        h("label", null, `Key (${type})`, h("input", { name: "key", autocomplete: "off", spellcheck: "false", placeholder: type === "string" ? "text as it is" : "as JSON" })), h("button", { type: "submit", class: "primary" }, "Find")),
      h("div", { "aria-live": "polite" },
        entries === null ? h("p", { class: "quiet" }, "Loading …") : entries.rows.length === 0
          ? h("p", { class: "quiet" }, problem ? "" : key === "" ? "This state has no rows." : `Nothing is kept for the key ${key}.`)
          : [h("p", { key: "n", class: "quiet" }, key !== "" ? `Kept for the key ${key} at epoch ${count(entries.epoch)}:` : entries.total === null ? `The first ${plural(entries.rows.length, "row")}, at epoch ${count(entries.epoch)}` : `${count(entries.rows.length)} of ${plural(entries.total, "row")}`),
            key !== "" && pattern() !== null && progressView(pattern(), entries.rows[0].value),
            table(`Rows of ${chosen.state}`, columns.map((name) => [name]), entries.rows.map((row, i) => [i, columns.map((name) => h("code", null, value(row[name])))]))]));
  }

  function inSql() {
    const example = states.find((each) => each.view);
    return h("section", { class: "card sql", "aria-labelledby": "sql" }, h("h2", { id: "sql" }, "In SQL"),
      example && h("p", { class: "quiet" }, "Each state is a view: ", states.filter((each) => each.view).map((each, i) => h("span", { key: nameOf(each) }, i > 0 && ", ", h("code", null, nameOf(each))))),
      h("form", { on: { submit: run } },
        h("label", null, h("span", { class: "hidden" }, "Query"), h("textarea", { name: "sql", rows: 3, spellcheck: "false", required: true, value: example ? `SELECT * FROM ${nameOf(example)} LIMIT 20` : "",
          on: { keydown: (event) => { if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) event.target.form.requestSubmit(); } } })),
        h("div", { class: "actions" }, h("button", { type: "submit" }, "Run"), h("small", { class: "quiet" }, "or Ctrl+Enter"))),
      h("div", { "aria-live": "polite" }, answer && [h("p", { key: "n", class: "quiet" }, answer.truncated ? `The first ${plural(answer.rows.length, "row")}` : plural(answer.rows.length, "row")),
        table("Result", answer.columns.map((name) => [name]), answer.rows.slice(0, 1000).map((row, i) => [i, row.map((each) => h("code", null, each === null ? "NULL" : value(each)))]))]));
  }

  choose(rest);
  return { every: 5000, load, draw, turnTo: choose };
}

const nameOf = (state) => identifier(state.schema, state.view);
