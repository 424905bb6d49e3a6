// The grid itself: a canvas as large as what is in sight, and pixels fetched for that alone.
// A sample's pixels are drawn as whole numbers of the screen's, never smoothed; what is known of it
// stands below them, not on them.

const GAP = 4;
const CAPTION = 17;
const BLOCK = 128; // samples that are fetched together
const MOST_BLOCKS = 120; // kept in memory
const SMALLEST = 28, LARGEST = 128; // pixels of a sample on the grid, about

function buildView(state) {
  state.view = make("div", "view");
  state.canvas = make("canvas");
  state.canvas.tabIndex = 0;
  state.canvas.setAttribute("role", "application");
  state.spacer = make("div", "spacer");
  state.empty = make("p", "none");
  state.map = make("canvas", "map");
  state.map.hidden = true;
  state.view.append(state.canvas, state.map, state.spacer, state.empty);
  state.view.addEventListener("scroll", () => draw(state));
  state.canvas.addEventListener("click", (event) => click(state, event));
  state.canvas.addEventListener("mousemove", (event) => hover(state, event, indexAt(state, event)));
  state.canvas.addEventListener("mouseleave", () => hover(state, null, -1));
  buildMap(state);
  forgetTiles(state);
}

// --- Pixels --------------------------------------------------------------------------------------

function forgetTiles(state) {
  state.tiles = new Map(); // place -> where its pixels lie, or null where they are damaged
  state.blocks = new Map(); // the places of each block, the oldest block first
  state.asked = new Set();
  state.damaged = []; // ids
}

function rangesOf(ids) {
  const sorted = [...ids].sort((a, b) => a - b);
  const parts = [];
  let first = 0;
  for (let i = 1; i <= sorted.length; i += 1) {
    if (i < sorted.length && sorted[i] === sorted[i - 1] + 1) continue;
    parts.push(i - first > 1 ? `${sorted[first]}-${sorted[i - 1]}` : String(sorted[first]));
    first = i;
  }
  return [sorted, parts.join(",")];
}

// Whole blocks of what is shown, so that the same addresses are asked for again and kept.
function want(state, from, to) {
  for (let block = Math.floor(from / BLOCK); block * BLOCK < to; block += 1) {
    const places = state.shown.slice(block * BLOCK, (block + 1) * BLOCK);
    const missing = places.filter((place) => !state.tiles.has(place) && !state.asked.has(place));
    if (missing.length) fetchTiles(state, missing);
  }
}

async function fetchTiles(state, places) {
  const { fields, tiles, asked } = state;
  for (const place of places) asked.add(place);
  const [ids, ranges] = rangesOf(places.map((place) => fields.ids[place]));
  try {
    const body = new Uint8Array(await (await ask(state, "pictures", { ids: ranges })).arrayBuffer());
    if (fields !== state.fields) return;
    const sheet = unpack(state, body, ids.length);
    ids.forEach((id, i) => tiles.set(fields.place.get(id), body[i] ? { sheet, at: sheet.at[i] } : null));
    state.damaged.push(...ids.filter((id, i) => !body[i] && !state.damaged.includes(id)));
    state.blocks.set(sheet, places);
    if (state.blocks.size > MOST_BLOCKS) forgetOldest(state);
    if (state.damaged.length) sayDamaged(state);
  } catch (error) {
    if (fields === state.fields) say(state, String(error.message), true);
  } finally {
    for (const place of places) asked.delete(place);
  }
  requestAnimationFrame(() => {
    draw(state);
    showPicture(state);
  });
}

function sayDamaged(state) {
  const { damaged } = state;
  const more = damaged.length > 5 ? ", …" : "";
  const numbers = `no. ${damaged.slice(0, 5).join(", ")}${more}`;
  say(state, `Damaged in the store and not shown: ${samples(damaged.length)} (${numbers}).`, true);
}

function forgetOldest(state) {
  const [sheet, places] = state.blocks.entries().next().value;
  state.blocks.delete(sheet);
  for (const place of places) state.tiles.delete(place);
}

// The pixels as they came, on a canvas of their own: nothing is decoded, scaled or smoothed.
function unpack(state, body, count) {
  const [height, width, channels] = state.data.shape;
  const found = [...Array(count).keys()].filter((i) => body[i]);
  const sheet = make("canvas");
  sheet.width = width;
  sheet.height = Math.max(1, height * found.length);
  const image = new ImageData(width, sheet.height);
  for (let i = 0; i < width * height * found.length; i += 1) {
    const from = count + i * channels;
    for (let c = 0; c < 3; c += 1) image.data[4 * i + c] = body[from + (channels === 3 ? c : 0)];
    image.data[4 * i + 3] = 255;
  }
  sheet.getContext("2d").putImageData(image, 0, 0);
  sheet.at = {};
  found.forEach((i, row) => (sheet.at[i] = row * height));
  return sheet;
}

