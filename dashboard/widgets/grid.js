// A batch of samples: filtered, sorted, chosen and enlarged in the browser, without a redrawn page.
// Fields of all samples come first, pixels of those in sight after them (grid_tiles.js); what it is
// set to stands in the address, so that a link shows the same and Back undoes it.

const states = new WeakMap();
const ORDERS = [
  ["stored", "As stored"], ["oddest", "Oddest first"], ["commonest", "Most ordinary first"],
  ["doubtful", "Least agreed first"], ["agreed", "Most agreed first"], ["alike", "Like the open one"],
];
const SHOWN_IN_ADDRESS = ["class", "agreement", "label", "tag", "order", "like", "size", "sample", "part", "map"];
const NONE = "none";
const BINS = 20;
const PART = 20000; // as the server counts
const MOST_CHOSEN = 1000;

export default function (component) {
  const { data, parentElement } = component;
  let state = states.get(parentElement);
  if (!state) {
    state = create(parentElement);
    states.set(parentElement, state);
  }
  state.pick = (id) => component.setTriggerValue("picked", id);
  update(state, data);
  return () => {
    states.delete(parentElement);
    state.resize.disconnect();
    window.removeEventListener("popstate", state.back);
    document.removeEventListener("keydown", state.anywhere);
    state.root.remove();
  };
}

function create(parent) {
  const root = make("div", "gallery");
  const state = {
    root, data: null, source: "", fields: null, shown: [], chosen: new Set(), at: -1, from: -1,
    wanted: null, ranks: new Map(), turn: 0,
  };
  buildTools(state);
  state.parts = make("div", "parts");
  state.filters = make("aside", "fields");
  state.filters.setAttribute("aria-label", "Filters");
  buildView(state);
  buildCloseUp(state);
  state.parts.append(state.filters, state.view, state.near);
  state.said = make("div", "said-now");
  state.said.setAttribute("role", "status");
  state.tip = make("div", "tip");
  state.tip.hidden = true;
  root.append(state.tools, state.parts, state.said, state.tip);
  root.addEventListener("keydown", (event) => press(state, event));
  state.back = () => {
    if (!state.data || state.data.plain) return;
    state.sliding = false;
    read(state);
    refine(state, { write: false });
  };
  window.addEventListener("popstate", state.back);
  // After a reload nothing has the focus: an open sample answers to keys even so.
  state.anywhere = (event) => {
    if (event.target === document.body && state.wanted && state.wanted.sample) press(state, event);
  };
  document.addEventListener("keydown", state.anywhere);
  state.resize = new ResizeObserver(() => draw(state));
  state.resize.observe(state.view);
  parent.querySelector("div").append(root);
  return state;
}

function make(name, kind = "", words = "") {
  const made = document.createElement(name);
  if (kind) made.className = kind;
  if (words) made.textContent = words;
  return made;
}

function button(words, act, about = "") {
  const made = make("button", "", words);
  made.type = "button";
  if (about) {
    made.title = about;
    made.setAttribute("aria-label", about);
  }
  made.addEventListener("click", act);
  return made;
}

function select(about, options, act) {
  const made = make("select");
  made.setAttribute("aria-label", about);
  fill(made, options);
  made.addEventListener("change", act);
  return made;
}

function fill(made, options) {
  made.replaceChildren(
    ...options.map(([value, words]) => {
      const one = make("option", "", words);
      one.value = value;
      return one;
    }),
  );
}

// --- What is asked of the server -----------------------------------------------------------------

function address(state, path, given = {}) {
  const asked = new URLSearchParams({ batch: state.data.batch, v: state.data.version, ...given });
  if (state.wanted.part) asked.set("part", state.wanted.part);
  return `gallery/${encodeURIComponent(state.data.run)}/${path}?${asked}`;
}

async function ask(state, path, given) {
  const answer = await fetch(address(state, path, given));
  if (!answer.ok) throw new Error((await answer.text()) || "The server does not answer.");
  return answer;
}

