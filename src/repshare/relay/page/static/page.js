// The page: which task, who may look, what has changed. Text always goes in as text: nothing here parses HTML.

const KEPT = "repshare-token";
const SVG = "http://www.w3.org/2000/svg";
const WAIT_SECONDS = 4; // of the relay, for a change: time passes also where nothing happens, and clients go away
const SILENCE_MILLISECONDS = 40000; // after which it is asked again
const LEAST_MILLISECONDS = 1000; // between two looks
const POLL_MILLISECONDS = 2000; // while the relay does not answer
const MOST_BARS = 50; // classes that are drawn
const MOST_NAMES = 12; // classes in the headline
const MOST_REFUSALS = 12;
const UNITS = ["B", "kB", "MB", "GB", "TB", "PB"];
const COLOURS = 10; // of classes, in page.css
const SHARED = "Clients share averages of their own networks’ features.";
const SHARED_IN_SPACE = "Clients share weighted sums of vectors that a public map makes of their samples. The total is a linear classifier.";

class Denied extends Error {} // 401, 403
class Gone extends Error {} // 404

let view = null, following = null;
let drift = 0; // the relay's clock minus ours, in seconds
let awaySince = null;

start();

function start() {
  const told = new URLSearchParams(location.hash.slice(1));
  if (told.has("token")) {
    sessionStorage.setItem(KEPT, told.get("token"));
    told.delete("token");
    history.replaceState(null, "", `${location.pathname}${location.search}${told.size ? `#${told}` : ""}`);
  }
  find("token-form").addEventListener("submit", (event) => {
    event.preventDefault();
    sessionStorage.setItem(KEPT, find("token").value.trim());
    find("token").value = "";
    enter();
  });
  find("task").addEventListener("change", () => watch(find("task").value));
  setInterval(() => { if (!document.hidden && view) showMembers(); }, 1000);
  if (document.documentElement.dataset.needsToken === "yes" && !sessionStorage.getItem(KEPT)) askForToken("");
  else enter();
}

async function enter() {
  show("token-form", false);
  let names;
  try {
    names = (await ask("/v1/tasks")).tasks.map(({ name }) => name);
  } catch (error) {
    trouble(error);
    if (!(error instanceof Denied)) setTimeout(enter, POLL_MILLISECONDS);
    return;
  }
  answered();
  const wanted = new URLSearchParams(location.hash.slice(1)).get("task");
  find("task").replaceChildren(...names.map((name) => make("option", { value: name }, name)));
  show("tasks", names.length > 1);
  if (names.length) watch(names.includes(wanted) ? wanted : names[0]);
  else { showNoTask(); setTimeout(enter, POLL_MILLISECONDS); }
}

// Look at a task until another is chosen: after each change, and now and then.
async function watch(name) {
  following?.abort();
  const { signal } = following = new AbortController();
  view = null;
  find("task").value = name;
  if (!find("tasks").hidden) history.replaceState(null, "", `#${new URLSearchParams({ task: name })}`);
  const path = `/v1/tasks/${encodeURIComponent(name)}`;
  while (!signal.aborted) {
    let answer = null;
    try {
      if (view) await ask(`${path}/news?wait=${WAIT_SECONDS}&since=${view.version}`, signal);
      answer = await ask(`${path}/status`, signal);
    } catch (error) {
      if (!signal.aborted) trouble(error);
    }
    if (answer && !signal.aborted) take(answer);
    do await pause(awaySince === null ? LEAST_MILLISECONDS : POLL_MILLISECONDS);
    while (document.hidden && !signal.aborted);
  }
}

async function ask(path, signal) {
  const token = sessionStorage.getItem(KEPT), signals = [AbortSignal.timeout(SILENCE_MILLISECONDS), ...(signal ? [signal] : [])];
  const headers = token ? { Authorization: `Bearer ${token}` } : {};
  const response = await fetch(path, { signal: AbortSignal.any(signals), cache: "no-store", headers });
  if (response.ok) return response.json();
  const { detail = response.statusText } = await response.json().catch(() => ({}));
  throw new ({ 401: Denied, 403: Denied, 404: Gone }[response.status] ?? Error)(detail);
}

function take(answer) {
  const before = view;
  view = answer;
  drift = view.now - Date.now() / 1000;
  answered();
  showAll();
  const wasOnline = new Set(before?.shown.filter(({ online }) => online).map(({ name }) => name));
  const gone = view.shown.filter(({ name, online }) => !online && wasOnline.has(name));
  if (gone.length) say("announce", `${gone.map(({ name }) => name).join(", ")} went offline.`);
}

function trouble(error) {
  if (error instanceof Denied) {
    sessionStorage.removeItem(KEPT);
    askForToken(`${error.message}.`);
  } else if (error instanceof Gone) {
    following?.abort();
    enter();
  } else {
    if (awaySince === null) say("announce", "The relay is unavailable.");
    awaySince ??= Date.now() / 1000;
    state("away", "the relay is unavailable");
    show("away", true);
    say("away", `The relay has not answered since ${clock(awaySince)}. ${view ? "This is its last answer; the" : "The"} page keeps trying.`);
  }
}

function answered() {
  if (awaySince !== null) say("announce", "The relay is back.");
  awaySince = null;
  show("away", false);
  state("live", "live");
}

function askForToken(why) {
  following?.abort();
  view = null;
  for (const id of ["board", "empty", "tasks", "away"]) show(id, false);
  show("token-form", true);
  say("token-problem", why);
  state("waiting", "a token is needed");
  find("token").focus();
}

function state(kind, words) {
  find("state").dataset.state = kind;
  say("state-text", words);
}

// What is shown

function showAll() {
  const someone = view.clients > 0;
  show("board", someone);
  show("empty", !someone);
  document.title = `${view.name} · repshare`;
  say("shared", `${view.space ? SHARED_IN_SPACE : SHARED} What a client reports beyond that, it chose to.`);
  if (!someone) return showNobody();
  say("name", view.name);
  say("about", about());
  showSummary();
  showMembers();
  showTotal();
  show("columns", view.columns.length > 0);
  replaceRows("columns-values", view.columns.map(({ name, values }) => make("div", {}, make("dt", {}, name), make("dd", {}, values))));
  showRefusals();
}

function about() {
  if (!view.space) return `${view.classes} classes, ${view.dimension} numbers in a representation`;
  const names = view.class_names.slice(0, MOST_NAMES), more = view.class_names.length - names.length;
  const listed = names.length ? `: ${names.join(", ")}${more ? ` and ${whole(more)} more` : ""}` : "";
  return `${view.classes} classes${listed}. Common space of ${whole(view.dimension)} dimensions (${view.space})`;
}

function showSummary() {
  const { shown: members, clients, round, traffic } = view, own = view.own !== null;
  const online = members.filter((member) => member.online).length, rounds = members.map((member) => member.round);
  say("sum-clients", whole(clients));
  say("sum-clients-note", own ? "only your own row is shown" : online === clients ? "all online" : `${whole(online)} of ${whole(members.length)} online`);
  say("sum-round", members.length ? whole(round) : "–");
  const [least, most] = [Math.min(...rounds), Math.max(...rounds)];
  say("sum-round-note", own ? (members.length ? "yours" : "you have not published yet") : least === most ? "everyone" : `median; from ${whole(least)} to ${whole(most)}`);
  const figure = ["held_out", "test_accuracy", "train_accuracy"].find((each) => members.some((member) => member[each] !== undefined));
  const alone = figure === "held_out" ? mean("held_out_alone") : null;
  say("sum-accuracy-label", { held_out: "Held-out accuracy", train_accuracy: "Training accuracy" }[figure] ?? "Test accuracy");
  say("sum-accuracy", figure ? percent(mean(figure)) : "–");
  say("sum-accuracy-note", !figure ? "no client reports it" : alone === null ? "mean" : `mean; alone ${percent(alone)}`);
  say("sum-traffic", bytes(traffic.up + traffic.down));
  say("sum-traffic-note", `${bytes(traffic.up)} sent by clients, ${bytes(traffic.down)} fetched`);
}

function mean(figure) {
  const told = view.shown.map((member) => member[figure]).filter((value) => value !== undefined);
  return told.length ? told.reduce((sum, value) => sum + value, 0) / told.length : null;
}

function showMembers() {
  const { shown: members, clients } = view, more = clients - members.length, now = Date.now() / 1000 + drift;
  replaceRows("members", members.map((member) => memberRow(member, now)));
  find("clients").classList.toggle("no-privacy", !members.some(({ privacy }) => privacy));
  find("clients").classList.toggle("no-gap", !members.some(({ gap }) => gap !== undefined));
  say("clients-note", more > 0 && view.own === null ? `${whole(members.length)} shown, ${whole(more)} more take part` : "");
}

function memberRow(member, now) {
  const [word, why] = member.refused ? ["refused", member.refused] : ["outlier", "Its release is unlike the others’"];
  const flag = member.refused || member.outlier ? make("span", { class: "flag", title: why }, word) : null;
  return make("tr", { role: "row", "data-name": member.name },
    make("td", { role: "cell" }, make("b", {}, member.name), flag, member.model ? make("small", {}, member.model) : null),
    make("td", { role: "cell", class: `state-cell ${member.online ? "here" : "gone"}` }, make("span", { class: "dot", "aria-hidden": "true" }), member.online ? "online" : "away", make("small", {}, ago(now - member.seen))),
    cell("Round", whole(member.round), "number"),
    cell("Duality gap", member.gap === undefined ? null : short(member.gap), "number gap"),
    cell("Accuracy", accuracy(member), "number pairs"),
    cell("Samples per class", samples(member), "wide"),
    cell("Sent", bytes(member.bytes_up), "number"),
    cell("Received", bytes(member.bytes_down), "number"),
    cell("Privacy spent", privacy(member.privacy), "privacy"));
}

function cell(label, content, kind) {
  return make("td", { role: "cell", "data-label": label, class: content === null ? `${kind} none` : kind }, content ?? "–");
}

function accuracy({ held_out: together, held_out_alone: alone, in_use: used, test_accuracy: tested, train_accuracy: trained }) {
  const uses = used ? make("small", {}, `uses ${used}`) : null;
  if (together !== undefined) return make("span", {}, alone === undefined ? null : `${percent(alone)} → `, make("b", {}, percent(together)), uses);
  const [value, kind] = tested === undefined ? [trained, "training"] : [tested, "test"];
  return value === undefined ? uses : make("span", {}, percent(value), make("small", {}, kind), uses);
}

function samples({ samples: counts, samples_total: total }) {
  const words = make("small", {}, plural(total, "sample"));
  if (!counts.length) return words;
  const shown = counts.slice(0, MOST_BARS), most = Math.max(...shown, 1), width = 100 / shown.length;
  const bars = shown.map((count, label) => {
    const height = Math.max(count ? 1.5 : 0.5, 22 * count / most);
    const place = { x: label * width + width * 0.1, width: width * 0.8, y: 24 - height, height };
    return draw("rect", { ...place, class: count ? `class-${label % COLOURS}` : "class-none" }, draw("title", {}, `${className(label)}: ${whole(count)}`));
  });
  const told = counts.map((count, label) => count ? `${className(label)}: ${count}` : null).filter(Boolean).join(", ");
  return make("div", { class: "samples" }, draw("svg", { viewBox: "0 0 100 24", preserveAspectRatio: "none", role: "img", "aria-label": told || "none" }, ...bars), words);
}

function privacy(spent) {
  if (!spent) return null;
  const more = [spent.delta === undefined ? null : `δ = ${short(spent.delta)}`, spent.mode].filter(Boolean).join(", ");
  return make("span", {}, `ε = ${short(spent.epsilon)}`, more ? make("small", {}, more) : null);
}

function showTotal() {
  show("total", view.total !== null);
  if (view.total === null) return;
  say("total-note", plural(view.total.samples, "sample"));
  replaceRows("total-classes", view.total.classes.map((count, label) => make("div", {}, make("dt", {}, className(label)), make("dd", {}, whole(count)))));
}

function showRefusals() {
  const refusals = view.refusals.slice(0, MOST_REFUSALS);
  show("refusals", refusals.length > 0);
  say("refused-note", refusals.length ? "the latest, newest first" : "nothing has been refused");
  replaceRows("refused", refusals.map(({ time, client, reason }) => make("tr", { role: "row" },
    cell("When", clock(time), "when"), cell("Client", client || "–", ""), cell("Why", reason, "why"))));
}

function showNobody() {
  say("empty-title", `No client has published in ${view.name} yet`);
  show("empty-first", view.own === null);
  say("empty-text", view.own === null ? `${about()}. Invite clients: this makes a token for one.` : "After your first round, your own row appears here, and the totals that you learn from.");
  say("empty-command", `repshare relay invite alice --task "${view.name}" --out alice.token`);
}

function showNoTask() {
  show("board", false);
  show("empty", true);
  say("empty-title", "This relay has no task yet");
  say("empty-text", "A task is what clients agree on: the samples, the classes and the space.");
  say("empty-command", "repshare relay tasks create scans --input-shape 1 28 28 --class-names healthy ill");
  show("empty-first", true);
}

// Elements

function find(id) {
  return document.getElementById(id);
}

function show(id, visible) {
  find(id).hidden = !visible;
}

// Set an element's text, only if it is another: screen readers are not to be woken by nothing.
function say(id, text) {
  if (find(id).textContent !== text) find(id).textContent = text;
}

// Replace those children that differ.
function replaceRows(id, wanted) {
  const there = [...find(id).children];
  there.slice(wanted.length).forEach((row) => row.remove());
  wanted.forEach((row, i) => {
    if (!there[i]) find(id).append(row);
    else if (!row.isEqualNode(there[i])) there[i].replaceWith(row);
  });
}

function make(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

function draw(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children.filter((child) => child !== null));
  return element;
}

// Words

function className(label) {
  return view.class_names[label] ?? `class ${label}`;
}

function bytes(count) {
  let unit = 0;
  while (count >= 999.5 && unit < UNITS.length - 1) { count /= 1000; unit += 1; }
  return `${unit === 0 ? count : +count.toPrecision(3)}\u00a0${UNITS[unit]}`;
}

function percent(share) {
  return `${(100 * share).toFixed(1)}\u00a0%`;
}

function whole(count) {
  return count.toLocaleString("en");
}

function plural(count, noun) {
  return `${whole(count)} ${noun}${count === 1 ? "" : "s"}`;
}

function short(value) {
  return value === 0 || (value >= 0.001 && value < 1e5) ? String(+value.toPrecision(3)) : value.toExponential(1);
}

function ago(seconds) {
  if (seconds < 3) return "now";
  if (seconds < 90) return `${Math.round(seconds)} s ago`;
  if (seconds < 90 * 60) return `${Math.round(seconds / 60)} min ago`;
  if (seconds < 36 * 3600) return `${Math.round(seconds / 3600)} h ago`;
  return `${Math.round(seconds / 86400)} days ago`;
}

function clock(seconds) {
  return new Date(seconds * 1000).toLocaleString("en-GB");
}

function pause(milliseconds) {
  return new Promise((then) => { setTimeout(then, milliseconds); });
}
