// The map: class means, or class vectors, of the global board and of clients, round by round.

import { calm, draw, find, make, say, show } from "./elements.js";
import { classColour, classLabel, className, ink, isNamed, mark } from "./palette.js";
import { forgetLabels, placeLabels } from "./labels.js";
import { literal, plural } from "./words.js";

const STEP_MILLISECONDS = 220; // a frame while playing
const SOON = "A map of everyone’s classes appears here a second or two after the first release, and one for each later round.";

let film = null; // the last answer of the relay
let position = 0; // of the slider; between frames while playing
let playing = null;
let chosen = null;
let ofParts = false; // whether the marks are parts of a common classifier

export function showMap(answer, inSpace) {
  const before = film, atEnd = !before || position >= before.points.length - 1;
  [film, ofParts] = [answer, inSpace];
  const last = film.points.length - 1;
  find("slider").max = Math.max(last, 0);
  if (last < 0) { showNoMap(film.room < 0 ? `This task’s ${ofParts ? "class vectors" : "representations"} are too large to keep their history.` : SOON); return; }
  show("player", last > 0);
  show("map", true);
  if (!playing) position = atEnd ? last : Math.min(nearest(before.rounds[Math.round(position)]), last);
  showLegend();
  paint();
  explain();
}

export function choose(client) { chosen = client; if (film?.points.length) paint(); }

export const repaintMap = () => { if (film?.points.length) { paint(); showLegend(); } };

export function forgetMap() { stop(); forgetLabels(); film = null; position = 0; }

find("slider").addEventListener("input", () => { stop(); position = Number(find("slider").value); paint(); });
find("play").addEventListener("click", () => playing ? stop() : play());

function play() {
  if (position >= film.points.length - 1) position = 0;
  let then = null; // of the first picture: it may lie before the moment at which it was asked for
  const step = (now) => {
    if (!film) return;
    then ??= now;
    const moved = position + (now - then) / STEP_MILLISECONDS;
    if (!calm() || Math.floor(moved) > Math.floor(position)) {
      position = Math.min(calm() ? Math.floor(moved) : moved, film.points.length - 1);
      then = now;
      paint();
    }
    if (position >= film.points.length - 1) stop();
    else playing = requestAnimationFrame(step);
  };
  playing = requestAnimationFrame(step);
  face("Stop", "M3.5 3h3v10h-3zM9.5 3h3v10h-3z");
}

function stop() {
  if (playing) cancelAnimationFrame(playing);
  playing = null;
  face("Play the rounds", "M4 2.5v11l9-5.5z");
}

function face(label, shape) {
  find("play").setAttribute("aria-label", label);
  find("play-shape").setAttribute("d", shape);
}

function nearest(round) {
  return film.rounds.reduce((best, each, i) => Math.abs(each - round) < Math.abs(film.rounds[best] - round) ? i : best, 0);
}

function paint() {
  const frame = Math.round(position), colours = ink();
  const traces = film.clients.map((client, n) => client === null ? null : clientTrace(client, n, colours)).filter(Boolean);
  Plotly.react("map", [globalTrace(colours), ...traces], layout(colours), { displayModeBar: false, responsive: true });
  const slider = find("slider"), round = film.rounds[frame];
  slider.value = frame;
  slider.setAttribute("aria-valuetext", `round ${round}`);
  say("slider-round", `round ${round}`);
}

// Where row n's classes are now: between two frames while playing, if both have them.
function places(n) {
  const before = film.points[Math.floor(position)][n] ?? [], after = film.points[Math.ceil(position)][n] ?? [], part = position % 1;
  const points = before.map((point, label) => {
    const next = after[label] ?? point;
    return point === null || !next ? next ?? null : [point[0] + part * (next[0] - point[0]), point[1] + part * (next[1] - point[1])];
  });
  return points.map((point, label) => ({ point, label })).filter(({ point }) => point);
}