// An order of a batch of more than a part is the server's, of the whole batch; a map shows a spread.
function wholeOrder(state) {
  const { wanted, data } = state;
  if (data.plain || data.count <= PART) return {};
  if (wanted.map) return { order: "spread" };
  if (wanted.order === "alike") return { order: "alike", like: wanted.like };
  return wanted.order === "stored" ? {} : { order: wanted.order };
}

// What takes its time is asked for until it is there; null where nobody waits for it any more.
async function patiently(state, path, wanted) {
  for (let again = false; wanted(); again = true) {
    const answer = await ask(state, path, wholeOrder(state));
    if (!wanted()) break;
    if (answer.status !== 202) {
      if (again) say(state, "");
      return answer.json();
    }
    const { share } = await answer.json();
    const done = Math.floor(100 * share);
    say(state, `Comparing all ${samples(state.data.count)}: ${done}% done. This is needed once.`);
    await new Promise((resolve) => setTimeout(resolve, 1500));
  }
  return null;
}

async function send(state, path, content) {
  const answer = await fetch(address(state, path), {
    method: "POST",
    headers: { "content-type": "application/json", "x-fedlens-desk": "1" },
    body: JSON.stringify(content),
  });
  if (!answer.ok) throw new Error(await answer.text());
  return answer.json();
}

function say(state, words, bad = false) {
  state.said.textContent = words;
  state.said.classList.toggle("bad", bad);
}

// --- What is shown -------------------------------------------------------------------------------

function update(state, data) {
  const source = JSON.stringify([data.run, data.batch, data.version, data.classes]);
  const again = source === state.source;
  state.data = data;
  state.source = source;
  state.root.classList.toggle("plain", data.plain);
  for (const part of [state.tools, state.filters]) part.hidden = data.plain;
  if (!again) {
    state.chosen.clear();
    state.at = state.from = -1;
    state.ranks = new Map();
    read(state);
    load(state);
  }
  offerMarks(state);
  write(state, true);
}

// The fields of another part or batch; what comes late for an earlier one is dropped.
async function load(state) {
  const turn = (state.turn += 1);
  state.loadedPart = state.wanted.part;
  state.loadedOrder = JSON.stringify(wholeOrder(state));
  const wanted = () => turn === state.turn;
  try {
    const coming = patiently(state, "columns", wanted);
    const places = state.wanted.map ? patiently(state, "map", wanted) : null;
    if (places) places.catch(() => {}); // said where the map is drawn
    const fields = await coming;
    if (fields === null) return;
    state.placesAsked = places;
    forgetTiles(state);
    fields.place = new Map(fields.ids.map((id, place) => [id, place]));
    state.fields = fields;
    buildFilters(state);
    await refine(state, { write: false });
  } catch (error) {
    if (turn === state.turn) say(state, String(error.message), true);
  }
}

function read(state) {
  const given = state.data.plain ? new URLSearchParams() : new URLSearchParams(location.search);
  const listed = (name) => new Set((given.get(name) || "").split(",").filter(Boolean));
  const [low, high] = (given.get("agreement") || "0-1").split("-").map(Number);
  const order = given.get("order") || "stored";
  state.wanted = {
    class: state.data.classes ? new Set(state.data.classes.map(String)) : listed("class"),
    label: listed("label"),
    tag: listed("tag"),
    low: low >= 0 && low <= 1 ? low : 0,
    high: high >= 0 && high <= 1 ? high : 1,
    order: ORDERS.some(([name]) => name === order) ? order : "stored",
    like: Number(given.get("like")) || 0,
    size: Number(given.get("size")) || 0,
    sample: Number(given.get("sample")) || 0,
    part: /^\d{1,6}$/.test(given.get("part") || "") ? given.get("part").replace(/^0+/, "") : "",
    map: given.get("map") === "1",
  };
}

