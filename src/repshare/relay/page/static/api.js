// The API's page: the relay's own description, /openapi.json, for people. Nothing is sent from here.

import { find, make, say, show } from "./elements.js";

const METHODS = ["get", "put", "post", "patch", "delete"];

try {
  const answer = await fetch("/openapi.json");
  if (!answer.ok) throw new Error(`the relay answered ${answer.status}`);
  render(await answer.json());
} catch (error) {
  say("away", `The description could not be read: ${error.message}`);
  show("away", true);
}

function render(api) {
  say("title", `${api.info.title} ${api.info.version}`);
  say("description", api.info.description ?? "");
  for (const [tag, operations] of byTag(api.paths)) {
    find("operations").append(make("section", {}, make("h2", {}, tag), ...operations.map(operation)));
  }
  const schemas = Object.entries(api.components?.schemas ?? {});
  find("schemas").append(make("section", {}, make("h2", {}, "shapes"), ...schemas.map(shape)));
}

function byTag(paths) {
  const found = new Map();
  for (const [path, methods] of Object.entries(paths)) {
    for (const method of METHODS.filter((each) => each in methods)) {
      const tag = methods[method].tags?.[0] ?? "other";
      if (!found.has(tag)) found.set(tag, []);
      found.get(tag).push({ path, method, ...methods[method] });
    }
  }
  return found;
}

function operation(one) {
  const needs = one.security?.length ? "Needs a token: Authorization: Bearer rs_…" : null;
  const bodies = Object.entries(one.requestBody?.content ?? {}).map(([type, body]) => row("body", `${type}: ${describe(body.schema)}`));
  const answers = Object.entries(one.responses ?? {}).map(([status, answer]) => row(status, answered(answer)));
  return make(
    "details", { class: "operation" },
    make("summary", {}, make("span", { class: "method" }, one.method.toUpperCase()), make("code", {}, one.path), one.summary ?? ""),
    one.description ? make("p", {}, one.description) : null,
    needs ? make("p", { class: "quiet" }, needs) : null,
    make("table", {}, make("tbody", {}, ...(one.parameters ?? []).map(parameter), ...bodies, ...answers)),
  );
}

function parameter(one) {
  const what = [one.in, one.required ? "required" : null, describe(one.schema), one.description].filter(Boolean);
  return row(one.name, what.join(", "));
}

function answered(answer) {
  const types = Object.entries(answer.content ?? {}).map(([type, content]) => `${type}: ${describe(content.schema)}`);
  return [answer.description, ...types].filter(Boolean).join("; ");
}

function shape([name, schema]) {
  const required = schema.required ?? [];
  const fields = Object.entries(schema.properties ?? {}).map(([field, value]) =>
    row(field, [describe(value), required.includes(field) ? "required" : null, value.description].filter(Boolean).join(", ")));
  return make(
    "details", { class: "shape" }, make("summary", {}, make("code", {}, name)),
    schema.description ? make("p", {}, schema.description) : null, make("table", {}, make("tbody", {}, ...fields)),
  );
}

function describe(schema) {
  if (!schema) return "";
  if (schema.$ref) return schema.$ref.split("/").at(-1);
  if (schema.title && schema.properties) return schema.title;
  if (schema.anyOf) return schema.anyOf.map(describe).join(" or ");
  if (schema.enum) return schema.enum.map((value) => JSON.stringify(value)).join(" or ");
  if (schema.type === "array") return `several of: ${describe(schema.items)}`;
  const bounds = [["minimum", "from"], ["maximum", "to"], ["default", "default"]].filter(([key]) => key in schema && schema[key] !== null);
  return [schema.type ?? "anything", schema.format, ...bounds.map(([key, word]) => `${word} ${schema[key]}`)].filter(Boolean).join(" ");
}

function row(name, text) {
  return make("tr", {}, make("td", {}, make("code", {}, name)), make("td", {}, text));
}
