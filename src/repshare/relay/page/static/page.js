// The page: which task, who may look, what has changed.

import { choose as chooseOnMap, forgetMap, repaintMap, showMap, showNoMap } from "./map.js";
import { repaintCurves, showCurves } from "./curves.js";
import { showMembers, showRefusals, showTraffic } from "./clients.js";
import { find, make, say, show } from "./elements.js";
import { Away, Denied, Gone, ask, follow, keepToken, readToken } from "./feed.js";
import { className, isNamed, nameClasses, whenColoursChange } from "./palette.js";
import { showTotal } from "./total.js";
import { bytes, clock, percent, plural, short, times, whole } from "./words.js";

const LEAST_MILLISECONDS = 1000; // between two questions for the page
const MOST_MILLISECONDS = 5000; // time passes also where nothing happens: clients go away
const ANNOUNCE_MILLISECONDS = 20000;
const NAMED = 12; // classes in the headline
const COMBINED = { mean: "averaged", median: "combined by median", trimmed: "combined by trimmed mean", geometric: "combined by geometric median" };
const SHARED = "Clients share averages of representations: not data, not weights.";
const SHARED_IN_SPACE = "Clients share weighted averages of vectors that a public map makes of their samples: not data, not a network’s weights. The total is a linear classifier.";

let task = null, view = null, chosen = null, following = null;
let drift = 0; // the relay's clock minus ours, in seconds
let awaySince = null, answered = 0, announced = 0, mapShown = null;
let asking = false, askAgain = false, timer = null;

start();

