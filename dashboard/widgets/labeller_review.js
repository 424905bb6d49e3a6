// A reviewer's desk: what annotators said as choices, decisions, their list. Part of labeller.js.

const LIST_STATES = [
  ["waiting", "To decide"], ["decided", "Decided"], ["agreed", "Answers agree"], ["single", "One answer"],
];
const SHARES = [[1, "all answers agree"], [2 / 3, "two thirds agree"], [0.51, "more than half agree"]];
const LIST_SMALL = 48;

function prepareReview(desk) {
  const find = (name) => desk.root.querySelector(name);
  find('[data-act="skip"] span').textContent = "Later";
  find('[data-act="exclude"]').hidden = false;
  find(".recent").setAttribute("aria-label", "Your last decisions: choose one to change it");
  find(".note input").placeholder = "goes with the next decision";
  desk.list = { state: "waiting", label: "", reviewer: "", cards: [], total: 0, share: SHARES[0][0], bulk: null, last: null };
  desk.mine = new Map(); // what was decided here and the list may not show yet, by sample
  desk.notice = "";
  find(".log").hidden = false;
  find(".log").append(bulkPanel(desk), listPanel(desk));
  loadList(desk);
}

// --- decisions --------------------------------------------------------------------------------

// A picture counts as seen once it is on the screen: the second frame after it was loaded.
function whenPainted(desk, id) {
  requestAnimationFrame(() => requestAnimationFrame(() => {
    if (desk.shown !== id || !desk.root.isConnected) return;
    desk.painted = id;
    desk.root.firstChild.dataset.painted = String(id);
  }));
}

function decide(desk, sample, event, more) {
  Object.assign(event, { seen: sample.last, gold: Boolean(more.gold), again: sample.decided });
  change(desk, sample, { last: event.uuid, decided: true, label: event.label_id });
}

function takeBack(desk, sample, event) {
  Object.assign(event, { seen: sample.last });
  change(desk, sample, { last: event.uuid, decided: false, label: null });
}

function change(desk, sample, state) {
  Object.assign(sample, state);
  desk.mine.set(sample.id, state);
}

// The decided sample on the screen stays there, and is open again.
function reopen(desk) {
  const [sample] = desk.queue;
  if (!sample.decided) return keep(desk);
  const event = { uuid: newId(), kind: "undo", sample_id: sample.id, at: Date.now() };
  takeBack(desk, sample, event);
  desk.editing = null;
  desk.history = desk.history.filter((one) => one.sample.id !== sample.id);
  put(desk, event);
}

function later(desk) {
  if (desk.editing !== null) return keep(desk);
  if (desk.queue.length > 1) desk.queue.push(desk.queue.shift());
  render(desk);
}

// The second click of a double click comes upon the next sample: it decides nothing.
function onReviewClick(desk, button, event) {
  const { act, label, open, bulk } = button.dataset;
  if ((label || act === "exclude" || act === "skip") && event.detail > 1) return true;
  if (label && event.shiftKey) {
    answer(desk, desk.data.labels.find((one) => String(one.id) === label), { gold: true });
  } else if (act === "exclude") answer(desk, null);
  else if (act === "skip") later(desk);
  else if (open) openCard(desk, desk.list.cards.find((one) => String(one.id) === open));
  else if (act === "more") loadList(desk, true);
  else if (bulk) decideTogether(desk, bulk);
  else return false;
  return true;
}

function openCard(desk, card) {
  keep(desk, false);
  desk.editing = card.id;
  desk.queue = [{ ...card, ...desk.mine.get(card.id) }, ...desk.queue.filter((one) => one.id !== card.id)];
  desk.shown = null;
  render(desk);
  desk.root.scrollIntoView({ block: "start" });
}

function entryOf(card) {
  return { sample: card, label: card.label };
}

function receiveReview(desk, said) {
  const gone = new Set(said.gone);
  const [first] = desk.queue;
  desk.queue = desk.queue.filter((one) => one === first || !gone.has(one.id));
  for (const card of said.stale) {
    desk.history = desk.history.filter((one) => one.sample.id !== card.id);
    desk.mine.delete(card.id);
    const what = card.decided ? `by ${card.by} as ${nameOf(desk, card.label)}` : "and opened again";
    desk.notice = `Sample ${card.id} was decided meanwhile ${what}: your decision was not stored.`;
  }
  if (said.acked.length) loadList(desk);
}

function countedDecisions(desk) {
  let done = desk.progress.decided || 0;
  let left = desk.progress.waiting || 0;
  for (const event of desk.outbox) {
    const step = event.kind === "undo" ? -1 : event.again ? 0 : 1;
    done += step;
    left = Math.max(0, left - step);
  }
  return { done, left, skipped: 0, total: done + left };
}