function paint(state, context, place, x, y, width, height) {
  const tile = state.tiles.get(place);
  if (!tile) return tile;
  const [h, w] = state.data.shape;
  context.imageSmoothingEnabled = false;
  context.drawImage(tile.sheet, 0, tile.at, w, h, x, y, width, height);
  return tile;
}

// --- Where tiles lie -----------------------------------------------------------------------------

function pixelRatio() {
  return window.devicePixelRatio || 1;
}

function tileFactors(state) {
  const side = Math.max(...state.data.shape.slice(0, 2));
  const found = [];
  for (let n = 1; n * side <= LARGEST || !found.length; n += 1) if (n * side >= SMALLEST) found.push(n);
  return found;
}

function factor(state) {
  const sizes = tileFactors(state);
  if (sizes.includes(state.wanted.size)) return state.wanted.size;
  const side = Math.max(...state.data.shape.slice(0, 2));
  return sizes.find((one) => one * side >= 48) || sizes[sizes.length - 1];
}

// Each pixel of an image is a whole number of the screen's: none is left out, none is wider.
function tileSize(state) {
  const ratio = pixelRatio();
  const scale = Math.max(1, Math.round(factor(state) * ratio)) / ratio;
  return [state.data.shape[1] * scale, state.data.shape[0] * scale];
}

function layout(state) {
  const [width, height] = tileSize(state);
  state.cell = [width + GAP, height + CAPTION + GAP];
  const room = Math.max(1, state.view.clientWidth - 12);
  state.columns = Math.max(1, Math.floor((room + GAP) / state.cell[0]));
  state.rows = Math.max(1, Math.floor(state.view.clientHeight / state.cell[1]));
  fit(state);
  const lines = Math.ceil(state.shown.length / state.columns);
  state.spacer.style.height = `${lines * state.cell[1] + 12}px`;
  state.size.textContent = `${factor(state)} ×`;
  state.empty.textContent = state.shown.length ? "" : "No sample fits: widen the filters.";
  state.canvas.setAttribute(
    "aria-label",
    `${samples(state.shown.length)}, synthetic. Arrow keys move, Enter opens one${
      state.data.plain ? "" : ", the space bar chooses one more or less, Escape ends"
    }.`,
  );
  draw(state);
}

// A few samples need not the height of a thousand; a filter, which leaves fewer, moves nothing.
function fit(state) {
  if (!state.columns) return;
  const lines = Math.ceil(state.fields.ids.length / state.columns);
  const needed = Math.max(lines * state.cell[1] + 16, state.filters.scrollHeight + 4);
  const whole = state.data.plain || state.wanted.map || !state.near.hidden;
  state.parts.style.maxHeight = whole ? "" : `max(${needed}px, 360px)`;
}

function bring(state, index) {
  if (!state.cell) return;
  const top = Math.floor(index / state.columns) * state.cell[1];
  const { view } = state;
  if (top < view.scrollTop) view.scrollTop = top;
  else if (top + state.cell[1] > view.scrollTop + view.clientHeight - 12) {
    view.scrollTop = top + state.cell[1] - view.clientHeight + 12;
  }
}

function indexAt(state, event) {
  if (!state.cell) return -1;
  const box = state.canvas.getBoundingClientRect();
  const column = Math.floor((event.clientX - box.left) / state.cell[0]);
  const row = Math.floor((event.clientY - box.top + state.view.scrollTop) / state.cell[1]);
  if (column < 0 || column >= state.columns || row < 0) return -1;
  const index = row * state.columns + column;
  return index < state.shown.length ? index : -1;
}

// --- Drawing -------------------------------------------------------------------------------------

function draw(state) {
  if (!state.fields || !state.view.clientWidth) return;
  const room = [state.view.clientWidth - 12, state.view.clientHeight - 12];
  if (!state.room || room[0] !== state.room[0] || room[1] !== state.room[1]) {
    state.room = room;
    layout(state);
    drawMap(state);
    return;
  }
  state.canvas.hidden = state.wanted.map;
  state.spacer.hidden = state.wanted.map;
  if (state.wanted.map) return;
  const ratio = pixelRatio();
  const { canvas, columns, cell } = state;
  const size = room.map((one) => Math.round(one * ratio));
  if (canvas.width !== size[0] || canvas.height !== size[1]) [canvas.width, canvas.height] = size;
  canvas.style.width = `${size[0] / ratio}px`;
  canvas.style.height = `${size[1] / ratio}px`;
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, room[0], room[1]);
  const first = Math.floor(state.view.scrollTop / cell[1]) * columns;
  const last = Math.min(state.shown.length, first + (state.rows + 2) * columns);
  want(state, first, Math.min(state.shown.length, last + state.rows * columns));
  const look = style(state);
  let missing = 0;
  for (let i = first; i < last; i += 1) missing += drawTile(state, context, i, look);
  canvas.dataset.count = String(state.shown.length);
  if (missing) delete canvas.dataset.drawn;
  else canvas.dataset.drawn = String(last - first);
}

