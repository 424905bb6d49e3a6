// One sample, one key a label. The queue lives here, so that a key always belongs to the sample
// on the screen; answers are kept in the browser's storage until the server acknowledges them.

const FLUSH_MS = 200;
const RESEND_MS = 3000;
const BATCH = 100;
const REFILL_BELOW = 15;
const RECENT = 10;
const HISTORY = 20;
const PACE_ANSWERS = 50;
const IDLE_MS = 30000;
const states = new WeakMap();

const SKELETON = `<div class="desk">
  <div class="stage"><img class="sample" alt="Synthetic sample to label">
    <div class="empty" role="status" hidden></div></div>
  <div><div class="labels"></div><div class="tools">
    <button type="button" data-act="skip"><kbd>Space</kbd><span>Skip</span></button>
    <button type="button" data-act="undo"><kbd>U</kbd><span>Undo</span></button>
    <button type="button" data-act="more" hidden><span>Look for more samples</span></button>
    <button type="button" data-act="drop" hidden><span>Discard what was refused</span></button>
  </div></div>
  <div class="foot"><div class="bar"><div></div></div>
    <div class="counts"><span class="progress"></span><span class="pace"></span>
      <span class="unsent" role="status"></span><span class="error" role="alert"></span></div>
    <div class="recent" aria-label="Your last answers"></div></div>
</div>`;

export default function (component) {
  const { data, parentElement } = component;
  let state = states.get(parentElement);
  if (!state) {
    state = create(parentElement, data);
    states.set(parentElement, state);
  }
  // The export is called again for each new data: listeners stay, the way to send is renewed.
  state.send = (payload) => component.setTriggerValue("answers", payload);
  receive(state, data);
  return () => {
    dispose(state);
    states.delete(parentElement);
  };
}

function create(parent, data) {
  const root = document.createElement("div");
  root.innerHTML = SKELETON;
  parent.querySelector("div").append(root);
  const state = {
    root, data, queue: [], history: [], recent: [], times: [], awaiting: null, sentAt: 0, timer: 0,
    seen: 0, shown: null, outbox: loadOutbox(data.scope), drawnLabels: "",
  };
  state.onKey = (event) => onKey(state, event);
  document.addEventListener("keydown", state.onKey);
  root.addEventListener("click", (event) => onClick(state, event));
  return state;
}

function dispose(state) {
  document.removeEventListener("keydown", state.onKey);
  clearTimeout(state.timer);
  state.root.remove();
}

// --- what the server says ---------------------------------------------------------------------

function receive(state, data) {
  state.data = data;
  const acked = new Set(data.acked);
  for (const event of state.outbox) if (acked.has(event.uuid)) forget(data.scope, event);
  const before = state.outbox.length;
  state.outbox = state.outbox.filter((event) => !acked.has(event.uuid));
  if (state.outbox.length < before || data.error) state.sentAt = 0;
  mergeQueue(state, acked);
  if (state.outbox.length) schedule(state, data.error ? RESEND_MS : FLUSH_MS);
  render(state);
}

// The sample on the screen stays there; behind it comes the server's queue, without those
// answered here of which the server does not know yet.
function mergeQueue(state, acked) {
  const pending = new Map();
  for (const event of state.outbox) pending.set(event.sample_id, event.kind);
  const fresh = state.data.queue.filter((sample) => pending.get(sample.id) !== "answer");
  let first = state.queue[0];
  if (state.awaiting && acked.has(state.awaiting)) {
    const back = state.data.undone[state.awaiting];
    first = fresh.find((sample) => sample.id === back) || first;
    state.awaiting = null;
  }
  const rest = fresh.filter((sample) => !first || sample.id !== first.id);
  state.queue = first ? [first, ...rest] : rest;
}

// --- what the annotator does ------------------------------------------------------------------

