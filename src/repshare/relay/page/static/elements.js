// Making elements. Text always goes in as text: nothing here, or anywhere on the page, parses HTML.

const SVG = "http://www.w3.org/2000/svg";

export const find = (id) => document.getElementById(id);

export function make(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

export function draw(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

// Set an element's text, only if it is another: screen readers are not to be woken by nothing.
export function say(id, text) {
  const element = typeof id === "string" ? find(id) : id;
  if (element.textContent !== text) element.textContent = text;
}

export const show = (id, visible) => { find(id).hidden = !visible; };

export const calm = () => matchMedia("(prefers-reduced-motion: reduce)").matches;

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null).map((child) => child instanceof Node ? child : String(child)));
  return element;
}