// Streamlit holds an address of its own; what stands here is written again after each of its turns.
function write(state, quietly) {
  if (state.data.plain) return;
  const { wanted } = state;
  const said = {
    class: [...wanted.class].join(","),
    label: [...wanted.label].join(","),
    tag: [...wanted.tag].join(","),
    agreement: wanted.low > 0 || wanted.high < 1 ? `${wanted.low}-${wanted.high}` : "",
    order: wanted.order === "stored" ? "" : wanted.order,
    like: wanted.order === "alike" ? wanted.like : "",
    size: wanted.size || "",
    sample: wanted.sample || "",
    part: wanted.part,
    map: wanted.map ? "1" : "",
  };
  const there = new URLSearchParams(location.search);
  for (const name of SHOWN_IN_ADDRESS) {
    if (said[name]) there.set(name, said[name]);
    else there.delete(name);
  }
  const next = `${location.pathname}?${there}`;
  if (next === location.pathname + location.search) return;
  window.history[quietly ? "replaceState" : "pushState"]({}, "", next);
}

// What fits, in its order. Orders of looks are asked for once; all else is at hand.
async function refine(state, { write: told = true, quietly = false } = {}) {
  if (told) write(state, quietly);
  const whole = JSON.stringify(wholeOrder(state));
  if (state.wanted.part !== state.loadedPart || whole !== state.loadedOrder) return load(state);
  if (!state.fields) return;
  const turn = (state.refining = (state.refining || 0) + 1);
  const { wanted, fields } = state;
  const ofAll = wholeOrder(state).order !== undefined;
  if (wanted.order === "alike" && !ofAll && !fields.place.has(wanted.like)) wanted.order = "stored";
  let ranked = fields.ids.map((_, place) => place);
  try {
    if (!ofAll) ranked = await rank(state, ranked);
  } catch (error) {
    say(state, String(error.message), true);
  }
  if (turn !== state.refining || fields !== state.fields) return;
  state.shown = ranked.filter((place) => fits(state, place));
  state.at = wanted.sample ? state.shown.indexOf(fields.place.get(wanted.sample)) : -1;
  if (state.at < 0 && fields.place.has(wanted.sample)) state.outside = true;
  showControls(state);
  layout(state);
  if (state.at >= 0) bring(state, state.at);
  showCloseUp(state);
  drawMap(state);
}

async function rank(state, places) {
  const { order, like } = state.wanted;
  const { agreements, place } = state.fields;
  if (order === "doubtful" || order === "agreed") {
    const sign = order === "agreed" ? -1 : 1;
    const level = (one) => (agreements[one] === null ? Infinity : sign * agreements[one]);
    return places.sort((a, b) => level(a) - level(b) || a - b);
  }
  if (order === "stored") return places;
  const name = order === "alike" ? `alike ${like}` : "oddest";
  if (!state.ranks.has(name)) {
    say(state, "Comparing all samples of the batch …");
    const given = order === "alike" ? { like } : {};
    const found = await (await ask(state, "order", given)).json();
    state.ranks.set(name, found.map((id) => place.get(id)).filter((one) => one !== undefined));
    say(state, "");
  }
  const ranked = [...state.ranks.get(name)];
  return order === "commonest" ? ranked.reverse() : ranked;
}

function fits(state, place) {
  const { wanted, fields } = state;
  const agreed = fields.agreements[place];
  if (wanted.class.size && !wanted.class.has(String(fields.classes[place]))) return false;
  if (wanted.low > 0 || wanted.high < 1) {
    if (agreed === null || agreed < wanted.low || agreed > wanted.high) return false;
  }
  const id = fields.ids[place];
  return anyOf(wanted.label, fields.labels[id]) && anyOf(wanted.tag, fields.tags[id]);
}

function anyOf(wanted, there = []) {
  if (!wanted.size) return true;
  return there.length ? there.some((one) => wanted.has(String(one))) : wanted.has(NONE);
}

// --- The row of controls -------------------------------------------------------------------------

