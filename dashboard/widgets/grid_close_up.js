// One sample enlarged beside the grid, at once: its pixels and fields are here already; only where
// it comes from is asked for.

const ROOM = 372; // pixels that a close-up begins with
const MOST_ZOOM = 40;

function buildCloseUp(state) {
  state.near = make("section", "near");
  state.near.hidden = true;
  state.near.setAttribute("aria-label", "Close-up");
  const head = make("header");
  state.nearName = make("h4");
  state.zoomWords = make("span", "count");
  head.append(
    state.nearName,
    button("←", () => step(state, -1), "Previous sample"),
    button("→", () => step(state, 1), "Next sample"),
    button("−", () => zoom(state, -1), "Smaller"),
    state.zoomWords,
    button("+", () => zoom(state, 1), "Larger"),
    button("✕", () => close(state), "Close (Escape)"),
  );
  const stage = make("div", "stage");
  stage.tabIndex = 0;
  stage.setAttribute("role", "group");
  stage.setAttribute("aria-label", "Enlarged sample");
  state.picture = make("canvas");
  state.picture.setAttribute("role", "img");
  stage.append(state.picture);
  state.facts = make("dl");
  const foot = make("p");
  state.link = make("a", "", "Link to this sample");
  foot.append(button("More like this", () => alike(state)), " ", state.link);
  state.near.append(head, stage, state.facts, foot);
}

function open(state, index, quietly = false) {
  const id = state.fields.ids[state.shown[index]];
  if (state.data.plain) {
    state.at = index;
    draw(state);
    state.pick(id);
    return;
  }
  const first = !state.wanted.sample;
  state.at = state.from = index;
  state.wanted.sample = id;
  if (first) fill(state.order, ORDERS.filter(([name]) => offered(state, name)));
  state.order.value = state.wanted.order;
  showCloseUp(state);
  write(state, quietly || !first);
  showChosen(state);
  draw(state);
}

function offered(state, name) {
  return name === "alike" || !(name === "doubtful" || name === "agreed") || state.fields.agreements.some((one) => one !== null);
}

function close(state) {
  state.wanted.sample = 0;
  state.near.hidden = true;
  fit(state);
  write(state);
  showChosen(state);
  state.canvas.focus({ preventScroll: true });
}

function step(state, by) {
  if (state.shown.length) move(state, by, false);
}

function alike(state) {
  Object.assign(state.wanted, { order: "alike", like: state.wanted.sample, part: "" });
  state.wanted.class.clear();
  state.view.scrollTop = 0;
  refine(state);
}

function zoom(state, by) {
  state.zoom = Math.min(MOST_ZOOM, Math.max(1, zoomOf(state) + by));
  showPicture(state);
}

function zoomOf(state) {
  return state.zoom || Math.max(1, Math.floor(ROOM / Math.max(state.data.shape[0], state.data.shape[1])));
}

function showCloseUp(state) {
  const place = state.fields.place.get(state.wanted.sample);
  state.near.hidden = place === undefined;
  fit(state);
  if (place === undefined) return;
  const at = state.shown.indexOf(place);
  const where = at < 0 ? "outside the filters" : `${(at + 1).toLocaleString("en")} of ${state.shown.length.toLocaleString("en")}`;
  state.nearName.textContent = `Sample ${state.wanted.sample}`;
  state.nearName.title = where;
  state.near.dataset.sample = String(state.wanted.sample);
  state.picture.setAttribute("aria-label", `Synthetic sample ${state.wanted.sample}`);
  const there = new URLSearchParams({ run: state.data.run, batch: state.data.batch, sample: state.wanted.sample });
  state.link.href = `samples?${there}`;
  if (!state.tiles.has(place) && !state.asked.has(place)) fetchTiles(state, [place]);
  showPicture(state);
  showFacts(state, place, where);
}

function showPicture(state) {
  const place = state.fields.place.get(state.wanted.sample);
  if (state.near.hidden || place === undefined) return;
  const [height, width] = state.data.shape;
  const scale = zoomOf(state);
  const ratio = pixelRatio();
  const whole = Math.max(1, Math.round(scale * ratio));
  state.picture.width = width * whole;
  state.picture.height = height * whole;
  state.picture.style.width = `${(width * whole) / ratio}px`;
  state.near.classList.toggle("wide", width * scale > ROOM);
  state.zoomWords.textContent = `${scale} ×`;
  const tile = paint(state, state.picture.getContext("2d"), place, 0, 0, width * whole, height * whole);
  if (tile) state.picture.dataset.painted = String(state.wanted.sample);
  else delete state.picture.dataset.painted;
}

function fact(words, ...shown) {
  const value = make("dd");
  value.append(...shown);
  return [make("dt", "", words), value];
}

function showFacts(state, place, where) {
  const { fields, data, wanted } = state;
  const agreed = fields.agreements[place];
  const marks = (found, kind) => (found && found.length ? found.map((one) => make("span", `mark ${kind}`, one)) : ["none yet"]);
  const labels = (fields.labels[wanted.sample] || []).map((one) => data.names[one] || String(one));
  state.facts.replaceChildren(
    ...fact("Place", where),
    ...fact("Requested", fields.classes[place] === null ? "unlabelled" : className(data, fields.classes[place])),
    ...(agreed === null ? [] : fact("Agreement", `${(100 * agreed).toFixed(1)}%`)),
    ...fact("Labels", ...marks(labels, "said")),
    ...fact("Tags", ...marks(fields.tags[wanted.sample], "")),
    ...(state.tiles.get(place) === null ? fact("Damaged", "This picture is not what was drawn and is not shown.") : []),
  );
  showOrigin(state, wanted.sample);
}

// Keys come faster than answers: only the last sample's is asked for and shown.
function showOrigin(state, id) {
  clearTimeout(state.later);
  state.later = setTimeout(async () => {
    try {
      const said = await (await ask(state, "sample", { id })).json();
      if (id !== state.wanted.sample) return;
      state.facts.append(
        ...(said.private ? [] : fact("Privacy", "NOT PRIVATE")),
        ...(said.labels.length ? fact("Answers", said.labels.join("; ")) : []),
        ...fact("Origin", said.provenance),
        ...fact("SHA-256", said.sha256),
        ...said.history.flatMap((line) => fact("Tagged", line)),
      );
      state.near.dataset.known = String(id);
    } catch (error) {
      say(state, String(error.message), true);
    }
  }, 60);
}