function onKey(state, event) {
  if (!state.root.isConnected) return dispose(state);
  if (event.repeat || event.isComposing || event.ctrlKey || event.metaKey || event.altKey) return;
  const target = event.composedPath()[0];
  if (target instanceof Element && isTyping(target)) return;
  const key = event.key.toLowerCase();
  const label = state.data.labels.find((one) => one.key.toLowerCase() === key);
  const onControl = target instanceof Element && target.closest("button, a, summary, [role]");
  if (label) answer(state, label);
  else if (key === " " && !onControl) answer(state, null);
  else if (key === "u" || key === "backspace") undo(state);
  else return;
  event.preventDefault();
}

function isTyping(target) {
  return target.isContentEditable || Boolean(target.closest("input, textarea, select"));
}

function onClick(state, event) {
  const button = event.target.closest("button");
  if (!button) return;
  if (event.detail > 0) button.blur(); // after a mouse click, Space is to skip again
  if (button.dataset.label) {
    answer(state, state.data.labels.find((one) => String(one.id) === button.dataset.label));
  } else if (button.dataset.act === "skip") answer(state, null);
  else if (button.dataset.act === "undo") undo(state);
  else if (button.dataset.act === "more") state.send({ nonce: newId(), events: [] });
  else if (button.dataset.act === "drop") drop(state);
}

function answer(state, label) {
  const sample = state.queue[0];
  if (!sample || state.awaiting || state.shown !== sample.id) return;
  const event = {
    uuid: newId(), kind: "answer", sample_id: sample.id, label_id: label ? label.id : null,
    lead_ms: Math.max(0, Math.round(performance.now() - state.seen)), at: Date.now(),
  };
  state.queue.shift();
  state.history.push(sample);
  if (state.history.length > HISTORY) state.history.shift();
  state.recent.push({ sample, text: label ? label.name : "skipped" });
  state.times.push(event.at);
  put(state, event);
}

function undo(state) {
  if (state.awaiting) return;
  const sample = state.history.pop();
  const event = {
    uuid: newId(), kind: "undo", sample_id: sample ? sample.id : null, at: Date.now(),
  };
  state.recent.pop();
  if (sample) state.queue.unshift(sample);
  else state.awaiting = event.uuid; // given before this page was loaded: the server knows which
  put(state, event);
}

function drop(state) {
  for (const event of state.outbox) forget(state.data.scope, event);
  state.outbox = [];
  state.queue = [];
  state.awaiting = null;
  state.send({ nonce: newId(), events: [] });
  render(state);
}

// --- sending ----------------------------------------------------------------------------------

function put(state, event) {
  state.outbox.push(event);
  remember(state.data.scope, event);
  schedule(state, state.queue.length < REFILL_BELOW ? 0 : FLUSH_MS);
  render(state);
}

function schedule(state, delay) {
  clearTimeout(state.timer);
  state.timer = setTimeout(() => flush(state), delay);
}

// All that is not acknowledged goes again, in order: the server knows what it has already.
function flush(state) {
  if (!state.outbox.length || !state.root.isConnected) return;
  const wait = state.sentAt ? state.sentAt + RESEND_MS - Date.now() : 0;
  if (wait <= 0) {
    state.sentAt = Date.now();
    state.send({ nonce: newId(), events: state.outbox.slice(0, BATCH) });
  }
  schedule(state, wait > 0 ? wait : RESEND_MS);
}

function newId() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

// Each answer has a key of its own, so that two tabs never overwrite each other's.
function loadOutbox(scope) {
  const events = [];
  try {
    for (let i = 0; i < localStorage.length; i += 1) {
      const name = localStorage.key(i);
      if (name.startsWith(`${scope}/`)) events.push(JSON.parse(localStorage.getItem(name)));
    }
  } catch {
    return []; // storage is forbidden or was tampered with: only this page's answers are kept
  }
  return events.sort((a, b) => a.at - b.at || a.order - b.order);
}

let order = 0;

function remember(scope, event) {
  order += 1;
  event.order = order;
  try {
    localStorage.setItem(`${scope}/${event.uuid}`, JSON.stringify(event));
  } catch {
    // Full or forbidden: the answer is still sent, it only would not survive a closed tab.
  }
}

