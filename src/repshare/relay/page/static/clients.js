// Tables: who takes part, what was refused; and traffic beside FedAvg's.

import { draw, find, make, say, show } from "./elements.js";
import { className, classColour } from "./palette.js";
import { ago, bytes, clock, percent, plural, short, times, whole } from "./words.js";

const BARS = 50;

export function showMembers(view, now, chosen, choose) {
  const rows = new Map([...find("members").children].map((row) => [row.dataset.name, row]));
  const wanted = view.members.map((member) => {
    const made = row(member, now, chosen, choose), before = rows.get(member.name);
    if (!before) return made;
    // Cells are replaced one by one, and only where they differ: the keyboard's place in the table stays.
    const focused = before.contains(document.activeElement);
    [...made.children].forEach((cell, i) => { if (!cell.isEqualNode(before.children[i])) before.children[i].replaceWith(cell); });
    if (focused) before.querySelector("button").focus();
    before.className = made.className;
    return before;
  });
  if (wanted.some((each, i) => each !== find("members").children[i]) || wanted.length !== find("members").children.length) {
    find("members").replaceChildren(...wanted);
  }
  const hidden = { privacy: !view.members.some(({ privacy }) => privacy), held: !view.common, test: view.common && !view.members.some(({ test_accuracy: tested }) => tested !== undefined) };
  for (const [kind, off] of Object.entries(hidden)) find("clients").classList.toggle(`no-${kind}`, Boolean(off));
  const more = view.clients - view.members.length;
  say("clients-note", more > 0 ? `${whole(view.members.length)} shown, ${plural(more, "more client")} take part` : "");
}

function row(member, now, chosen, choose) {
  const picked = member.name === chosen;
  const name = make("button", { type: "button", class: "client", "aria-pressed": String(picked) }, member.name);
  name.addEventListener("click", () => choose(member.name));
  const flag = member.outlier ? make("span", { class: "flag", title: "Its means are far from the others’" }, "outlier") : null;
  const state = member.online ? "online" : "away";
  const cell = (label, content, kind = "") => make("td", { role: "cell", "data-label": label, class: `${kind} ${content === null ? "none" : ""}`.trim() || null }, content ?? "–");
  return make("tr", { role: "row", class: picked ? "chosen" : null, "data-name": member.name },
    make("td", { role: "cell" }, name, flag, member.model ? make("small", {}, member.model) : null),
    make("td", { role: "cell", class: `state-cell ${member.online ? "here" : "gone"}` }, make("span", { class: "dot", "aria-hidden": "true" }), state, make("small", {}, ago(now - member.seen))),
    cell("Round", whole(member.round), "number"),
    cell("Test accuracy", member.test_accuracy === undefined ? null : percent(member.test_accuracy), "number test"),
    cell("Duality gap", member.gap === undefined ? null : short(member.gap), "number held"),
    cell("Held-out, alone → together", heldOut(member), "number held pairs"),
    cell("Samples per class", samples(member), "wide"),
    cell("Sent", bytes(member.bytes_up), "number"),
    cell("Received", bytes(member.bytes_down), "number"),
    cell("Privacy spent", privacy(member.privacy), "privacy"));
}

function heldOut({ held_out: together, held_out_alone: alone, in_use: used }) {
  if (together === undefined) return used ? `uses ${used}` : null;
  return make("span", {}, alone === undefined ? null : `${percent(alone)} → `, make("b", {}, percent(together)), used ? make("small", {}, `uses ${used}`) : null);
}

function samples(member) {
  const total = make("small", {}, plural(member.samples_total, "sample"));
  if (!member.samples.length) return total;
  const said = member.samples.map((count, label) => count ? `${className(label)}: ${count}` : null).filter(Boolean).join(", ");
  const shown = member.samples.slice(0, BARS), most = Math.max(...shown, 1), width = 100 / shown.length;
  const bars = shown.map((count, label) => draw("rect", {
    x: (label * width + width * 0.1).toFixed(2), width: (width * 0.8).toFixed(2),
    y: (24 - Math.max(count ? 1.5 : 0.5, 22 * count / most)).toFixed(2), height: Math.max(count ? 1.5 : 0.5, 22 * count / most).toFixed(2),
    fill: count ? classColour(label) : "currentColor", "fill-opacity": count ? 1 : 0.25,
  }, draw("title", {}, `${className(label)}: ${whole(count)}`)));
  return make("div", { class: "samples" }, draw("svg", { viewBox: "0 0 100 24", preserveAspectRatio: "none", role: "img", "aria-label": said || "none" }, ...bars), total);
}

function privacy(spent) {
  if (!spent) return null;
  const more = [spent.delta === undefined ? null : `δ = ${short(spent.delta)}`, spent.mode].filter(Boolean).join(", ");
  return make("span", {}, `ε = ${short(spent.epsilon)}`, more ? make("small", {}, more) : null);
}

export function showRefusals(refusals, now) {
  show("refusals", refusals.length > 0);
  say("refused-note", refusals.length ? "the latest, newest first" : "nothing has been refused");
  const rows = refusals.slice(0, 12).map((refusal) => make("tr", { role: "row" },
    make("td", { role: "cell", "data-label": "When", title: clock(refusal.time) }, ago(now - refusal.time)),
    make("td", { role: "cell", "data-label": "Client" }, refusal.client || "–"),
    make("td", { role: "cell", "data-label": "Why", class: "why" }, refusal.reason)));
  find("refused").replaceChildren(...rows);
}

export function showTraffic(view) {
  const { up, down, sized, sized_bytes: ours, fedavg_bytes: theirs } = view.traffic;
  const total = make("p", { class: "quiet" }, `${bytes(up)} sent by clients, ${bytes(down)} fetched by them.`);
  if (!sized) {
    find("traffic").replaceChildren(total, make("p", { class: "caption" }, "Once clients report how large their models are, this is compared with what FedAvg would have cost."));
    return;
  }
  const most = Math.max(ours, theirs, 1);
  const bar = (words, value, kind) => make("div", {},
    make("div", { class: "words" }, make("span", {}, words), make("b", {}, bytes(value))),
    make("div", { class: "track", "aria-hidden": "true" }, draw("svg", { viewBox: "0 0 100 1", preserveAspectRatio: "none" }, draw("rect", { class: kind, width: Math.max(0.6, 100 * value / most), height: 1 }))));
  find("traffic").replaceChildren(total,
    make("div", { class: "compare" }, bar(`${view.common ? "Class vectors" : "Representations"}, as shared here`, ours, "ours"), bar("FedAvg would have cost", theirs, "theirs")),
    make("p", { class: "caption" }, `${sentence(ours, theirs)} Counted for ${sized === 1 ? "the client that reports" : `the ${whole(sized)} clients that report`} a model size: FedAvg sends each model up and down in every round.`));
}

function sentence(ours, theirs) {
  if (!ours || !theirs) return "";
  return theirs >= ours ? `FedAvg would have moved ${times(theirs / ours)} as much.` : `FedAvg would have moved less: ${times(ours / theirs)} less.`;
}
