// Draws a sprite as a grid that fits the width it is given; a click or Enter picks an image.
// Where several may be chosen: Shift and a click chooses all up to it, Ctrl or Cmd and a click or the
// space bar one more or less, Shift and an arrow key goes on, Escape chooses none.

const GAP = 3; // about: whole pixels of the screen
const MARK = "#d1711b";
const CHOSEN = "#1b5f9e";
const CHOSEN_AFTER_MS = 200;
const states = new WeakMap();

export default function (component) {
  const { data, parentElement } = component;
  let state = states.get(parentElement);
  if (!state) {
    state = create(parentElement);
    states.set(parentElement, state);
  }
  // The newest callback and data replace the old ones; listeners are added only once.
  state.pick = (id) => component.setTriggerValue("picked", id);
  state.tell = (ids) => component.setTriggerValue("chosen", ids);
  update(state, data);
  return () => {
    clearTimeout(state.later);
    state.resize.disconnect();
    states.delete(parentElement);
    state.root.remove();
  };
}

function create(parent) {
  const root = document.createElement("div");
  root.className = "grid";
  const canvas = document.createElement("canvas");
  canvas.tabIndex = 0;
  canvas.setAttribute("role", "application");
  const under = document.createElement("div");
  under.className = "under";
  under.setAttribute("aria-live", "polite");
  root.append(canvas, under);
  parent.querySelector("div").append(root);
  const state = { root, canvas, under, image: null, sprite: "", data: null, columns: 1, at: -1 };
  state.chosen = new Set();
  state.from = -1;
  canvas.addEventListener("click", (event) => click(state, event));
  canvas.addEventListener("mousemove", (event) => name(state, indexAt(state, event)));
  canvas.addEventListener("mouseleave", () => name(state, -1));
  canvas.addEventListener("keydown", (event) => walk(state, event));
  state.resize = new ResizeObserver(() => draw(state));
  state.resize.observe(root);
  return state;
}

function update(state, data) {
  const again = state.data && state.data.turn !== data.turn;
  state.data = data;
  const known = new Set(data.ids);
  state.chosen = new Set(again ? [] : [...state.chosen].filter((id) => known.has(id)));
  const picked = data.ids.indexOf(data.selected);
  if (!state.chosen.size || state.at >= data.ids.length) state.at = picked;
  const label = `${data.ids.length} synthetic samples. Arrow keys move, Enter opens one${
    data.several ? ", the space bar chooses one more or less" : ""
  }.`;
  state.canvas.setAttribute("aria-label", label);
  name(state, -1);
  if (state.sprite === data.sprite) {
    draw(state);
    return;
  }
  state.sprite = data.sprite;
  const image = new Image();
  image.onload = () => {
    state.image = image;
    draw(state);
  };
  image.src = `data:image/png;base64,${data.sprite}`;
}

function pixelRatio() {
  return window.devicePixelRatio || 1;
}

// Each pixel of an image is a whole number of the screen's: none is left out, none is wider.
function tileSize(data) {
  const ratio = pixelRatio();
  const scale = Math.max(1, Math.round(data.factor * ratio)) / ratio;
  return [data.width * scale, data.height * scale];
}

function gap() {
  return Math.round(GAP * pixelRatio()) / pixelRatio();
}