function buildTools(state) {
  state.tools = make("div", "tools");
  state.order = select("Order", ORDERS, () => {
    const { wanted } = state;
    wanted.order = state.order.value;
    wanted.part = "";
    if (wanted.order === "alike") wanted.like = idAt(state) || wanted.like;
    refine(state);
  });
  const size = make("span");
  state.smaller = button("−", () => resizeTiles(state, -1), "Smaller samples");
  state.larger = button("+", () => resizeTiles(state, 1), "Larger samples");
  state.size = make("span", "count");
  size.append(state.smaller, " ", state.size, " ", state.larger);
  state.part = select("Part of the batch", [], () => {
    state.wanted.part = state.part.value;
    state.wanted.sample = 0;
    refine(state);
  });
  state.mapButton = button("Map", () => {
    state.wanted.map = !state.wanted.map;
    state.wanted.part = "";
    refine(state);
  });
  state.mapButton.title = "Alike samples lie together";
  state.count = make("span", "count");
  state.count.setAttribute("role", "status");
  state.selection = make("span", "chosen");
  state.tools.append(
    state.order, size, state.mapButton, state.part, state.count, make("span", "grow"), state.selection,
  );
  buildMarks(state);
}

function showControls(state) {
  const { wanted, fields, shown, data } = state;
  const known = ORDERS.filter(([name]) => {
    if (name === "alike") return wanted.sample || wanted.like;
    return !(name === "doubtful" || name === "agreed") || fields.agreements.some((one) => one !== null);
  });
  fill(state.order, known);
  state.order.value = wanted.order;
  const all = fields.ids.length;
  const counted = all === 1 ? "1 sample" : `${all.toLocaleString("en")} samples`;
  const few = shown.length === all ? counted : `${shown.length.toLocaleString("en")} of ${counted}`;
  const parts = Math.ceil(data.count / PART);
  state.count.textContent = few + (parts < 2 ? "" : ` ${aboutPart(state)}`);
  state.part.hidden = parts < 2 || wanted.map;
  const numbers = [...Array(parts).keys()];
  fill(state.part, numbers.map((one) => [one ? String(one) : "", `Part ${one + 1} of ${parts}`]));
  state.part.value = wanted.part;
  state.mapButton.setAttribute("aria-pressed", String(wanted.map));
  for (const box of state.filters.querySelectorAll("input[type=checkbox]")) {
    box.checked = wanted[box.dataset.field].has(box.value);
  }
  showRange(state);
  showChosen(state);
}

function aboutPart(state) {
  const total = state.data.count.toLocaleString("en");
  if (state.wanted.map) return `spread over all ${total}: map and filters look at no other`;
  if (wholeOrder(state).order) return `of all ${total} in this order: filters look at no other part`;
  return "in this part, as stored: filters look at no other; an order is of all parts";
}

function resizeTiles(state, step) {
  const sizes = tileFactors(state);
  const place = sizes.indexOf(factor(state));
  const next = sizes[Math.min(sizes.length - 1, Math.max(0, place + step))];
  state.wanted.size = next;
  write(state, true);
  layout(state);
}

// --- Filters -------------------------------------------------------------------------------------

function counts(values) {
  const found = new Map();
  for (const one of values) found.set(one, (found.get(one) || 0) + 1);
  return found;
}

function buildFilters(state) {
  const { fields, data } = state;
  const { ids } = fields;
  const kept = state.filters.scrollTop;
  const classes = counts(fields.classes.map(String));
  const labels = counts(ids.flatMap((id) => (fields.labels[id] || [NONE]).map(String)));
  const tags = counts(ids.flatMap((id) => fields.tags[id] || [NONE]));
  state.filters.replaceChildren();
  if (!(classes.size === 1 && classes.has("null"))) {
    const sorted = [...classes].sort(([a], [b]) => Number(a) - Number(b));
    facet(state, "Class", "class", sorted, (one) => (one === "null" ? "unlabelled" : data.classNames[one] || one));
  }
  if (fields.agreements.some((one) => one !== null)) range(state);
  if (labels.size > 1 || !labels.has(NONE)) {
    facet(state, "Label", "label", lastNone(labels), (one) => (one === NONE ? "none" : data.names[one] || one));
  }
  if (tags.size > 1 || !tags.has(NONE)) facet(state, "Tag", "tag", lastNone(tags), (one) => one);
  state.filters.hidden = data.plain || !state.filters.childElementCount;
  state.filters.scrollTop = kept;
}

