// What an address names, however it is spelt. Pure.

/** A part of an address; what is no valid escape stands for itself. */
export function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** The parts of an address after `#/`, and its parameters. */
export function parsed(hash) {
  const [place, ...rest] = hash.replace(/^#\/?/, "").split("?");
  return { parts: place.split("/").map(decoded), parameters: new URLSearchParams(rest.join("?")) };
}

/** Parameters as an address ends with them; those that are empty are left out. */
export function query(parameters) {
  const given = Object.entries(parameters).filter(([, value]) => value !== null && value !== undefined && value !== "" && value !== false);
  return given.length === 0 ? "" : `?${new URLSearchParams(given)}`;
}
