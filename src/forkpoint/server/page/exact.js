// JSON whose long integers keep their digits: a number of JavaScript holds integers up to 2^53 only. Pure.

const LONG = /\d{16}/;
const TOKENS = /"(?:[^"\\]|\\.)*"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/g;
const isLong = (source) => /^-?\d+$/.test(source) && !Number.isSafeInteger(Number(source));

/** An integer that a number cannot hold. It counts as the nearest number, and is shown with all of its digits. */
class LongInteger extends Number {
  constructor(digits) {
    super(digits);
    this.digits = digits;
  }

  toString() { return this.digits; }

  toJSON() { return JSON.rawJSON(this.digits); }
}

/** What a text of JSON says. */
export function parse(text) {
  if (!LONG.test(text)) return JSON.parse(text);
  if (JSON.rawJSON === undefined) return parseWithStrings(text);
  return JSON.parse(text, (_, found, { source }) => (typeof found === "number" && isLong(source) ? new LongInteger(source) : found));
}

/** The same, with long integers as strings: for browsers that do not show the source of a number (before 2025). */
export function parseWithStrings(text) {
  return JSON.parse(text.replace(TOKENS, (token) => (token[0] !== '"' && isLong(token) ? `"${token}"` : token)));
}
