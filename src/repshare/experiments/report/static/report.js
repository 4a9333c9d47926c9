// Draws the figures that stand in the page as JSON, in the page's own colours, by day, by night and on paper.
"use strict";

const FIGURES = JSON.parse(document.getElementById("figures").textContent);
const NIGHT = { "#0072B2": "#4fa8e0", "#009E73": "#35c297", "#D55E00": "#f0803c" };
const night = matchMedia("screen and (prefers-color-scheme: dark)"), print = matchMedia("print");
const read = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

function coloured(value, key) {
  if (Array.isArray(value)) return value.map((each) => coloured(each, key));
  if (value && typeof value === "object") return Object.fromEntries(Object.entries(value).map(([name, each]) => [name, coloured(each, name)]));
  if (key === "colorscale") return [[0, read("shade-low")], [1, read("shade-high")]];
  if (key === "color" || key === "fillcolor") return value === "@ink" ? read("ink") : night.matches ? NIGHT[value] ?? value : value;
  return value;
}

function axis(given) {
  const line = { gridcolor: read("grid"), linecolor: read("line"), tickcolor: read("line"), zeroline: false, automargin: true };
  return { ...line, ...given, title: { ...given.title, standoff: 12, font: { color: read("soft"), size: 12 } } };
}

function draw() {
  for (const [id, { data, layout, height }] of Object.entries(FIGURES)) {
    const { xaxis, yaxis } = coloured(layout);
    const whole = {
      height, xaxis: axis(xaxis), yaxis: axis(yaxis), margin: { l: 56, r: 12, t: 36, b: 48 },
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", hovermode: data[0].type === "heatmap" ? "closest" : "x",
      font: { family: getComputedStyle(document.body).fontFamily, color: read("ink"), size: 12 },
      hoverlabel: { font: { family: getComputedStyle(document.body).fontFamily } },
      legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom" }, showlegend: data.length > 1,
    };
    Plotly.react(id, coloured(data), whole, { responsive: true, displaylogo: false, modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d"] });
  }
}

draw();
night.addEventListener("change", draw);
print.addEventListener("change", draw);
