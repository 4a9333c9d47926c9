// What the total of a common classifier is made of: samples by client and class.

import { draw, find, make, say, show } from "./elements.js";
import { className, classColour } from "./palette.js";
import { percent, plural, whole } from "./words.js";

const ROWS = 30; // clients
const COLUMNS = 20; // classes

let drawn = ""; // what the table was made of

export function showTotal({ common, total, members, clients }) {
  show("total", Boolean(common));
  if (!common) return;
  say("total-note", plural(total.samples, "sample"));
  const shown = members.slice(0, ROWS), rest = total.samples - shown.reduce((sum, member) => sum + member.samples_total, 0);
  const made = JSON.stringify([total, shown.map(({ name, samples }) => [name, samples]), matchMedia("(prefers-color-scheme: dark)").matches]);
  if (made === drawn) return;
  drawn = made;
  const columns = total.classes.length <= COLUMNS ? total.classes : [], most = Math.max(...shown.flatMap(({ samples }) => samples), 1);
  const largest = Math.max(...shown.map((member) => member.samples_total), 1);
  const head = make("tr", {}, heading("Client"), heading("Share of the samples"), ...columns.map((_, label) => heading(className(label), "number")));
  const rows = shown.map((member) => make("tr", {},
    make("th", { scope: "row" }, member.name),
    make("td", {}, bar(member, total.samples, largest)),
    ...columns.map((_, label) => tinted(member.samples[label] ?? 0, label, most))));
  if (clients > shown.length) rows.push(make("tr", {}, make("th", { scope: "row" }, plural(clients - shown.length, "more client")), make("td", {}, share(rest, total.samples)), ...columns.map(() => make("td", { class: "number" }, ""))));
  const sum = make("tr", { class: "sum" }, make("th", { scope: "row" }, "The total"), make("td", {}, plural(total.samples, "sample")), ...columns.map((count) => make("td", { class: "number" }, whole(count))));
  find("parts").replaceChildren(make("thead", {}, head), make("tbody", {}, ...rows, sum));
  say("total-words", "The common classifier counts every sample alike, whoever has it. Samples that a client holds out are not in its part.");
}

const heading = (text, kind = null) => make("th", { scope: "col", class: kind, title: text }, text);

const share = (count, all) => percent(all ? count / all : 0);

function bar(member, all, largest) {
  const counts = member.samples.length ? member.samples : [member.samples_total];
  let x = 0;
  const pieces = counts.map((count, label) => {
    const width = 100 * count / largest, piece = draw("rect", { x: x.toFixed(2), width: width.toFixed(2), height: 1, fill: classColour(label) }, draw("title", {}, `${className(label)}: ${whole(count)}`));
    x += width;
    return count ? piece : null;
  });
  return make("div", { class: "share" }, make("span", {}, share(member.samples_total, all)), draw("svg", { viewBox: "0 0 100 1", preserveAspectRatio: "none", "aria-hidden": "true" }, ...pieces));
}

function tinted(count, label, most) {
  const cell = make("td", { class: `number ${count ? "" : "nothing"}`.trim() }, count ? whole(count) : "–");
  // Through the CSSOM: the page’s policy forbids style attributes.
  if (count) cell.style.backgroundColor = `${classColour(label)}${Math.round(20 + 90 * count / most).toString(16).padStart(2, "0")}`;
  return cell;
}
