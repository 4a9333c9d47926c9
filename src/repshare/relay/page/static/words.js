// Numbers and times as people read them.

const UNITS = ["B", "kB", "MB", "GB", "TB", "PB"];

export function bytes(count) {
  let unit = 0;
  while (count >= 999.5 && unit < UNITS.length - 1) { count /= 1000; unit += 1; }
  return `${unit === 0 ? count : significant(count)}\u00a0${UNITS[unit]}`;
}

const significant = (value) => value >= 100 ? value.toFixed(0) : value >= 10 ? value.toFixed(1) : value.toFixed(2);

export const percent = (share) => `${(100 * share).toFixed(1)}\u00a0%`;

export const whole = (count) => count.toLocaleString("en");

export const plural = (count, one, many = `${one}s`) => `${whole(count)} ${count === 1 ? one : many}`;

export const short = (value) => value === 0 ? "0" : Math.abs(value) >= 0.001 && Math.abs(value) < 1e5 ? String(+value.toPrecision(3)) : value.toExponential(1);

export function times(ratio) {
  return ratio >= 9.95 ? `${whole(Math.round(ratio))} times` : `${ratio.toFixed(1)} times`;
}

export function ago(seconds) {
  if (seconds < 3) return "now";
  if (seconds < 90) return `${Math.round(seconds)} s ago`;
  if (seconds < 90 * 60) return `${Math.round(seconds / 60)} min ago`;
  if (seconds < 36 * 3600) return `${Math.round(seconds / 3600)} h ago`;
  return `${Math.round(seconds / 86400)} days ago`;
}

export const clock = (seconds) => new Date(seconds * 1000).toLocaleTimeString("en-GB");

// Plotly reads tags and entities in names and hover texts: what a client is called must arrive as it is.
export const literal = (text) => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
