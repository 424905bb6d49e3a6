// One sample, one key a label. The queue lives here, so that a key always belongs to the sample on
// the screen. Answers go straight to the dashboard's own address and are kept in the browser's
// storage until it has acknowledged them: a server that is away for a while costs nothing.

const LEAST_WANTED = 150; // samples on the desk: ten seconds of work, within these bounds
const MOST_WANTED = 200;
const AHEAD_SECONDS = 10;
const FLUSH_MS = 120;
const RETRY_MS = [500, 1000, 2000, 4000];
const POLL_MS = 3000; // while others hold what is left
const RENEW_MS = 60000;
const BATCH = 100;
const RECENT = 12;
const LARGEST = 320; // pixels of the sample on the desk, at most
const SMALL = 64; // of one among the last answers
const HISTORY = 50;
const REVIEWED_AHEAD = 40; // samples on a reviewer's desk
const PACE_ANSWERS = 50;
const IDLE_MS = 30000;
// On the window, because the module itself is loaded again when the page reconnects.
const desks = (globalThis.fedlensDesks ??= new Map());

const SKELETON = `<div class="desk">
  <div class="stage"><img class="sample" alt="Synthetic sample to label">
    <div class="hint" hidden></div><div class="empty" role="status" hidden></div></div>
  <div><div class="given" hidden></div><div class="labels"></div><div class="tools">
    <button type="button" data-act="skip"><kbd>Space</kbd><span>Skip</span></button>
    <button type="button" data-act="exclude" hidden><kbd>Del</kbd><span>Exclude</span></button>
    <button type="button" data-act="undo"><kbd>U</kbd><span>Undo</span></button>
    <button type="button" data-act="keep" hidden><kbd>Esc</kbd><span>Leave it as it was</span></button>
    <button type="button" data-act="drop" hidden><span>Discard what was refused</span></button>
  </div>
  <label class="note"><kbd>Enter</kbd><span>Note</span>
    <input type="text" maxlength="500" placeholder="goes with the next answer"></label></div>
  <div class="foot"><div class="bar"><div></div></div>
    <div class="counts"><span class="progress"></span><span class="pace"></span>
      <span class="unsent" role="status"></span><span class="error" role="alert"></span></div>
    <div class="recent" role="group" aria-label="Your last answers: choose one to change it"></div></div>
  <div class="log" hidden></div>
</div>`;

export default function (component) {
  const { data, parentElement } = component;
  let desk = desks.get(data.scope);
  if (!desk) {
    desk = create(data);
    desks.set(data.scope, desk);
  }
  desk.data = data;
  attach(desk, parentElement);
  render(desk);
  if (!desk.asked) sync(desk);
  return () => detach(desk);
}

function create(data) {
  const root = document.createElement("div");
  root.innerHTML = SKELETON;
  const desk = {
    root, data, queue: [], history: [], times: [], marked: new Set(), editing: null, timer: 0,
    busy: false, failures: 0, asked: false, shown: null, seen: 0, drawnLabels: "",
    progress: { total: 0, done: 0, skipped: 0 }, freeAt: null, error: "", refused: false,
    hungry: false, painted: null, list: null, tab: tabName(data.scope), outbox: loadOutbox(data.scope),
  };
  desk.onKey = (event) => onKey(desk, event);
  desk.onLeave = () => leave(desk);
  root.addEventListener("click", (event) => onClick(desk, event));
  if (data.review) prepareReview(desk);
  return desk;
}

function attach(desk, parent) {
  const host = parent.querySelector("div");
  if (desk.root.parentNode !== host) host.append(desk.root);
  detach(desk, false);
  document.addEventListener("keydown", desk.onKey);
  window.addEventListener("pagehide", desk.onLeave);
}

function detach(desk, remove = true) {
  document.removeEventListener("keydown", desk.onKey);
  window.removeEventListener("pagehide", desk.onLeave);
  if (remove) desk.root.remove(); // what is unsent goes on being sent
}

// --- what the annotator does ------------------------------------------------------------------

function onKey(desk, event) {
  if (!desk.root.isConnected) return detach(desk);
  if (event.repeat || event.isComposing || event.ctrlKey || event.metaKey || event.altKey) return;
  const target = event.composedPath()[0];
  if (target instanceof Element && isTyping(target)) {
    if (event.key === "Enter" && target.closest(".note")) target.blur();
    return;
  }
  const label = labelOf(desk, event);
  const onControl = target instanceof Element && target.closest("button, a, summary, [role]");
  const key = event.key.toLowerCase();
  if (label && event.shiftKey && desk.data.review) answer(desk, label, { gold: true });
  else if (label && event.shiftKey && desk.data.several) mark(desk, label);
  else if (label && !event.shiftKey) answer(desk, label);
  else if (key === "delete" && desk.data.review) answer(desk, null);
  else if (key === " " && !onControl && desk.data.review) later(desk);
  else if (key === " " && !onControl) answer(desk, null);
  else if (key === "u" || key === "backspace") undo(desk);
  else if (key === "escape" && desk.editing !== null) keep(desk);
  else if (key === "enter" && !onControl) desk.root.querySelector(".note input").focus();
  else return;
  event.preventDefault();
}

