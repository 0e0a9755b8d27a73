// Numbers, times and values for people.

const NONE = "–";
const LAST_DATE_MS = 8.64e15;
const numbers = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const parts = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });

export const count = (n) => (n === null || n === undefined ? NONE : numbers.format(n));
export const plural = (n, one, many = `${one}s`) => `${count(n)} ${n === 1 ? one : many}`;

/** A rate in elements per second; null: not known yet. */
export function rate(perSecond) {
  if (perSecond === null || perSecond === undefined) return NONE;
  const [value, unit] = perSecond >= 1e6 ? [perSecond / 1e6, " M"] : perSecond >= 1e4 ? [perSecond / 1e3, " k"] : [perSecond, ""];
  return `${parts.format(value)}${unit}/s`;
}

export function bytes(n) {
  if (n === null || n === undefined) return NONE;
  const units = ["B", "KB", "MB", "GB", "TB"];
  let value = n, unit = 0;
  while (value >= 1000 && unit < units.length - 1) [value, unit] = [value / 1000, unit + 1];
  return `${unit === 0 ? numbers.format(value) : parts.format(value)} ${units[unit]}`;
}

/** A share of one, in percent. */
export const share = (part) => (part > 0 && part < 0.01 ? "<1 %" : `${numbers.format(Math.min(1, part) * 100)} %`);

export function duration(ms) {
  if (ms === null || ms === undefined || ms < 0) return NONE;
  if (ms < 1000) return `${Math.round(ms)} ms`;
  const seconds = Math.floor(ms / 1000);
  if (ms < 10_000) return `${(ms / 1000).toFixed(1)} s`;
  if (seconds < 60) return `${seconds} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min ${seconds % 60} s`;
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours} h ${minutes % 60} min` : `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

const pad = (n, digits = 2) => String(n).padStart(digits, "0");
const day = (at) => `${at.getFullYear()}-${pad(at.getMonth() + 1)}-${pad(at.getDate())}`;

/** A time of the browser's time zone. */
export function time(ms) {
  if (!isTime(ms)) return NONE;
  const at = new Date(ms);
  const clock = `${pad(at.getHours())}:${pad(at.getMinutes())}:${pad(at.getSeconds())}`;
  return Math.abs(Date.now() - ms) < 12 * 3600e3 ? clock : `${day(at)} ${clock}`;
}

export const iso = (ms) => (isTime(ms) ? new Date(ms).toISOString() : null);
export const isTime = (ms) => ms !== null && ms !== undefined && Math.abs(ms) < LAST_DATE_MS;

/** A watermark: a time, or that there is none yet, or that no more elements come. */
export function watermark(ms) {
  if (ms === null || ms === undefined || ms <= -LAST_DATE_MS) return "none yet";
  return ms >= LAST_DATE_MS ? "end of input" : time(ms);
}

/** The same where there is little room: days ago, to the minute. */
export function shortWatermark(ms) {
  const told = watermark(ms);
  return /^\d.* /.test(told) ? told.slice(0, -3) : told;
}

/** A value of a state, or a key, as one line. */
export function value(found) {
  return found === undefined ? "" : typeof found === "string" ? found : JSON.stringify(found, null, 1).replace(/\n\s*/g, " ");
}

// Control characters, directional marks, line and paragraph separators, lone surrogates: as the command line has them.
const HIDDEN = /[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]/gu;

/** A text with the characters escaped that reorder or hide text; line ends and tabs stay. */
export function visible(text) {
  return text.replace(HIDDEN, (found) => {
    const code = found.charCodeAt(0);
    return code === 13 ? "\\r" : code < 256 ? `\\x${code.toString(16).padStart(2, "0")}` : `\\u${code.toString(16).padStart(4, "0")}`;
  });
}

/** A name as SQL takes it. */
export const identifier = (...parts) => parts.filter(Boolean).map((part) => `"${part.replaceAll('"', '""')}"`).join(".");