function lastNone(found) {
  return [...found].sort(([a], [b]) => (a === NONE) - (b === NONE) || String(a).localeCompare(b));
}

function facet(state, title, field, options, words) {
  const set = make("fieldset");
  const legend = make("legend");
  legend.append(make("h5", "", title));
  set.append(legend);
  for (const [value, count] of options) {
    const label = make("label");
    const box = make("input");
    box.type = "checkbox";
    box.value = value;
    box.dataset.field = field;
    box.addEventListener("change", () => {
      state.wanted[field][box.checked ? "add" : "delete"](value);
      refine(state);
    });
    const name = make("span", "", words(value));
    name.title = words(value);
    label.append(box, name, make("small", "", count.toLocaleString("en")));
    set.append(label);
  }
  state.filters.append(set);
}

function range(state) {
  const set = make("fieldset");
  const legend = make("legend");
  legend.append(make("h5", "", "Agreement"));
  state.bars = make("canvas");
  state.bars.setAttribute("role", "img");
  const words = make("small", "count");
  const ends = ["low", "high"].map((end) => {
    const slider = make("input");
    slider.type = "range";
    Object.assign(slider, { min: 0, max: 100, step: 1 });
    slider.setAttribute("aria-label", end === "low" ? "Least agreement" : "Most agreement");
    // What is moved in one go, by hand or by keys, is one step that Back undoes.
    for (const begins of ["pointerdown", "focus"]) {
      slider.addEventListener(begins, () => (state.sliding = false));
    }
    slider.addEventListener("input", () => {
      const value = Number(slider.value) / 100;
      state.wanted[end] = value;
      if (end === "low") state.wanted.high = Math.max(value, state.wanted.high);
      else state.wanted.low = Math.min(value, state.wanted.low);
      refine(state, { quietly: state.sliding });
      state.sliding = true;
    });
    return slider;
  });
  state.range = { words, ends };
  set.append(legend, state.bars, ...ends, words);
  set.title = "How sure the annotator is that a sample is of its class";
  state.filters.append(set);
}

function showRange(state) {
  if (!state.bars || !state.bars.isConnected) return;
  const { low, high } = state.wanted;
  const bins = new Array(BINS).fill(0);
  for (const one of state.fields.agreements) {
    if (one !== null) bins[Math.min(BINS - 1, Math.floor(one * BINS))] += 1;
  }
  const [width, height] = [160, 40];
  Object.assign(state.bars, { width: 2 * width, height: 2 * height });
  const context = state.bars.getContext("2d");
  context.scale(2, 2);
  const style = getComputedStyle(state.root);
  bins.forEach((count, place) => {
    const inside = (place + 1) / BINS > low && place / BINS <= high;
    context.fillStyle = style.getPropertyValue(inside ? "--accent" : "--field");
    const tall = count ? Math.max(1, (count / Math.max(...bins)) * height) : 0;
    context.fillRect((place * width) / BINS, height - tall, width / BINS - 1, tall);
  });
  const said = `${Math.round(100 * low)} to ${Math.round(100 * high)}%`;
  state.bars.setAttribute("aria-label", `Histogram of agreement; shown: ${said}`);
  state.range.words.textContent = said;
  state.range.ends[0].value = 100 * low;
  state.range.ends[1].value = 100 * high;
}

// --- What is chosen, and what is done with it ----------------------------------------------------