function start() {
  const told = new URLSearchParams(location.hash.slice(1));
  if (told.has("token")) {
    keepToken(told.get("token"));
    told.delete("token");
    history.replaceState(null, "", `${location.pathname}${location.search}${told.size ? `#${told}` : ""}`);
  }
  find("token-form").addEventListener("submit", (event) => { event.preventDefault(); keepToken(find("token").value.trim()); find("token").value = ""; enter(); });
  find("task").addEventListener("change", () => watch(find("task").value));
  document.addEventListener("visibilitychange", () => { if (!document.hidden) refresh(); });
  whenColoursChange(() => { repaintCurves(); repaintMap(); if (view) showAll(); });
  setInterval(() => { if (!document.hidden && view) showMembers(view, now(), chosen, choose); }, 1000);
  setInterval(() => { if (!document.hidden && Date.now() - answered >= MOST_MILLISECONDS) refresh(); }, 1000);
  if (document.documentElement.dataset.needsToken === "yes" && !readToken()) askForToken("");
  else enter();
}

const now = () => Date.now() / 1000 + drift;

async function enter() {
  show("token-form", false);
  let tasks;
  try {
    ({ tasks } = await ask("/v1/tasks"));
  } catch (error) {
    trouble(error);
    if (error instanceof Away) setTimeout(enter, 2000);
    return;
  }
  back();
  const names = tasks.map(({ name }) => name), wanted = new URLSearchParams(location.hash.slice(1)).get("task");
  find("task").replaceChildren(...names.map((name) => make("option", { value: name }, name)));
  show("tasks", names.length > 1);
  if (names.length) watch(names.includes(wanted) ? wanted : names[0]);
  else { showNoTask(); setTimeout(enter, MOST_MILLISECONDS); }
}

function watch(name) {
  following?.abort();
  following = new AbortController();
  [task, view, chosen, mapShown] = [name, null, null, null];
  forgetMap();
  find("task").value = name;
  if (!find("tasks").hidden) history.replaceState(null, "", `#${new URLSearchParams({ task: name })}`);
  follow(name, soon, following.signal);
  refresh();
}

// Something has happened: look, but not more often than once a second.
function soon() {
  if (timer === null && !document.hidden) timer = setTimeout(() => { timer = null; refresh(); }, Math.max(0, answered + LEAST_MILLISECONDS - Date.now()));
}

async function refresh() {
  if (task === null || find("token-form").hidden === false) return;
  if (asking) { askAgain = true; return; }
  asking = true;
  const asked = task, path = `/v1/tasks/${encodeURIComponent(task)}`;
  try {
    const answer = await ask(`${path}/page`);
    if (asked === task) { take(answer); await refreshMap(path, asked); }
  } catch (error) {
    if (asked === task) trouble(error);
  }
  asking = false;
  if (askAgain) { askAgain = false; soon(); }
}

function take(answer) {
  const before = view;
  view = answer;
  drift = view.now - Date.now() / 1000;
  answered = Date.now();
  back();
  showAll();
  announce(before);
}

async function refreshMap(path, asked) {
  if (view.frames.length === 0 || view.map === mapShown) return;
  const answer = await ask(`${path}/map`);
  if (asked === task && window.Plotly) { mapShown = answer.changes; showMap(answer, Boolean(view.common)); }
}

function showAll() {
  const someone = view.clients > 0;
  nameClasses(view.common?.class_names ?? []);
  show("board", someone);
  show("empty", !someone);
  document.title = `${view.name} · repshare`;
  if (!someone) { showNobody(); return; }
  say("name", view.name);
  say("about", about());
  show("space", Boolean(view.common));
  if (view.common) say("space", space());
  show("map-section", view.own === null);
  if (!view.frames.length) showNoMap();
  find("figures").classList.toggle("single", view.own !== null || !view.frames.length || !Object.keys(view.curves.all).length);
  say("map-title", view.common ? "Map of the class vectors" : "Map of the representations");
  say("shared", `${view.common ? SHARED_IN_SPACE : SHARED} What a client reports beyond that, it chose to.`);
  showSummary();
  if (window.Plotly) showCurves(view.curves, chosen);
  else say("curves-words", "The figures need plotly on the relay’s machine: install the extra relay.");
  showMembers(view, now(), chosen, choose);
  showTotal(view);
  showColumns(view.common?.columns ?? []);
  showTraffic(view);
  showRefusals(view.refusals, now());
}

function about() {
  const { task, common, classes } = view;
  if (!common) return `${classes} classes, ${task.dimension} numbers in a representation, ${COMBINED[task.aggregation]}`;
  const shown = isNamed() ? [...Array(Math.min(classes, NAMED)).keys()].map(className) : [];
  const names = shown.length ? `: ${shown.join(", ")}${classes > NAMED ? ` and ${plural(classes - NAMED, "more", "more")}` : ""}` : "";
  if (common.columns.length) return `${classes} classes${names}. A table of named columns.`;
  return `${classes} classes${names}. Inputs ${common.inputs ? `from ${short(common.inputs[0])} to ${short(common.inputs[1])}` : "normalised by the clients"}.`;
}

function showColumns(columns) {
  show("columns", columns.length > 0);
  find("columns-rows").replaceChildren(...columns.map(({ name, values, missing }) => make("tr", {},
    make("th", { scope: "row" }, name), make("td", {}, values), make("td", {}, missing === null ? "its row is left out" : `${missing} stands for it`))));
}

function space() {
  const { space: name, dimension, seed, sha256, loss, fingerprint } = view.common;
  const from = [seed === null ? null : `seed ${seed}`, sha256 ? `weights with SHA-256 ${sha256.slice(0, 16)}…` : null, loss ? `${loss} loss` : null];
  return `Common space ${[name ?? "that the task does not describe", `${whole(dimension)} dimensions`, ...from].filter(Boolean).join(", ")} (${fingerprint})`;
}

function showSummary() {
  const { traffic } = view, rounds = view.members.map(({ round }) => round);
  say("sum-clients", whole(view.clients));
  say("sum-clients-note", view.own !== null ? "only your own row is shown" : view.counted < view.clients ? `${whole(view.online)} of ${whole(view.counted)} looked at are online` : view.online === view.clients ? "all online" : `${whole(view.online)} online, ${whole(view.clients - view.online)} away`);
  say("sum-round", rounds.length ? whole(view.round) : "–");
  const least = Math.min(...rounds), ahead = rounds.some((round) => round > view.round);
  say("sum-round-note", view.own !== null ? (rounds.length ? "yours" : "you have not published yet") : least < view.round ? `median; the slowest is in round ${whole(least)}` : ahead ? "median; some are ahead" : "everyone");
  const { held_out: held, held_out_alone: alone, test_accuracy: tested, train_accuracy: trained } = view.curves.all, curve = held ?? tested ?? trained;
  say("sum-accuracy-label", held || (!curve && view.common) ? "Held-out accuracy" : tested || !curve ? "Test accuracy" : "Training accuracy");
  const last = curve?.mean.findLastIndex((value) => value !== null) ?? -1, before = held ? alone?.mean[last] ?? null : null;
  say("sum-accuracy", last >= 0 ? percent(curve.mean[last]) : "–");
  say("sum-accuracy-note", last < 0 ? "no client reports it" : before === null ? `mean; from ${percent(curve.low[last])} to ${percent(curve.high[last])}` : `mean; alone ${percent(before)}`);
  say("sum-traffic", bytes(traffic.up + traffic.down));
  const ratio = traffic.fedavg_bytes / traffic.sized_bytes;
  say("sum-traffic-note", traffic.sized && traffic.sized_bytes ? `FedAvg: ${times(ratio)} as much` : `${bytes(traffic.up)} up, ${bytes(traffic.down)} down`);
}

function choose(name) {
  chosen = chosen === name ? null : name;
  showMembers(view, now(), chosen, choose);
  if (window.Plotly) { showCurves(view.curves, chosen); chooseOnMap(chosen); }
}

function showNobody() {
  say("empty-title", `No client has published in ${view.name} yet`);
  show("empty-first", view.own === null);
  say("empty-join-command", `repshare join ${location.origin} --party party.py:alice --token-file alice.token --report`);
  show("empty-join", true);
  if (view.own !== null) {
    say("empty-text", "After your first round, your own row appears here, and the totals that you learn from.");
    say("empty-then", "");
    return;
  }
  say("empty-text", `${view.common ? `${about()} ${space()}. ` : ""}Invite clients: this makes a token for one.`);
  say("empty-command", `repshare relay invite alice --task "${view.name}" --out alice.token`);
  say("empty-then", "Alice then takes part from her machine, and appears here after her first round:");
}

function showNoTask() {
  show("board", false);
  show("empty", true);
  say("empty-title", "This relay has no task yet");
  say("empty-text", "A task is what clients agree on: how many classes, and how long a representation is.");
  say("empty-command", "repshare relay tasks create digits --classes 10 --dimension 84");
  say("empty-then", "");
  show("empty-first", true);
  show("empty-join", false);
}

function askForToken(why) {
  following?.abort();
  task = null;
  for (const id of ["board", "empty", "tasks", "away"]) show(id, false);
  show("token-form", true);
  say("token-problem", why);
  state("waiting", "a token is needed");
  find("token").focus();
}

function trouble(error) {
  if (error instanceof Denied) {
    keepToken(null);
    askForToken(`${error.message}.`);
  } else if (error instanceof Gone) {
    following?.abort();
    task = null;
    enter();
  } else {
    const first = awaySince === null;
    awaySince ??= now();
    answered = Date.now();
    state("away", "the relay is unavailable");
    show("away", true);
    say("away", `The relay has not answered since ${clock(awaySince - drift)}. ${view ? "This is the last picture; the" : "The"} page keeps trying.`);
    if (first) say("announce", "The relay is unavailable.");
  }
}

function back() {
  if (awaySince !== null) say("announce", "The relay is back.");
  awaySince = null;
  show("away", false);
  state("live", "live");
}

function state(kind, words) {
  find("state").dataset.state = kind;
  say("state-text", words);
}

function announce(before) {
  const gone = view.members.filter((member) => !member.online && before?.members.some((each) => each.name === member.name && each.online));
  if (gone.length) say("announce", `${gone.map(({ name }) => name).join(", ")} went offline.`);
  else if (Date.now() - announced > ANNOUNCE_MILLISECONDS && view.clients) {
    announced = Date.now();
    say("announce", `${plural(view.clients, "client")}, ${whole(view.online)} online, round ${whole(view.round)}, mean accuracy ${find("sum-accuracy").textContent}.`);
  }
}
