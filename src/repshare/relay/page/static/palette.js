// Colours, marks and names. Classes have colours that most colour-blind people can tell apart (Petroff, 2021), clients have shapes.

const CLASSES = ["#3f90da", "#ffa90e", "#bd1f01", "#94a4a2", "#832db6", "#a96b59", "#e76300", "#b9ac70", "#717581", "#92dadd"];
const DARK = { "#bd1f01": "#e2543a", "#832db6": "#b073dd", "#717581": "#8b91a0" };

// A shape's name for plotly, and the same as a path in a square from −1 to 1.
const SHAPES = [
  ["circle", "M1 0A1 1 0 1 1 -1 0A1 1 0 1 1 1 0Z"],
  ["square", "M-.85 -.85H.85V.85H-.85Z"],
  ["diamond", "M0 -1.15L1.15 0L0 1.15L-1.15 0Z"],
  ["triangle-up", "M0 -1.1L1.05 .75H-1.05Z"],
  ["cross", "M-.4 -1H.4V-.4H1V.4H.4V1H-.4V.4H-1V-.4H-.4Z"],
  ["triangle-down", "M0 1.1L1.05 -.75H-1.05Z"],
  ["star", "M0 -1.2L.33 -.38L1.2 -.33L.52 .2L.74 1.05L0 .58L-.74 1.05L-.52 .2L-1.2 -.33L-.33 -.38Z"],
  ["x", "M0 -.5L.5 -1L1 -.5L.5 0L1 .5L.5 1L0 .5L-.5 1L-1 .5L-.5 0L-1 -.5L-.5 -1Z"],
];

const night = matchMedia("(prefers-color-scheme: dark)");

export function classColour(label) {
  const colour = CLASSES[label % CLASSES.length];
  return night.matches ? DARK[colour] ?? colour : colour;
}

// The classes' names, as the task states them.
let names = [];

export const nameClasses = (given) => { names = given; };

export const isNamed = () => names.length > 0;

export const className = (label) => names[label] || `class ${label}`;

// The same where there is little room.
export function classLabel(label) {
  const name = names[label] || String(label);
  return name.length > 14 ? `${name.slice(0, 13)}…` : name;
}

export function mark(place) {
  const [name, path] = SHAPES[place % SHAPES.length], open = Math.floor(place / SHAPES.length) % 2 === 1;
  return { symbol: open ? `${name}-open` : name, path, open };
}

// The page's own colours, which follow light and dark.
export function ink() {
  const style = getComputedStyle(document.documentElement), read = (name) => style.getPropertyValue(`--${name}`).trim();
  return { ink: read("ink"), soft: read("soft"), line: read("line"), grid: read("grid"), raised: read("raised"), accent: read("accent"), accentSoft: read("accent-soft"), font: getComputedStyle(document.body).fontFamily };
}

export const whenColoursChange = (then) => night.addEventListener("change", then);