// With Shift a digit's key gives another sign; which key it is stays the same.
function labelOf(desk, event) {
  const code = /^(?:Digit|Key)(.)$/.exec(event.code || "");
  const key = event.shiftKey && code ? code[1].toLowerCase() : event.key.toLowerCase();
  return desk.data.labels.find((one) => one.key.toLowerCase() === key);
}

function isTyping(target) {
  return target.isContentEditable || Boolean(target.closest("input, textarea, select"));
}

function onClick(desk, event) {
  const button = event.target.closest("button");
  if (!button) return;
  if (event.detail > 0) button.blur(); // after a mouse click, Space is to skip again
  const act = button.dataset.act;
  if (desk.data.review && onReviewClick(desk, button, event)) return;
  if (button.dataset.label) {
    const label = desk.data.labels.find((one) => String(one.id) === button.dataset.label);
    if (event.shiftKey && desk.data.several) mark(desk, label);
    else answer(desk, label);
  } else if (button.dataset.edit) edit(desk, Number(button.dataset.edit));
  else if (act === "skip") answer(desk, null);
  else if (act === "undo") undo(desk);
  else if (act === "keep") keep(desk);
  else if (act === "drop") drop(desk);
}

function mark(desk, label) {
  if (!desk.marked.delete(label.id)) desk.marked.add(label.id);
  render(desk);
}

function answer(desk, label, more = {}) {
  const sample = desk.queue[0];
  if (!sample || desk.shown !== sample.id) return;
  if (desk.data.review && desk.painted !== sample.id) return; // nobody can have seen it yet
  const field = desk.root.querySelector(".note input");
  const event = {
    uuid: newId(), kind: "answer", sample_id: sample.id, label_id: label ? label.id : null,
    more_labels: label ? [...desk.marked].filter((id) => id !== label.id) : [],
    note: field.value.trim() || null, again: desk.editing === sample.id,
    lead_ms: Math.max(0, Math.round(performance.now() - desk.seen)), at: Date.now(),
  };
  field.value = "";
  if (desk.data.review) decide(desk, sample, event, more);
  desk.queue.shift();
  desk.marked.clear();
  desk.editing = null;
  desk.history = desk.history.filter((one) => one.sample.id !== sample.id).slice(1 - HISTORY);
  desk.history.push({ sample, label: event.label_id });
  desk.times.push(event.at);
  if (desk.times.length > MOST_WANTED) desk.times.shift();
  put(desk, event);
}

function undo(desk) {
  if (desk.data.review && desk.editing !== null) return reopen(desk);
  if (desk.editing !== null) return keep(desk);
  const last = desk.history.pop();
  if (!last) return;
  desk.queue = [last.sample, ...desk.queue.filter((one) => one.id !== last.sample.id)];
  const event = { uuid: newId(), kind: "undo", sample_id: last.sample.id, at: Date.now() };
  if (desk.data.review) takeBack(desk, last.sample, event);
  put(desk, event);
}

// An older answer comes back to the screen; it stays in force until another one is given.
function edit(desk, id) {
  keep(desk, false);
  const entry = desk.history.find((one) => one.sample.id === id);
  if (!entry) return;
  desk.editing = id;
  desk.queue = [entry.sample, ...desk.queue.filter((one) => one.id !== id)];
  render(desk);
}

function keep(desk, draw = true) {
  if (desk.editing !== null) desk.queue = desk.queue.filter((one) => one.id !== desk.editing);
  desk.editing = null;
  if (draw) render(desk);
}

// The store takes answers in order up to the first that it refuses: that one goes, and what else
// waits about the same sample, such as its undo. The others are sent.
function drop(desk) {
  const [refused] = desk.outbox;
  const goes = (event) => event === refused || event.sample_id === refused.sample_id;
  for (const event of desk.outbox) if (goes(event)) forget(desk.data.scope, event);
  desk.outbox = desk.outbox.filter((event) => !goes(event));
  if (desk.data.review) desk.mine.delete(refused.sample_id);
  desk.queue = [];
  desk.history = [];
  desk.asked = false; // the server says again what was answered last
  desk.refused = false;
  desk.error = "";
  sync(desk);
}

// --- sending ----------------------------------------------------------------------------------

function put(desk, event) {
  desk.outbox.push(event);
  remember(desk.data.scope, event);
  render(desk);
  const soon = !desk.data.review && desk.queue.length < LEAST_WANTED / 2;
  if (!desk.failures) schedule(desk, soon ? 0 : FLUSH_MS);
}

function schedule(desk, delay) {
  const at = Date.now() + delay;
  if (desk.timer && desk.due <= at) return;
  clearTimeout(desk.timer);
  desk.due = at;
  desk.timer = setTimeout(() => { desk.timer = 0; sync(desk); }, delay);
}