function style(state) {
  const found = getComputedStyle(state.root);
  const of = (name) => found.getPropertyValue(name).trim();
  return {
    ink: of("--ink"), quiet: of("--quiet"), accent: of("--accent"), found: of("--found"),
    bad: of("--bad"), well: of("--well"), font: found.fontFamily,
  };
}

// Draws one tile; 1 where its pixels are still on their way.
function drawTile(state, context, index, look) {
  const { fields, columns, cell, data } = state;
  const place = state.shown[index];
  const id = fields.ids[place];
  const [width, height] = [cell[0] - GAP, cell[1] - CAPTION - GAP];
  const x = (index % columns) * cell[0];
  const y = Math.round((Math.floor(index / columns) * cell[1] - state.view.scrollTop) * pixelRatio()) / pixelRatio();
  const tile = paint(state, context, place, x, y, width, height);
  if (tile === undefined || tile === null) {
    context.fillStyle = look.well;
    context.fillRect(x, y, width, height);
  }
  context.font = `11px ${look.font}`;
  context.textBaseline = "alphabetic";
  if (tile === null) {
    context.fillStyle = look.bad;
    context.fillText("damaged", x + 2, y + height / 2, width - 4);
  }
  caption(state, context, place, [x, y, width, height], look);
  const chosen = state.chosen.has(id);
  if (chosen || index === state.at) {
    context.strokeStyle = index === state.at ? look.found : look.accent;
    context.lineWidth = 3;
    context.strokeRect(x - 0.5, y - 0.5, width + 1, height + CAPTION - 1);
  }
  if (chosen && index === state.at) {
    context.strokeStyle = look.accent;
    context.strokeRect(x + 2.5, y + 2.5, width - 5, height + CAPTION - 7);
  }
  return tile === undefined ? 1 : 0;
}

// Below the pixels: class, how far the annotator agrees, the label in force, and a dot for a tag.
function caption(state, context, place, [x, y, width, height], look) {
  const { fields, data } = state;
  if (data.plain) return;
  const id = fields.ids[place];
  const agreed = fields.agreements[place];
  const base = y + height + 13;
  if (agreed !== null) {
    context.fillStyle = agreed < 0.5 ? look.bad : agreed < 0.8 ? look.found : look.accent;
    context.fillRect(x, y + height + 1, Math.max(1, Math.round(width * agreed)), 2);
  }
  let left = x;
  let right = x + width;
  if (fields.tags[id]) {
    context.fillStyle = look.found;
    context.beginPath();
    context.arc(right - 4, base - 4, 3.5, 0, 7);
    context.fill();
    right -= 10;
  }
  const number = fields.classes[place];
  if (number !== null) {
    context.fillStyle = look.ink;
    context.fillText(String(number), left, base);
    left += context.measureText(String(number)).width + 4;
  }
  const labels = (fields.labels[id] || []).map((one) => (data.names[one] || String(one)).replace(/^.*: /, ""));
  const words = labels.length ? labels.join(", ") : agreed === null ? "" : `${Math.round(100 * agreed)}%`;
  context.fillStyle = labels.length ? look.accent : look.quiet;
  if (words && right - left > 14) put(context, words, left, base, right - left);
}

function put(context, words, x, y, room) {
  let shown = words;
  while (shown.length > 1 && context.measureText(shown).width > room) shown = shown.slice(0, -1);
  context.fillText(shown === words ? words : `${shown.slice(0, -1)}…`, x, y);
}

// --- The pointer ---------------------------------------------------------------------------------

function hover(state, event, index) {
  state.tip.hidden = index < 0;
  if (index < 0) return;
  state.tip.textContent = nameOf(state, state.shown[index]);
  const right = event.clientX + 320 > window.innerWidth;
  state.tip.style.left = right ? "" : `${event.clientX + 14}px`;
  state.tip.style.right = right ? `${window.innerWidth - event.clientX + 14}px` : "";
  state.tip.style.top = `${Math.min(event.clientY + 18, window.innerHeight - 60)}px`;
}

function click(state, event) {
  const index = indexAt(state, event);
  if (index < 0) return;
  const { plain } = state.data;
  if (!plain && event.shiftKey) {
    between(state, state.from < 0 ? Math.max(0, state.at) : state.from, index);
  } else if (!plain && (event.ctrlKey || event.metaKey)) toggle(state, index);
  else {
    open(state, index);
    return;
  }
  showChosen(state);
  draw(state);
}