function nameOf(desk, id) {
  const label = desk.data.labels.find((one) => one.id === id);
  return label ? label.name : "excluded";
}

// --- what annotators said ---------------------------------------------------------------------

function given(sample) {
  const said = new Map();
  for (const one of sample.answers) {
    if (!said.has(one.label)) said.set(one.label, []);
    said.get(one.label).push(one);
  }
  return said;
}

function drawReview(desk, sample) {
  const box = desk.root.querySelector(".given");
  box.hidden = !sample;
  const signature = sample ? JSON.stringify([sample.id, sample.decided, sample.label, sample.gold]) : "";
  if (box.dataset.drawn !== signature) {
    box.dataset.drawn = signature;
    box.replaceChildren(...(sample ? [...given(sample)].map((one) => saidCard(desk, sample, ...one)) : []));
    if (sample && sample.decided) box.append(element("p", "quiet", decisionWords(desk, sample)));
  }
  desk.root.querySelector('[data-act="undo"] span').textContent =
    desk.editing !== null && sample && sample.decided ? "Reopen" : "Undo";
  desk.root.querySelector('[data-act="undo"]').disabled = !desk.history.length && desk.editing === null;
  if (desk.notice && !desk.error) desk.root.querySelector(".error").textContent = desk.notice;
}

function decisionWords(desk, sample) {
  const who = sample.by ? ` by ${sample.by}, ${sample.day}` : "";
  const note = sample.note ? ` “${sample.note}”` : "";
  return `Decided${who}: ${nameOf(desk, sample.label)}.${note} U reopens it, Esc leaves it.`;
}

function saidCard(desk, sample, labelId, said) {
  const label = desk.data.labels.find((one) => one.id === labelId);
  const card = element(label ? "button" : "div", "choice");
  if (label) {
    card.type = "button";
    card.dataset.label = String(label.id);
    card.append(element("kbd", "", label.key.toUpperCase()));
    if (sample.decided && sample.label === label.id) card.setAttribute("aria-pressed", "true");
  }
  const words = element("span");
  words.append(element("b", "", label ? label.name : "skipped"));
  const who = said.map((one) => one.who).filter(Boolean).join(", ");
  words.append(element("small", "", who || (said.length === 1 ? "1 answer" : `${said.length} answers`)));
  for (const one of said) if (one.note) words.append(element("small", "", `“${one.note}”`));
  card.append(words);
  return card;
}

function element(name, kind = "", text = "") {
  const made = document.createElement(name);
  if (kind) made.className = kind;
  if (text) made.textContent = text;
  return made;
}

// --- the list ---------------------------------------------------------------------------------

function listPanel(desk) {
  const panel = element("section");
  panel.setAttribute("aria-label", "Reviewed samples");
  const bar = element("div", "tools");
  const states = selectOf("Show", LIST_STATES, (value) => { desk.list.state = value; loadList(desk); });
  const labels = [["", "Any label"], ...desk.data.labels.map((one) => [String(one.id), one.name])];
  const label = selectOf("Counts as", labels, (value) => { desk.list.label = value; loadList(desk); });
  const reviewer = selectOf("Decided by", [], (value) => { desk.list.reviewer = value; loadList(desk); });
  reviewer.classList.add("reviewer");
  bar.append(states, label, reviewer, element("span", "listed"));
  panel.append(bar, element("div", "tiles"));
  const more = element("button", "", "Show more");
  more.type = "button";
  more.dataset.act = "more";
  panel.append(more);
  return panel;
}

function selectOf(name, options, change) {
  const select = element("select");
  select.setAttribute("aria-label", name);
  fillSelect(select, options);
  select.addEventListener("change", () => change(select.value));
  return select;
}

function fillSelect(select, options) {
  const made = options.map(([value, words]) => {
    const option = element("option", "", words);
    option.value = String(value);
    return option;
  });
  select.replaceChildren(...made);
}

async function loadList(desk, more = false) {
  const { list } = desk;
  const asked = {
    state: list.state, label: list.label ? Number(list.label) : null, offset: more ? list.cards.length : 0,
    reviewer: list.state === "decided" && list.reviewer ? Number(list.reviewer) : null,
  };
  const turn = (list.turn = (list.turn || 0) + 1);
  const unsent = new Set(desk.outbox.map((event) => event.sample_id));
  const stored = [...desk.mine].filter(([id]) => !unsent.has(id)); // the answer will show these
  try {
    const said = await post(desk, "decisions", asked);
    if (turn !== list.turn) return; // another filter was chosen meanwhile
    list.cards = more ? [...list.cards, ...said.cards] : said.cards;
    list.total = said.total;
    list.reviewers = said.reviewers;
    if (!more) for (const [id, state] of stored) if (desk.mine.get(id) === state) desk.mine.delete(id);
    drawList(desk);
    countAgreed(desk);
  } catch (problem) {
    desk.root.querySelector(".listed").textContent = problem.message;
  }
}

