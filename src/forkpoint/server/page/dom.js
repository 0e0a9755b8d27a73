// Views describe what there should be; what is there is changed to it. So focus, scrolling, selections and what is being typed
// stay, and text is always text: nothing here parses HTML, and no character hides or reorders others.

import { visible } from "./format.js";

const SVG = "http://www.w3.org/2000/svg";
const TOLD = new Set(["title", "aria-label", "placeholder"]); // attributes that are read by people

/** An element. `on`: listeners by event; `style`: CSS properties; `key`: tells it from its siblings; `made`: is called with the new
 * element; everything else is an attribute, which is absent if null or false. */
export function h(tag, props, ...children) {
  return { tag, props: props ?? {}, children: distinct(flat(children, "")) };
}

/** Children by their place: what is null or false keeps its place, so that the others stay themselves. */
function flat(children, prefix) {
  const found = [];
  children.forEach((child, index) => {
    if (child === null || child === undefined || child === false || child === "") return;
    if (Array.isArray(child)) return found.push(...flat(child, `${prefix}${index}.`));
    if (typeof child !== "object") return found.push({ id: `${prefix}${index}:text`, text: visible(String(child)) });
    const key = child.props.key;
    found.push({ ...child, id: key === undefined ? `${prefix}${index}:${child.tag}` : `${prefix}=${key}:${child.tag}` });
  });
  return found;
}

/** Siblings with the same key are told apart by their order: names of jobs, operators and states may be equal. */
function distinct(nodes) {
  const seen = new Map();
  for (const node of nodes) {
    const before = seen.get(node.id) ?? 0;
    seen.set(node.id, before + 1);
    if (before > 0) node.id += `~${before}`;
  }
  return nodes;
}

/** Make the content of an element what the nodes say. */
export function render(element, ...nodes) {
  const next = distinct(flat(nodes, ""));
  patchChildren(element, element.drawn ?? [], next);
  element.drawn = next;
}

function patchChildren(element, before, next) {
  const known = new Map(before.map((node) => [node.id, node]));
  if (before.length === 0) element.replaceChildren();
  const kept = new Set(next.map((node) => node.id));
  for (const node of before) if (!kept.has(node.id)) node.element.remove();
  let place = element.firstChild;
  for (const node of next) {
    const old = known.get(node.id);
    if (old === undefined) create(node, element);
    else patch(old, node);
    if (node.element === place) place = place.nextSibling;
    else element.insertBefore(node.element, place);
  }
}

function create(node, parent) {
  if (node.tag === undefined) {
    node.element = document.createTextNode(node.text);
    return;
  }
  const isSvg = node.tag === "svg" || (parent.namespaceURI === SVG && parent.tagName !== "foreignObject");
  const element = isSvg ? document.createElementNS(SVG, node.tag) : document.createElement(node.tag);
  node.element = element;
  for (const child of node.children) {
    create(child, element);
    element.append(child.element);
  }
  setProps(element, {}, node.props);
  node.props.made?.(element);
}

function patch(old, node) {
  node.element = old.element;
  if (node.tag === undefined) {
    if (old.text !== node.text) node.element.data = node.text;
    return;
  }
  patchChildren(node.element, old.children, node.children);
  setProps(node.element, old.props, node.props);
}

function setProps(element, before, props) {
  for (const name of new Set([...Object.keys(before), ...Object.keys(props)])) {
    if (name === "key" || name === "made") continue;
    if (name === "on") element.handlers = listen(element, props.on ?? {});
    else if (name === "style") restyle(element, before.style ?? {}, props.style ?? {});
    else if (before[name] !== props[name]) setAttribute(element, name, props[name]);
  }
}

function setAttribute(element, name, value) {
  if (name === "value" || name === "checked" || name === "indeterminate") element[name] = value ?? (name === "value" ? "" : false);
  else if (value === null || value === undefined || value === false) element.removeAttribute(name);
  else element.setAttribute(name, value === true ? "" : TOLD.has(name) ? visible(String(value)) : String(value));
}

function restyle(element, before, style) {
  for (const name of new Set([...Object.keys(before), ...Object.keys(style)])) {
    if (before[name] !== style[name]) element.style.setProperty(name, style[name] ?? "");
  }
}

/** One listener for each event of an element, which calls the newest handler. */
function listen(element, handlers) {
  for (const name of Object.keys(handlers)) {
    if (element.handlers?.[name] === undefined && !element.listens?.has(name)) {
      element.addEventListener(name, (event) => element.handlers[name]?.(event));
      (element.listens ??= new Set()).add(name);
    }
  }
  return handlers;
}

/** Tell a screen reader what has happened. */
export function say(text) {
  document.getElementById("said").textContent = visible(text);
}
