// A map of the samples that fit: alike ones lie together. A click opens one, a line around some
// chooses them.

const SHADES = [
  "#4c78a8", "#f58518", "#e45756", "#72b7b2", "#54a24b", "#b79a20", "#b279a2", "#ff9da6", "#9d755d", "#8a8f98",
];
const REACH = 12;

function buildMap(state) {
  state.map.setAttribute("role", "img");
  state.map.addEventListener("mousedown", (event) => {
    state.line = [pointAt(state, event)];
  });
  state.map.addEventListener("mousemove", (event) => {
    if (!state.line || !event.buttons) {
      state.line = null;
      hover(state, event, nearest(state, pointAt(state, event)));
      return;
    }
    state.line.push(pointAt(state, event));
    drawMap(state);
  });
  state.map.addEventListener("mouseup", (event) => endLine(state, event));
  state.map.addEventListener("mouseleave", () => hover(state, null, -1));
}

function pointAt(state, event) {
  const box = state.map.getBoundingClientRect();
  return [event.clientX - box.left, event.clientY - box.top];
}

function spot(state, place) {
  const [width, height] = state.room;
  return [10 + (state.places.x[place] / 1000) * (width - 20), 10 + (state.places.y[place] / 1000) * (height - 20)];
}

function nearest(state, [x, y]) {
  let [found, least] = [-1, REACH * REACH];
  if (state.places) {
    state.shown.forEach((place, index) => {
      const [a, b] = spot(state, place);
      const far = (a - x) ** 2 + (b - y) ** 2;
      if (far < least) [found, least] = [index, far];
    });
  }
  return found;
}

function endLine(state, event) {
  const line = state.line || [];
  state.line = null;
  if (line.length < 6) {
    const index = nearest(state, pointAt(state, event));
    if (index >= 0) open(state, index);
  } else {
    for (const place of state.shown) {
      if (within(line, spot(state, place))) state.chosen.add(state.fields.ids[place]);
    }
    showChosen(state);
  }
  drawMap(state);
}

function within(line, [x, y]) {
  let inside = false;
  for (let i = 0, j = line.length - 1; i < line.length; j = i, i += 1) {
    const [[a, b], [c, d]] = [line[i], line[j]];
    if (b > y !== d > y && x < ((c - a) * (y - b)) / (d - b) + a) inside = !inside;
  }
  return inside;
}

async function drawMap(state) {
  state.map.hidden = !state.wanted.map;
  if (!state.wanted.map || !state.fields || !state.room) return;
  if (state.placesOf !== state.fields) {
    const { fields } = state;
    state.placesOf = fields;
    state.places = null;
    say(state, "Comparing all samples of the batch …");
    try {
      const asked = state.placesAsked || patiently(state, "map", () => fields === state.fields);
      state.placesAsked = null;
      const places = await asked;
      if (places === null || fields !== state.fields) return;
      state.places = places;
      sayMap(state);
    } catch (error) {
      say(state, String(error.message), true);
    }
  }
  if (!state.places || !state.wanted.map) return;
  drawSpots(state);
  if (state.places.later && state.clearing !== state.fields) clearUp(state, state.fields);
}

function sayMap(state) {
  const how = "A click opens a sample; a line around some selects them.";
  say(state, state.places.later ? `${how} A clearer map is being made.` : how);
}

// What is seen at once are two principal components; a map by t-SNE takes its place.
async function clearUp(state, fields) {
  const wanted = () => fields === state.fields && state.wanted.map;
  state.clearing = fields;
  try {
    while (wanted() && state.places.later) {
      await new Promise((resolve) => setTimeout(resolve, 1500));
      const places = wanted() && (await patiently(state, "map", wanted));
      if (places && wanted()) state.places = places;
    }
    if (!wanted()) return;
    sayMap(state);
    drawSpots(state);
  } catch (error) {
    say(state, String(error.message), true);
  } finally {
    state.clearing = null;
  }
}

function drawSpots(state) {
  const ratio = pixelRatio();
  const [width, height] = state.room;
  Object.assign(state.map, { width: width * ratio, height: height * ratio });
  Object.assign(state.map.style, { width: `${width}px`, height: `${height}px` });
  const context = state.map.getContext("2d");
  context.scale(ratio, ratio);
  const look = style(state);
  for (const place of state.shown) {
    const id = state.fields.ids[place];
    const [x, y] = spot(state, place);
    const chosen = state.chosen.has(id) || id === state.wanted.sample;
    context.globalAlpha = chosen ? 1 : 0.6;
    context.fillStyle = chosen ? look.found : SHADES[(state.fields.classes[place] || 0) % SHADES.length];
    context.beginPath();
    context.arc(x, y, chosen ? 5 : 2.6, 0, 7);
    context.fill();
  }
  context.globalAlpha = 1;
  context.strokeStyle = look.ink;
  context.beginPath();
  for (const [x, y] of state.line || []) context.lineTo(x, y);
  context.stroke();
  state.map.dataset.count = String(state.shown.length);
  state.map.dataset.clear = String(Boolean(state.places.clear));
  state.map.setAttribute("aria-label", `Map of ${samples(state.shown.length)}: alike ones lie together`);
}