function buildMarks(state) {
  state.tagField = make("input");
  state.tagField.placeholder = "Tag";
  state.tagField.setAttribute("aria-label", "Tag");
  const list = make("datalist");
  list.id = `tags-${Math.random().toString(36).slice(2)}`;
  state.tagField.setAttribute("list", list.id);
  state.knownTags = list;
  state.tagField.addEventListener("keydown", (event) => {
    if (event.key === "Enter") giveTag(state, true);
    event.stopPropagation();
  });
  state.addTag = button("Add tag", () => giveTag(state, true));
  state.removeTag = button("Remove tag", () => giveTag(state, false));
  state.giveLabel = select("Label for the chosen samples", [], () => giveLabel(state));
  state.giveEvidence = select("Evidence for a finding", [], () => giveEvidence(state));
  state.clear = button("Clear", () => none(state), "Clear selection");
  state.number = make("b");
  state.selection.append(
    state.number, state.tagField, list, state.addTag, state.removeTag, state.giveLabel,
    state.giveEvidence, state.clear,
  );
}

function offerMarks(state) {
  const { tags, labels, findings } = state.data;
  for (const one of [state.tagField, state.addTag, state.removeTag]) one.hidden = !tags;
  fill(state.giveLabel, [["", "Label …"], ...labels.map((one) => [`${one.project} ${one.id}`, one.name])]);
  state.giveLabel.hidden = !labels.length;
  fill(state.giveEvidence, [["", "Evidence …"], ...findings.map((one) => [String(one.id), one.name])]);
  state.giveEvidence.hidden = !findings.length;
}

// What buttons act on: all that is chosen, or else the open sample.
function meant(state) {
  if (state.chosen.size) return [...state.chosen];
  return state.wanted && state.wanted.sample ? [state.wanted.sample] : [];
}

function showChosen(state) {
  const ids = meant(state);
  const { chosen } = state;
  state.number.textContent = chosen.size ? `${chosen.size.toLocaleString("en")} chosen` : "";
  state.selection.hidden = !ids.length || state.data.plain;
  state.clear.hidden = !chosen.size;
  state.root.dataset.chosen = String(chosen.size);
  const known = new Set(Object.values(state.fields ? state.fields.tags : {}).flat());
  fill(state.knownTags, [...known].sort().map((one) => [one, one]));
}

async function mark(state, work) {
  try {
    say(state, await work(meant(state)));
  } catch (error) {
    say(state, String(error.message), true);
  }
  buildFilters(state);
  await refine(state, { write: false });
}

function inParts(ids) {
  const parts = [];
  for (let i = 0; i < ids.length; i += MOST_CHOSEN) parts.push(ids.slice(i, i + MOST_CHOSEN));
  return parts;
}

function samples(count) {
  return count === 1 ? "1 sample" : `${count.toLocaleString("en")} samples`;
}

function giveTag(state, on) {
  const tag = state.tagField.value.trim();
  if (!tag) {
    say(state, "Write a tag first.", true);
    state.tagField.focus();
    return;
  }
  mark(state, async (ids) => {
    let count = 0;
    for (const part of inParts(ids)) {
      count += (await send(state, "tag", { ids: part, tag, on })).count;
      for (const id of part) {
        const others = (state.fields.tags[id] || []).filter((one) => one !== tag);
        state.fields.tags[id] = on ? [...others, tag] : others;
        if (!state.fields.tags[id].length) delete state.fields.tags[id];
      }
    }
    return `Tag “${tag}” ${on ? "given to" : "removed from"} ${samples(count)}.`;
  });
}

function giveLabel(state) {
  const [project, label] = state.giveLabel.value.split(" ").map(Number);
  if (!project) return;
  state.giveLabel.value = "";
  mark(state, async (ids) => {
    let count = 0;
    for (const part of inParts(ids)) {
      const said = await send(state, "label", { ids: part, project, label });
      const rivals = new Set(state.data.labels.filter((one) => one.project === project).map((one) => one.id));
      for (const id of said.ids) {
        const others = (state.fields.labels[id] || []).filter((one) => !rivals.has(one));
        state.fields.labels[id] = [...others, label];
      }
      count += said.count;
      if (said.error) throw new Error(`${samples(count)} labelled. ${said.error}`);
    }
    return `${samples(count)} labelled as ${state.data.names[label]}.`;
  });
}