function forget(scope, event) {
  try {
    localStorage.removeItem(`${scope}/${event.uuid}`);
  } catch {
    // As above.
  }
}

// --- drawing ----------------------------------------------------------------------------------

function render(state) {
  const { root, data } = state;
  const find = (name) => root.querySelector(name);
  const sample = state.queue[0];
  showSample(state, sample);
  drawLabels(state);
  const counts = progress(state);
  const share = counts.total ? (100 * (counts.done + counts.skipped)) / counts.total : 0;
  find(".bar div").style.width = `${share}%`;
  find(".progress").textContent =
    `${counts.done} labelled, ${counts.skipped} skipped, ${counts.left} left of ${counts.total}`;
  find(".pace").textContent = pace(state.times);
  const unsent = state.outbox.length;
  find(".unsent").textContent = unsent ? `${unsent} on the way` : "all saved";
  find(".error").textContent = data.error || "";
  find('[data-act="drop"]').hidden = !data.error || !unsent;
  find('[data-act="more"]').hidden = Boolean(sample);
  for (const button of root.querySelectorAll("[data-label], [data-act=skip]")) {
    button.disabled = !sample;
  }
  drawRecent(state);
  root.firstChild.dataset.sample = sample ? String(sample.id) : "";
  root.firstChild.dataset.unsent = String(unsent);
}

function showSample(state, sample) {
  const image = state.root.querySelector(".sample");
  const empty = state.root.querySelector(".empty");
  image.hidden = !sample;
  empty.hidden = Boolean(sample);
  if (!sample) {
    const counts = progress(state);
    empty.textContent = counts.left > 0 || state.outbox.length
      ? "Fetching the next samples…"
      : "All done: every sample of this project has your answer. Thank you!";
    state.shown = null;
  } else if (state.shown !== sample.id) {
    image.src = `data:image/png;base64,${sample.png}`;
    state.shown = sample.id;
    state.seen = performance.now();
  }
}

function drawLabels(state) {
  const signature = JSON.stringify(state.data.labels);
  if (signature === state.drawnLabels) return;
  state.drawnLabels = signature;
  const box = state.root.querySelector(".labels");
  box.replaceChildren(...state.data.labels.map((label) => {
    const button = document.createElement("button");
    button.type = "button";
    button.dataset.label = String(label.id);
    const key = document.createElement("kbd");
    key.textContent = label.key.toUpperCase();
    const text = document.createElement("span");
    text.textContent = label.name;
    button.append(key, text);
    return button;
  }));
}

function drawRecent(state) {
  state.recent = state.recent.slice(-RECENT);
  const figures = state.recent.map(({ sample, text }) => {
    const figure = document.createElement("figure");
    const image = document.createElement("img");
    image.src = `data:image/png;base64,${sample.png}`;
    image.alt = "";
    const caption = document.createElement("figcaption");
    caption.textContent = text;
    figure.append(image, caption);
    return figure;
  });
  state.root.querySelector(".recent").replaceChildren(...figures.reverse());
}

// The server's counts plus what it has not acknowledged yet.
function progress(state) {
  const { total, done, skipped } = state.data.progress;
  const counts = { total, done, skipped };
  const waiting = new Map();
  for (const event of state.outbox) {
    if (event.kind === "answer") {
      const field = event.label_id === null ? "skipped" : "done";
      counts[field] += 1;
      waiting.set(event.sample_id, field);
    } else if (event.sample_id !== null) {
      counts[waiting.get(event.sample_id) || "done"] -= 1;
    }
  }
  counts.left = Math.max(0, total - counts.done - counts.skipped);
  return counts;
}

function pace(times) {
  const last = times.slice(-PACE_ANSWERS);
  const gaps = last.slice(1).map((time, i) => time - last[i]).filter((gap) => gap < IDLE_MS);
  const spent = gaps.reduce((sum, gap) => sum + gap, 0);
  return gaps.length < 2 || !spent ? "" : `${Math.round((60000 * gaps.length) / spent)} a minute`;
}
