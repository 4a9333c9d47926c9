// Learning curves: mean and range over clients, and the clients' own.

import { calm, find, make, say, show } from "./elements.js";
import { ink } from "./palette.js";
import { literal, percent, plural, short } from "./words.js";

const MEASURES = {
  held_out: { label: "Held-out accuracy", chip: "Held-out", share: true, beside: "held_out_alone", note: "Each client on samples of its own that it shares in no form; alone: a classifier of its other samples only." },
  gap: { label: "Duality gap", chip: "Gap", log: true, note: "For each sample: 0 where the classifier is that of all samples together." },
  test_accuracy: { label: "Test accuracy", share: true },
  train_accuracy: { label: "Training accuracy", chip: "Training", share: true },
  ce: { label: "Cross-entropy", unit: "nats" },
  bound: { label: "Information bound", chip: "Bound", unit: "nats", note: "A lower bound on the mutual information between a client’s representations and the others’, if its classes are about equally frequent." },
};

let measure = null;
let drawn = null; // the last curves and who is chosen

export function showCurves(curves, chosen) {
  drawn = { curves, chosen };
  const there = Object.keys(MEASURES).filter((key) => curves.all[key]);
  if (!there.includes(measure)) measure = there[0] ?? null;
  showChoice(there);
  show("curves", measure !== null);
  if (measure === null) {
    if (find("curves").data) Plotly.purge("curves");
    say("curves-words", "Accuracies and losses over the rounds appear here once a client reports them: repshare join … --report.");
    return;
  }
  paint();
}

export const repaintCurves = () => { if (drawn) showCurves(drawn.curves, drawn.chosen); };

function showChoice(there) {
  const group = find("measure");
  if (group.dataset.there === there.join()) return;
  group.dataset.there = there.join();
  group.replaceChildren(...there.map((key) => {
    const input = make("input", { type: "radio", name: "measure", value: key });
    input.checked = key === measure;
    input.addEventListener("change", () => { measure = key; paint(); });
    return make("label", {}, input, make("span", {}, MEASURES[key].chip ?? MEASURES[key].label));
  }));
}

function paint() {
  const { curves, chosen } = drawn, colours = ink(), what = MEASURES[measure], all = curves.all[measure];
  const own = Object.entries(curves.own).filter(([, values]) => values[measure]);
  const other = curves.all[what.beside];
  const traces = [
    line(curves.rounds, all.low, { width: 0 }, { hoverinfo: "skip" }),
    line(curves.rounds, all.high, { width: 0 }, { hoverinfo: "skip", fill: "tonexty", fillcolor: colours.accentSoft }),
    ...own.map(([client, values]) => ownLine(client, values[measure], chosen, colours)),
    ...(other ? [line(curves.rounds, other.mean, { width: 2, dash: "dash", color: colours.soft }, hover(curves.rounds, other.mean, "mean alone"))] : []),
    line(curves.rounds, all.mean, { width: chosen ? 1.5 : 3, color: colours.accent }, hover(curves.rounds, all.mean, "mean")),
  ];
  Plotly.react("curves", traces, { ...layout(what, colours), annotations: other ? ends(curves.rounds, all.mean, other.mean, colours) : [] }, { displayModeBar: false, responsive: true });
  say("curves-words", words(curves, all, what, own.length));
}

function ownLine(client, values, chosen, colours) {
  const picked = client === chosen;
  const style = { width: picked ? 3 : 1, color: picked ? colours.ink : colours.soft };
  return { ...line(drawn.curves.rounds, values, style, hover(drawn.curves.rounds, values, client)), opacity: picked ? 1 : 0.45 };
}

// Words at the ends of the two means.
function ends(rounds, together, alone, colours) {
  const last = together.findLastIndex((value) => value !== null), above = together[last] >= (alone[last] ?? 0);
  const word = (text, y, color, high) => ({ text, x: rounds[last], y, xanchor: "right", yanchor: high ? "bottom" : "top", showarrow: false, font: { color, size: 12 } });
  return [word("together", together[last], colours.accent, above), ...(alone[last] === null ? [] : [word("alone", alone[last], colours.soft, !above)])];
}

const line = (x, y, style, more) => ({ type: "scatter", mode: x.length < 2 ? "markers" : "lines", x, y, line: style, marker: { size: 5, color: style.color ?? "rgba(0,0,0,0)" }, ...more });

function hover(rounds, values, name) {
  const texts = values.map((value, i) => value === null ? "" : `${literal(name)}: ${number(value)} in round ${rounds[i]}`);
  return { hoverinfo: "text", hovertext: texts };
}

const number = (value) => MEASURES[measure].share ? percent(value) : short(value);

function layout(what, colours) {
  const axis = { gridcolor: colours.grid, linecolor: colours.line, zeroline: false, fixedrange: true, tickfont: { color: colours.soft, size: 12 } };
  return {
    // Fixed: margins that follow the labels may never settle, and plotly then gives up with a warning.
    margin: { l: what.share ? 42 : what.unit ? 66 : 54, r: 14, t: 10, b: 42 },
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: colours.font, color: colours.ink, size: 13 },
    showlegend: false, dragmode: false, hovermode: "closest",
    hoverlabel: { bgcolor: colours.raised, bordercolor: colours.line, font: { family: colours.font, color: colours.ink }, align: "left" },
    xaxis: { ...axis, title: { text: "round", font: { color: colours.soft, size: 12 }, standoff: 6 }, showgrid: false, tickformat: ",d", nticks: 8, rangemode: "tozero" },
    yaxis: { ...axis, dtick: what.log ? ticks(drawn.curves.all[measure]) : undefined, type: what.log ? "log" : "linear", tickformat: what.share ? ".0%" : what.log ? "~g" : undefined, ticksuffix: what.share ? "" : " ", title: what.unit ? { text: what.unit, font: { color: colours.soft, size: 12 } } : undefined },
    transition: calm() ? undefined : { duration: 0 },
  };
}

// A label for each power of ten, if there are some: others would be small print.
function ticks({ low, high }) {
  const values = [...low, ...high].filter((value) => value > 0);
  return Math.max(...values) > 10 * Math.min(...values) ? 1 : undefined;
}

function words(curves, all, what, own) {
  const last = all.mean.findLastIndex((value) => value !== null);
  const range = `${number(all.mean[last])} in round ${curves.rounds[last]}, clients from ${number(all.low[last])} to ${number(all.high[last])}`;
  const other = curves.all[what.beside]?.mean[last] ?? null;
  const alone = other === null ? "" : `; alone ${number(other)} (dashed)`;
  const lines = own < curves.clients ? `; thin lines: ${own} of the ${plural(curves.clients, "client")} that report` : "; thin lines: each client that reports";
  return `${what.label}: mean ${range}${alone}. Band: the range of all, each with its latest value${lines}. ${what.note ?? ""}`.trim();
}