function clientTrace(client, n, colours) {
  const there = places(n + 1), { symbol, open } = mark(n), faint = chosen && chosen !== client;
  const own = there.map(({ label }) => classColour(label));
  return {
    type: "scatter", mode: "markers", x: there.map(({ point }) => point[0]), y: there.map(({ point }) => point[1]),
    marker: { symbol, size: chosen === client ? 12 : 9, color: own, opacity: faint ? 0.15 : 0.9, line: { width: open ? 1.75 : 1, color: open ? own : colours.raised } },
    hoverinfo: "text", hovertext: there.map(({ label }) => `${literal(client)}, ${literal(className(label))}`),
  };
}

function globalTrace(colours) {
  const there = places(0);
  return {
    type: "scatter", mode: "markers", x: there.map(({ point }) => point[0]), y: there.map(({ point }) => point[1]),
    marker: { symbol: "circle", size: 26, color: there.map(({ label }) => `${classColour(label)}59`), opacity: 1, line: { width: 2, color: there.map(({ label }) => classColour(label)) } },
    cliponaxis: false, hoverinfo: "text", hovertext: there.map(({ label }) => `everyone, ${literal(className(label))}`),
  };
}

function layout(colours) {
  const axis = (all) => {
    const low = Math.min(...all), high = Math.max(...all), margin = Math.max((isNamed() ? 0.16 : 0.09) * (high - low), 20);
    return { visible: false, fixedrange: true, range: [low - margin, high + margin] };
  };
  const points = film.points.flat(2).filter(Boolean);
  const xaxis = axis(points.map(([x]) => x)), yaxis = { ...axis(points.map(([, y]) => y)), scaleanchor: "x" };
  const named = places(0).map(({ point: [x, y], label }) => ({ x, y, label, text: classLabel(label), shown: literal(classLabel(label)) }));
  return {
    annotations: placeLabels(named, [xaxis.range, yaxis.range], find("map").getBoundingClientRect(), colours),
    margin: { l: 0, r: 0, t: 0, b: 0 }, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: colours.font }, showlegend: false, dragmode: false, hovermode: "closest",
    hoverlabel: { bgcolor: colours.raised, bordercolor: colours.line, font: { family: colours.font, color: colours.ink } },
    xaxis, yaxis,
  };
}

function showLegend() {
  const everyone = draw("svg", { viewBox: "-1.4 -1.4 2.8 2.8", "aria-hidden": "true" }, draw("path", { d: mark(0).path, fill: "none", "stroke-width": 0.5 }));
  const shapes = film.clients.map((client, n) => {
    if (client === null) return null;
    const { path, open } = mark(n), look = open ? { fill: "none", "stroke-width": 0.35 } : { stroke: "none" };
    return make("li", {}, draw("svg", { viewBox: "-1.4 -1.4 2.8 2.8", "aria-hidden": "true" }, draw("path", { d: path, ...look })), client);
  });
  const classes = [...Array(isNamed() ? film.classes : 0).keys()].map((label) =>
    make("li", {}, draw("svg", { viewBox: "-1.4 -1.4 2.8 2.8", "aria-hidden": "true" }, draw("path", { d: mark(1).path, fill: classColour(label), stroke: "none" })), className(label)));
  const words = ofParts ? "the total" : "everyone’s mean";
  find("map-legend").replaceChildren(make("li", {}, everyone, `${words}, with the class’s ${isNamed() ? "name" : "number"}`), ...shapes.filter(Boolean));
  show("map-classes", classes.length > 0);
  find("map-classes").replaceChildren(...classes);
}

function explain() {
  const clients = film.clients.filter((client) => client !== null).length;
  const meaning = ofParts
    ? "All vectors are drawn at one length: only their directions count. The total is the common classifier; a small mark on its circle’s side is a client that adds to that class as the others do."
    : "Marks of one colour that gather: the clients come to see that class alike.";
  say("map-words", `Colours are classes, shapes are ${plural(clients, "client")}; two directions (PCA) that keep ${Math.round(100 * film.kept)}\u00a0% of the ${ofParts ? "total’s " : ""}spread in the last round. ${meaning}`);
}

// Instead of a map, what will be there: in one line, without an empty figure.
export function showNoMap(words = SOON) {
  if (find("map").data) Plotly.purge("map");
  find("map-legend").replaceChildren();
  for (const id of ["map", "player", "map-classes"]) show(id, false);
  say("map-words", words);
}