// All that is not acknowledged goes again, in order: the server knows what it has already. One
// request at a time, so that an undo never overtakes its answer.
async function sync(desk) {
  if (desk.busy) return;
  desk.busy = true;
  const sent = desk.refused ? [] : desk.outbox.slice(0, BATCH);
  try {
    receive(desk, await post(desk, desk.data.review ? "review" : "sync", {
      events: sent, known: desk.queue.map((one) => one.id), want: wanted(desk), recent: !desk.asked,
    }));
    desk.failures = 0;
  } catch (problem) {
    desk.failures += 1;
    desk.error = problem.message;
  }
  desk.busy = false;
  render(desk);
  schedule(desk, nextDelay(desk));
}

function nextDelay(desk) {
  if (desk.failures) return RETRY_MS[Math.min(desk.failures, RETRY_MS.length) - 1];
  if (desk.outbox.length && !desk.refused) return FLUSH_MS;
  if (desk.hungry && desk.queue.length < 0.7 * wanted(desk)) return FLUSH_MS;
  return !desk.queue.length && counted(desk).left > 0 ? POLL_MS : RENEW_MS;
}

function wanted(desk) {
  if (desk.data.review) return REVIEWED_AHEAD;
  const second = Date.now() - 1000 * AHEAD_SECONDS;
  const pace = desk.times.filter((time) => time > second).length;
  return Math.max(LEAST_WANTED, Math.min(MOST_WANTED, pace * 2));
}

async function post(desk, what, body) {
  const { opened_on: scope, project } = desk.data;
  let answer;
  try {
    answer = await fetch(`desk/${project}/${what}`, {
      method: "POST", keepalive: what === "leave",
      headers: { "content-type": "application/json", "x-fedlens-desk": "1" },
      body: JSON.stringify({ scope, tab: desk.tab, ...body }),
    });
  } catch {
    throw new Error("The dashboard does not answer. Go on: your answers are kept here and sent later.");
  }
  if (answer.status === 401) {
    throw new Error("You are signed out. Your answers are kept here: sign in again in another tab.");
  }
  if (!answer.ok) throw new Error((await answer.text()).slice(0, 400));
  return answer.json();
}

function receive(desk, said) {
  const acked = new Set(said.acked);
  for (const event of desk.outbox) if (acked.has(event.uuid)) forget(desk.data.scope, event);
  desk.outbox = desk.outbox.filter((event) => !acked.has(event.uuid));
  desk.error = said.error || "";
  desk.refused = Boolean(said.error);
  desk.progress = said.progress;
  desk.freeAt = said.free_at;
  if (said.recent) recall(desk, desk.data.review ? said.recent.map(entryOf) : said.recent);
  const here = new Set(desk.queue.map((one) => one.id));
  for (const event of desk.outbox) if (event.kind === "answer") here.add(event.sample_id);
  for (const one of desk.history) here.add(one.sample.id);
  const fresh = said.queue.filter((one) => !here.has(one.id));
  desk.queue.push(...fresh);
  desk.hungry = fresh.length > 0; // more came, so there may be more to come
  if (desk.data.review) receiveReview(desk, said);
}

// After a reload the last answers are the server's; those not sent yet come after them.
function recall(desk, recent) {
  desk.asked = true;
  const samples = new Map(recent.map((one) => [one.sample.id, one.sample]));
  for (const one of desk.history) samples.set(one.sample.id, one.sample);
  const undone = new Set();
  for (const event of desk.outbox) {
    if (event.kind === "undo") undone.add(event.sample_id);
    else undone.delete(event.sample_id);
  }
  const later = new Set(desk.history.map((one) => one.sample.id));
  const earlier = recent.filter((one) => !later.has(one.sample.id) && !undone.has(one.sample.id));
  desk.history = [...earlier, ...desk.history];
}

// Others may have these samples now; what is unsent stays in this browser and is sent next time.
function leave(desk) {
  if (desk.data.review) return;
  post(desk, "leave", {}).catch(() => {});
}

// What is unsent, in the browser's own storage.

function newId() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

// A reload keeps the tab's name, and with it the samples on the desk; a copy of a tab is another.
function tabName(scope) {
  const name = `${scope}/tab`;
  try {
    const [visit] = performance.getEntriesByType("navigation");
    const kept = visit && visit.type === "reload" ? sessionStorage.getItem(name) : null;
    const tab = kept || newId();
    sessionStorage.setItem(name, tab);
    return tab;
  } catch {
    return newId();
  }
}

// Each answer has a key of its own, so that two tabs never overwrite each other's.
function loadOutbox(scope) {
  const events = [];
  try {
    for (let i = 0; i < localStorage.length; i += 1) {
      const name = localStorage.key(i);
      if (name.startsWith(`${scope}/`)) addTo(events, localStorage.getItem(name));
    }
  } catch {
    // Storage is forbidden: only this page's answers are kept.
  }
  return events.sort((a, b) => a.at - b.at || a.order - b.order);
}

// One that was tampered with must not keep the others from being sent.
function addTo(events, text) {
  try {
    const event = JSON.parse(text);
    if (event && typeof event.uuid === "string") events.push(event);
  } catch {
    // No answer of ours.
  }
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