function draw(state) {
  const { canvas, data, image, root } = state;
  if (!image || !root.clientWidth) return;
  const [width, height] = tileSize(data);
  const count = data.ids.length;
  state.columns = Math.max(1, Math.floor((root.clientWidth + gap()) / (width + gap())));
  const columns = Math.min(state.columns, count);
  const rows = Math.ceil(count / state.columns);
  const size = [columns * (width + gap()) - gap(), rows * (height + gap()) - gap()];
  const ratio = pixelRatio();
  canvas.width = Math.round(size[0] * ratio);
  canvas.height = Math.round(size[1] * ratio);
  canvas.style.width = `${size[0]}px`;
  canvas.style.height = `${size[1]}px`;
  const context = canvas.getContext("2d");
  context.scale(ratio, ratio);
  context.imageSmoothingEnabled = false;
  for (let i = 0; i < count; i += 1) {
    const [x, y] = corner(state, i);
    const sourceX = (i % data.columns) * data.width;
    const sourceY = Math.floor(i / data.columns) * data.height;
    context.drawImage(
      image, sourceX, sourceY, data.width, data.height, x, y, width, height,
    );
  }
  context.strokeStyle = CHOSEN;
  context.lineWidth = 3;
  for (let i = 0; i < count; i += 1) {
    if (state.chosen.has(data.ids[i])) {
      const [x, y] = corner(state, i);
      context.strokeRect(x + 1, y + 1, width - 2, height - 2);
    }
  }
  canvas.dataset.chosen = String(state.chosen.size);
  if (state.at >= 0) {
    const [x, y] = corner(state, state.at);
    context.strokeStyle = MARK;
    context.lineWidth = 3;
    context.strokeRect(x + 0.5, y + 0.5, width - 1, height - 1);
  }
  canvas.dataset.drawn = String(count);
}

function corner(state, index) {
  const [width, height] = tileSize(state.data);
  const column = index % state.columns;
  const row = Math.floor(index / state.columns);
  return [column * (width + gap()), row * (height + gap())];
}

function indexAt(state, event) {
  const box = state.canvas.getBoundingClientRect();
  const [width, height] = tileSize(state.data);
  const column = Math.floor((event.clientX - box.left) / (width + gap()));
  const row = Math.floor((event.clientY - box.top) / (height + gap()));
  if (column < 0 || column >= state.columns || row < 0) return -1;
  const index = row * state.columns + column;
  return index < state.data.ids.length ? index : -1;
}

function name(state, index) {
  const shown = index >= 0 ? index : state.at;
  state.under.textContent =
    shown >= 0 ? state.data.names[shown] : "Click a sample to see where it comes from.";
}

function click(state, event) {
  const index = indexAt(state, event);
  if (index < 0) return;
  if (state.data.several && event.shiftKey) {
    between(state, state.from < 0 ? Math.max(0, state.at) : state.from, index);
  } else if (state.data.several && (event.ctrlKey || event.metaKey)) {
    toggle(state, index);
  } else {
    choose(state, index);
  }
}

function between(state, from, to) {
  for (let i = Math.min(from, to); i <= Math.max(from, to); i += 1) {
    state.chosen.add(state.data.ids[i]);
  }
  state.from = from;
  state.at = to;
  changed(state);
}

function toggle(state, index) {
  const id = state.data.ids[index];
  if (!state.chosen.delete(id)) state.chosen.add(id);
  state.from = state.at = index;
  changed(state);
}

function none(state) {
  if (!state.chosen.size) return;
  state.chosen.clear();
  changed(state);
}

// Told a moment later, once: keys come faster than a page is drawn.
function changed(state) {
  draw(state);
  name(state, state.at);
  clearTimeout(state.later);
  state.later = setTimeout(() => state.tell([...state.chosen]), CHOSEN_AFTER_MS);
}

function choose(state, index) {
  if (index < 0) return;
  none(state);
  state.at = state.from = index;
  draw(state);
  name(state, index);
  state.pick(state.data.ids[index]);
}

function walk(state, event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const steps = {
    ArrowLeft: -1, ArrowRight: 1, ArrowUp: -state.columns, ArrowDown: state.columns,
  };
  const { several } = state.data;
  if (several && event.key === " " && state.at >= 0) {
    event.preventDefault();
    toggle(state, state.at);
  } else if (several && event.key === "Escape") {
    none(state);
  } else if (event.key === "Enter" && state.at >= 0) {
    event.preventDefault();
    choose(state, state.at);
  } else if (event.key in steps) {
    event.preventDefault();
    const last = state.data.ids.length - 1;
    const before = state.at;
    const at = Math.min(last, Math.max(0, before < 0 ? 0 : before + steps[event.key]));
    if (several && event.shiftKey && before >= 0) {
      between(state, before, at);
      return;
    }
    state.at = at;
    draw(state);
    name(state, state.at);
  }
}
