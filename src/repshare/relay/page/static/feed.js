// What the relay says: documents by fetch, and a stream of events that is read by fetch, too, since only that can carry a token.

const KEPT = "repshare-token";
const POLL_MILLISECONDS = 2000;
const SILENCE_MILLISECONDS = 40000; // the relay gives a sign of life every 15 s

export class Denied extends Error {} // 401, 403
export class Gone extends Error {} // 404
export class Away extends Error {} // no answer, or none that helps

export const readToken = () => sessionStorage.getItem(KEPT);
export const keepToken = (token) => token ? sessionStorage.setItem(KEPT, token) : sessionStorage.removeItem(KEPT);

export async function ask(path, signal) {
  const response = await request(path, signal);
  return response.json().catch((error) => { throw new Away(error.message); });
}

// Call `changed` whenever something has happened in a task, until the signal says stop.
export async function follow(task, changed, signal) {
  while (!signal.aborted) {
    try {
      await read(await request(`/v1/tasks/${encodeURIComponent(task)}/events`, signal), changed);
    } catch (error) {
      if (signal.aborted) return;
    }
    changed(); // the stream ended: ask now and then until there is another
    await pause(POLL_MILLISECONDS, signal);
  }
}

async function request(path, signal) {
  const token = readToken();
  let response;
  try {
    response = await fetch(path, { signal, cache: "no-store", headers: token ? { Authorization: `Bearer ${token}` } : {} });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new Away("the relay does not answer");
  }
  if (response.ok) return response;
  const problem = await response.json().catch(() => ({}));
  const said = problem.detail ?? `${response.status} ${response.statusText}`;
  if (response.status === 401 || response.status === 403) throw new Denied(said);
  if (response.status === 404) throw new Gone(said);
  throw new Away(said);
}

async function read(response, changed) {
  const reader = response.body.getReader(), decoder = new TextDecoder();
  let rest = "";
  while (true) {
    const silence = setTimeout(() => reader.cancel(), SILENCE_MILLISECONDS);
    const { done, value } = await reader.read().finally(() => clearTimeout(silence));
    if (done) return;
    const events = (rest + decoder.decode(value, { stream: true })).split("\n\n");
    rest = events.pop();
    if (events.some((event) => event.startsWith("data:"))) changed();
  }
}

function pause(milliseconds, signal) {
  return new Promise((go) => {
    const timer = setTimeout(go, milliseconds);
    signal.addEventListener("abort", () => { clearTimeout(timer); go(); }, { once: true });
  });
}