function drawList(desk) {
  const { list } = desk;
  desk.root.querySelector(".listed").textContent =
    list.total === 1 ? "1 sample" : `${list.total} samples`;
  const reviewer = desk.root.querySelector(".reviewer");
  const people = list.reviewers.map((one) => [String(one.id), one.name]);
  fillSelect(reviewer, [["", "Any reviewer"], ...people]);
  reviewer.value = list.reviewer;
  reviewer.hidden = list.state !== "decided" || people.length < 2;
  desk.root.querySelector('[data-act="more"]').hidden = list.cards.length >= list.total;
  desk.root.querySelector(".tiles").replaceChildren(...list.cards.map((card) => tile(desk, card)));
}

function tile(desk, card) {
  const button = element("button");
  button.type = "button";
  button.dataset.open = String(card.id);
  const image = element("img");
  image.onload = () => enlarge(image, LIST_SMALL);
  image.src = `data:image/png;base64,${card.png}`;
  image.alt = `Sample ${card.id}`;
  const said = [...given(card)].map(([id, all]) => `${id === null ? "skipped" : nameOf(desk, id)} × ${all.length}`);
  const counts = card.decided ? nameOf(desk, card.label) : said.join(", ");
  button.append(image, element("span", "", counts));
  if (card.gold) button.append(element("span", "", "gold"));
  button.title = `${said.join(", ")}${card.by ? ` · decided by ${card.by}, ${card.day}` : ""}`;
  return button;
}

// --- many at once -----------------------------------------------------------------------------

function bulkPanel(desk) {
  const panel = element("details", "bulk");
  panel.append(element("summary", "", "Decide many by agreement"));
  const bar = element("div", "tools");
  bar.append(selectOf("Where", SHARES, (value) => { desk.list.share = Number(value); countAgreed(desk); }));
  for (const act of ["accept", "exclude", "confirm", "cancel", "undo"]) {
    const button = element("button");
    button.type = "button";
    button.dataset.bulk = act;
    bar.append(button);
  }
  panel.append(bar, element("p", "quiet"));
  panel.addEventListener("toggle", () => countAgreed(desk));
  return panel;
}

async function countAgreed(desk) {
  const { list } = desk;
  if (!desk.root.querySelector(".bulk").open) return;
  try {
    list.counts = await post(desk, "agreed", { share: list.share });
    list.bulk = null;
  } catch (problem) {
    list.said = problem.message;
  }
  drawBulk(desk);
}

function drawBulk(desk) {
  const { list } = desk;
  const counts = list.counts || { agreed: 0, differing: 0 };
  const asks = list.bulk !== null;
  const put = (act, text, hidden, disabled = false) => {
    const button = desk.root.querySelector(`[data-bulk="${act}"]`);
    Object.assign(button, { textContent: text, hidden, disabled });
  };
  put("accept", `Accept the label of ${counts.agreed}`, asks, !counts.agreed);
  put("exclude", `Exclude the other ${counts.differing}`, asks, !counts.differing);
  put("confirm", "Confirm", !asks);
  put("cancel", "Cancel", !asks);
  put("undo", "Take back what was decided together", asks || !list.last);
  const accepts = `${counts.agreed} samples will count as their most frequent label.`;
  const excludes = `${counts.differing} samples will be left out.`;
  desk.root.querySelector(".bulk p").textContent =
    asks ? (list.bulk === "accept" ? accepts : excludes) : list.said || "Of undecided samples with two answers or more.";
}

async function decideTogether(desk, act) {
  const { list } = desk;
  if (act === "accept" || act === "exclude" || act === "cancel") {
    list.bulk = act === "cancel" ? null : act;
    list.said = "";
    return drawBulk(desk);
  }
  const uuid = newId();
  const accept = list.bulk === "accept";
  const expected = list.counts ? (accept ? list.counts.agreed : list.counts.differing) : 0;
  const asked = act === "undo" ? { undo: list.last } : { share: list.share, accept, expected };
  try {
    const { count } = await post(desk, "together", { uuid, ...asked });
    list.last = act === "undo" ? null : uuid;
    list.bulk = null;
    desk.queue = [];
    desk.asked = false; // the server says again what waits and what was decided last
    desk.history = [];
    sync(desk);
    loadList(desk);
    list.said = act === "undo" ? `${count} taken back.` : `${count} decided.`;
  } catch (problem) {
    list.bulk = null;
    list.said = problem.message;
  }
  drawBulk(desk);
}
