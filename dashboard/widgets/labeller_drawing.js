// What the desk shows. Part of labeller.js.

function render(desk) {
  const find = (name) => desk.root.querySelector(name);
  const sample = desk.queue[0];
  showSample(desk, sample);
  drawLabels(desk);
  const counts = counted(desk);
  const share = counts.total ? (100 * (counts.done + counts.skipped)) / counts.total : 0;
  find(".bar div").style.width = `${share}%`;
  find(".progress").textContent = !desk.asked ? "" : desk.data.review
    ? `${counts.done} decided, ${counts.left} to decide`
    : `${counts.done} labelled, ${counts.skipped} skipped, ${counts.left} left of ${counts.total}`;
  find(".pace").textContent = pace(desk.times);
  const unsent = desk.outbox.length;
  find(".unsent").textContent = unsent ? `${unsent} on the way` : desk.error ? "" : "all saved";
  find(".error").textContent = desk.error;
  find('[data-act="drop"]').hidden = !desk.refused || !unsent;
  find('[data-act="keep"]').hidden = desk.editing === null;
  find('[data-act="undo"]').disabled = !desk.history.length;
  const decides = "[data-label], [data-act=skip], [data-act=exclude]";
  for (const button of desk.root.querySelectorAll(decides)) {
    button.disabled = !sample;
  }
  drawRecent(desk);
  if (desk.data.review) drawReview(desk, sample);
  const frame = desk.root.firstChild;
  frame.dataset.sample = sample ? String(sample.id) : "";
  frame.dataset.unsent = String(unsent);
  frame.dataset.ahead = String(desk.queue.length);
}

// By a whole number of the screen's pixels: none is left out, none is wider than another.
function enlarge(image, most) {
  const ratio = window.devicePixelRatio || 1;
  const side = Math.max(image.naturalWidth, image.naturalHeight);
  if (!side) return;
  const scale = Math.max(1, Math.floor((most * ratio) / side)) / ratio;
  image.style.width = `${image.naturalWidth * scale}px`;
  image.style.height = `${image.naturalHeight * scale}px`;
}

function showSample(desk, sample) {
  const image = desk.root.querySelector(".sample");
  const empty = desk.root.querySelector(".empty");
  const hint = desk.root.querySelector(".hint");
  image.hidden = !sample;
  empty.hidden = Boolean(sample);
  hint.textContent = sample && sample.hint ? sample.hint : "";
  hint.hidden = !hint.textContent;
  if (!sample) {
    empty.textContent = emptyText(desk);
    desk.shown = null;
  } else if (desk.shown !== sample.id) {
    desk.painted = null;
    image.onload = () => {
      enlarge(image, LARGEST);
      if (desk.data.review) whenPainted(desk, sample.id);
    };
    image.src = `data:image/png;base64,${sample.png}`;
    desk.shown = sample.id;
    desk.seen = performance.now();
  }
}

function emptyText(desk) {
  if (desk.data.review && desk.asked && !desk.outbox.length) {
    return "Nothing to decide: no answers differ.";
  }
  if (!desk.asked || desk.outbox.length) return "Fetching the next samples…";
  if (!counted(desk).left) return "All done: every sample of this project has your answer. Thank you!";
  const until = desk.freeAt ? new Date(desk.freeAt) : null;
  const time = until ? until.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" }) : "soon";
  return `The samples that are left lie on other desks. They come here by ${time} at the latest.`;
}

function drawLabels(desk) {
  const pressed = pressedLabels(desk);
  const said = new Set(desk.data.review && desk.queue[0] ? given(desk.queue[0]).keys() : []);
  const signature = JSON.stringify([desk.data.labels, [...pressed], [...said]]);
  if (signature === desk.drawnLabels) return;
  desk.drawnLabels = signature;
  const box = desk.root.querySelector(".labels");
  box.replaceChildren(...desk.data.labels.map((label) => {
    const button = document.createElement("button");
    button.type = "button";
    button.dataset.label = String(label.id);
    if (pressed.has(label.id)) button.setAttribute("aria-pressed", "true");
    if (said.has(label.id)) button.className = "said";
    const key = document.createElement("kbd");
    key.textContent = label.key.toUpperCase();
    const text = document.createElement("span");
    text.textContent = label.name;
    button.append(key, text);
    return button;
  }));
}

function pressedLabels(desk) {
  if (desk.data.review) {
    const [sample] = desk.queue;
    return new Set(sample && sample.decided ? [sample.label] : []);
  }
  const entry = desk.history.find((one) => one.sample.id === desk.editing);
  return new Set(entry && entry.label ? [entry.label, ...desk.marked] : desk.marked);
}

function drawRecent(desk) {
  const names = new Map(desk.data.labels.map((label) => [label.id, label.name]));
  const box = desk.root.querySelector(".recent");
  const entries = desk.history.slice(-RECENT).reverse();
  const signature = JSON.stringify(entries.map((one) => [one.sample.id, one.label]));
  if (box.dataset.drawn === signature) return;
  box.dataset.drawn = signature;
  box.replaceChildren(...entries.map(({ sample, label }) => {
    const button = document.createElement("button");
    button.type = "button";
    button.dataset.edit = String(sample.id);
    const name = names.get(label) || (desk.data.review ? "excluded" : "skipped");
    button.title = `Change this answer: ${name}`;
    const image = document.createElement("img");
    image.onload = () => enlarge(image, SMALL);
    image.src = `data:image/png;base64,${sample.png}`;
    image.alt = "";
    const caption = document.createElement("span");
    caption.textContent = name;
    button.append(image, caption);
    return button;
  }));
}

// The server's counts plus what it has not acknowledged yet.
function counted(desk) {
  const counts = { ...desk.progress };
  if (desk.data.review) return countedDecisions(desk);
  const waiting = new Map();
  for (const event of desk.outbox) {
    if (event.again) continue;
    if (event.kind === "answer") {
      const field = event.label_id === null ? "skipped" : "done";
      counts[field] += 1;
      waiting.set(event.sample_id, field);
    } else if (event.sample_id !== null) {
      counts[waiting.get(event.sample_id) || "done"] -= 1;
    }
  }
  counts.left = Math.max(0, counts.total - counts.done - counts.skipped);
  return counts;
}

function pace(times) {
  const last = times.slice(-PACE_ANSWERS);
  const gaps = last.slice(1).map((time, i) => time - last[i]).filter((gap) => gap < IDLE_MS);
  const spent = gaps.reduce((sum, gap) => sum + gap, 0);
  return gaps.length < 2 || !spent ? "" : `${Math.round((60000 * gaps.length) / spent)} a minute`;
}
