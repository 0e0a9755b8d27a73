// Calls of the server, with the token that the page was opened with.

import { decoded } from "./address.js";
import { parse } from "./exact.js";

export { query } from "./address.js";

const KEY = "forkpoint-token";
const PATIENCE_MS = 60_000;

/** An answer that is an error. `status`: HTTP's; 0 if there was no answer. */
export class Problem extends Error {
  constructor(status, message, code = "") {
    super(message);
    this.status = status;
    this.code = code;
  }
}

/** Take the token from the address, which then no longer shows it. */
export function takeToken() {
  const found = /^#token=(.+)$/.exec(location.hash);
  if (found === null) return;
  setToken(decoded(found[1]));
  history.replaceState(null, "", `${location.pathname}#/jobs`);
}

export const hasToken = () => sessionStorage.getItem(KEY) !== null;
export const setToken = (token) => sessionStorage.setItem(KEY, token);
export const forgetToken = () => sessionStorage.removeItem(KEY);

/** The path of the API for these parts, whatever is in them. Raises Problem for those that a browser would take for another path. */
export function path(...parts) {
  if (parts.some((part) => part === "." || part === "..")) throw new Problem(404, "No path has such a part.");
  return "/" + parts.map((part) => encodeURIComponent(part)).join("/");
}

async function send(method, where, body, type) {
  const headers = { authorization: `Bearer ${sessionStorage.getItem(KEY) ?? ""}` };
  if (type !== undefined) headers["content-type"] = type;
  let answer;
  try {
    answer = await fetch(`/v1${where}`, { method, headers, body, cache: "no-store", signal: AbortSignal.timeout(PATIENCE_MS) });
  } catch {
    throw new Problem(0, "The server does not answer.");
  }
  if (answer.ok) return answer;
  let found;
  try {
    found = (await answer.json()).error;
  } catch {
    found = { code: "", message: `The server answered with ${answer.status}.` };
  }
  throw new Problem(answer.status, found.message, found.code);
}

const read = async (answer) => parse(await answer.text());

export const get = async (where) => read(await send("GET", where));
export const getText = async (where) => (await send("GET", where)).text();
export const upload = async (where, file) => read(await send("POST", where, file, "application/octet-stream"));

/** A call that changes something, or has a body. */
export async function call(method, where, body) {
  const sent = body === undefined ? undefined : JSON.stringify(body);
  return read(await send(method, where, sent, sent === undefined ? undefined : "application/json"));
}

/** The result of what takes a while. `onProgress` is called with the request as it is. Raises Problem if it fails. */
export async function finished(accepted, onProgress = () => {}) {
  for (;;) {
    const found = await get(path("requests", accepted["request-id"]));
    onProgress(found);
    if (found.status === "COMPLETED") return found.result;
    if (found.status === "FAILED") throw new Problem(409, found.error.message, found.error.code);
    await new Promise((resolve) => setTimeout(resolve, 400));
  }
}
