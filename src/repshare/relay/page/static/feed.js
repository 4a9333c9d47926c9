// What the relay says: documents, and the news that a task has changed, which a request waits for.

const KEPT = "repshare-token";
const POLL_MILLISECONDS = 2000; // while the relay gives no news
const LEAST_MILLISECONDS = 500; // between two questions
const WAIT_SECONDS = 20; // of the relay, for news
const SILENCE_MILLISECONDS = 40000; // after which it is asked again

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
  const path = `/v1/tasks/${encodeURIComponent(task)}/news?wait=${WAIT_SECONDS}&since=`;
  let known = null;
  while (!signal.aborted) {
    try {
      const { version } = await ask(path + (known ?? 0), AbortSignal.any([signal, AbortSignal.timeout(SILENCE_MILLISECONDS)]));
      if (version !== known) changed();
      known = version;
      await pause(LEAST_MILLISECONDS, signal);
    } catch (error) {
      if (signal.aborted) return;
      changed();
      await pause(POLL_MILLISECONDS, signal);
    }
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

function pause(milliseconds, signal) {
  return new Promise((go) => {
    const timer = setTimeout(go, milliseconds);
    signal.addEventListener("abort", () => { clearTimeout(timer); go(); }, { once: true });
  });
}