function giveEvidence(state) {
  const finding = Number(state.giveEvidence.value);
  if (!finding) return;
  state.giveEvidence.value = "";
  mark(state, async (ids) => {
    let count = 0;
    for (const part of inParts(ids)) count += (await send(state, "evidence", { ids: part, finding })).count;
    return `${samples(count)} added to finding ${finding}.`;
  });
}

function none(state) {
  state.chosen.clear();
  showChosen(state);
  draw(state);
}

function between(state, from, to) {
  for (let i = Math.min(from, to); i <= Math.max(from, to); i += 1) {
    state.chosen.add(state.fields.ids[state.shown[i]]);
  }
  state.from = from;
  state.at = to;
}

function toggle(state, place) {
  const id = state.fields.ids[state.shown[place]];
  if (!state.chosen.delete(id)) state.chosen.add(id);
  state.from = state.at = place;
}

function idAt(state) {
  return state.at >= 0 ? state.fields.ids[state.shown[state.at]] : 0;
}

// --- Keys ----------------------------------------------------------------------------------------

function press(state, event) {
  if (!state.fields || event.altKey || /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) return;
  const { plain } = state.data;
  if (event.ctrlKey || event.metaKey) {
    if (event.key === "a" && !plain && event.target === state.canvas) {
      event.preventDefault();
      for (const place of state.shown) state.chosen.add(state.fields.ids[place]);
      showChosen(state);
      draw(state);
    }
    return;
  }
  const steps = {
    ArrowLeft: -1, ArrowRight: 1, ArrowUp: -state.columns, ArrowDown: state.columns,
    PageUp: -state.columns * state.rows, PageDown: state.columns * state.rows,
    Home: -Infinity, End: Infinity,
  };
  if (event.key in steps) move(state, steps[event.key], event.shiftKey && !plain);
  else if (event.key === "Escape") escape(state);
  else if (event.target.tagName === "BUTTON" || event.target.tagName === "A") return;
  else if (event.key === "Enter" && state.at >= 0) open(state, state.at);
  else if (event.key === " " && state.at >= 0 && !plain) {
    toggle(state, state.at);
    showChosen(state);
    draw(state);
  } else if ((event.key === "+" || event.key === "-") && state.wanted.sample) {
    zoom(state, event.key === "+" ? 1 : -1);
  } else return;
  event.preventDefault();
}

function move(state, step, extend) {
  const last = state.shown.length - 1;
  const before = state.at;
  const at = Math.min(last, Math.max(0, before < 0 ? 0 : before + step));
  if (last < 0) return;
  if (extend && before >= 0) between(state, state.from < 0 ? before : state.from, at);
  else state.at = state.from = at;
  bring(state, at);
  if (state.wanted.sample) open(state, at, true);
  showChosen(state);
  draw(state);
  say(state, nameOf(state, state.shown[at]));
}

function escape(state) {
  if (state.wanted.sample) close(state);
  else if (state.chosen.size) none(state);
}

// What a class is called: its name, or its number.
function className(data, number) {
  return data.classNames[number] || `class ${number}`;
}

function nameOf(state, place) {
  const { fields, data } = state;
  const id = fields.ids[place];
  const agreed = fields.agreements[place];
  const labels = (fields.labels[id] || []).map((one) => data.names[one] || one);
  return [
    `Sample ${id}`,
    fields.classes[place] === null ? "unlabelled" : `requested ${className(data, fields.classes[place])}`,
    agreed === null ? "" : `agreement ${Math.round(100 * agreed)}%`,
    labels.length ? `label ${labels.join(", ")}` : "",
    (fields.tags[id] || []).length ? `tags ${fields.tags[id].join(", ")}` : "",
    data.words,
  ].filter(Boolean).join(" · ");
}
