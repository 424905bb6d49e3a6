// A list of runs: searched, filtered and sorted in the browser; its links are links. What it is set
// to stands in the address, so that a link shows the same and Back undoes it, and views that were
// saved are such addresses under a name.

const FIRST = 200; // rows drawn at once; the others on demand
const COLUMNS = [
  ["name", "Run"], ["data", "Data"], ["users", "Users"], ["rounds", "Rounds"],
  ["epsilon", "ε spent"], ["worth", "Worth"], ["diagnosis", "Diagnosis"], ["status", "Status"],
  ["started", "Started"],
];
const FILTERS = ["status", "worth", "diagnosis", "data"];
const TICKED = "plot"; // of the address: the runs whose figures are drawn together
const states = new WeakMap();

export default function (component) {
  const { data, parentElement } = component;
  let state = states.get(parentElement);
  if (!state) {
    state = create(parentElement);
    states.set(parentElement, state);
  }
  state.open = (page, run) => component.setTriggerValue("opened", { page, run });
  state.save = (view) => component.setTriggerValue("saved", view);
  state.tell = () => component.setStateValue("ticked", plotted(state));
  const said = JSON.stringify(data);
  if (said !== state.seen) {
    state.seen = said;
    state.data = data;
    draw(state);
    if (String(plotted(state)) !== String(data.ticked)) state.tell();
  }
  write(state, true);
  return () => {
    states.delete(parentElement);
    window.removeEventListener("popstate", state.back);
    state.root.remove();
  };
}

function create(parent) {
  const root = make("div", "rows");
  const bar = make("div", "bar");
  const search = make("input");
  search.type = "search";
  search.placeholder = "Search runs";
  search.setAttribute("aria-label", "Search runs");
  const state = {
    root, search, data: { rows: [] }, seen: "", most: FIRST, selects: {}, wanted: {}, ticked: new Set(),
  };
  let begun = false; // what is typed in one go is one step back
  search.addEventListener("focus", () => (begun = false));
  search.addEventListener("input", () => {
    want(state, "search", search.value, begun);
    begun = true;
  });
  bar.append(search);
  for (const field of FILTERS) {
    const select = make("select");
    select.setAttribute("aria-label", `Filter by ${field}`);
    select.addEventListener("change", () => want(state, field, select.value));
    state.selects[field] = select;
    bar.append(select);
  }
  buildViews(state, bar);
  state.count = make("span", "count");
  state.count.setAttribute("role", "status");
  bar.append(state.count);
  const scroll = make("div", "scroll");
  state.table = make("table");
  state.table.setAttribute("aria-label", "Runs");
  state.head = make("thead");
  state.body = make("tbody");
  state.table.append(state.head, state.body);
  scroll.append(state.table);
  state.more = make("button", "more");
  state.more.addEventListener("click", () => {
    state.most = Infinity;
    draw(state);
  });
  root.append(bar, scroll, state.more);
  root.addEventListener("click", (event) => follow(state, event));
  state.back = () => {
    begun = false;
    const before = String(plotted(state));
    read(state);
    draw(state);
    if (String(plotted(state)) !== before) state.tell();
  };
  window.addEventListener("popstate", state.back);
  read(state);
  parent.querySelector("div").append(root);
  return state;
}

// Ctrl, Shift or the middle button open a tab, as with any link; else the page changes in place.
function follow(state, event) {
  const link = event.target.closest("a");
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
  event.preventDefault();
  state.open(link.dataset.page, link.dataset.run);
}

// --- What is wanted, and its address ------------------------------------------------------------

function read(state) {
  const given = new URLSearchParams(location.search);
  for (const name of [...FILTERS, "search", "sort"]) state.wanted[name] = given.get(name) || "";
  state.ticked = new Set(given.getAll(TICKED));
}

// The ticked runs that there are, in the order of the list as it came.
function plotted(state) {
  return state.data.rows.map((row) => row.id).filter((id) => state.ticked.has(id));
}

// The parameters that a view is of: all but the runs that are drawn, which come and go.
function viewed(state) {
  const said = new URLSearchParams();
  for (const [name, value] of Object.entries(state.wanted)) if (value) said.set(name, value);
  said.sort();
  return said;
}

function write(state, quietly) {
  const there = new URLSearchParams(location.search);
  for (const name of [...Object.keys(state.wanted), TICKED]) there.delete(name);
  for (const [name, value] of viewed(state)) there.set(name, value);
  for (const run of state.ticked) there.append(TICKED, run);
  const next = `${location.pathname}${String(there) ? "?" : ""}${there}`;
  if (next === location.pathname + location.search) return;
  window.history[quietly ? "replaceState" : "pushState"]({}, "", next);
}

function want(state, name, value, quietly = false) {
  state.wanted[name] = value;
  state.most = FIRST;
  write(state, quietly);
  draw(state);
}

// A filter stays in force where no run fits it any more: a view of what failed is then empty.
function refill(state) {
  for (const [field, select] of Object.entries(state.selects)) {
    const wanted = state.wanted[field];
    const there = state.data.rows.map((row) => row[field].text);
    const values = [...new Set([...there, wanted])].filter(Boolean).sort();
    select.replaceChildren(option("", `Any ${field}`), ...values.map((one) => option(one, one)));
    select.value = wanted;
    select.hidden = values.length < 2 && !wanted;
  }
  if (state.search.value !== state.wanted.search) state.search.value = state.wanted.search;
}

// --- Saved views ---------------------------------------------------------------------------------

function buildViews(state, bar) {
  state.views = make("select");
  state.views.setAttribute("aria-label", "Saved views");
  state.views.addEventListener("change", () => {
    const given = new URLSearchParams(state.views.value);
    for (const name of [...FILTERS, "search", "sort"]) state.wanted[name] = given.get(name) || "";
    want(state, "search", state.wanted.search);
  });
  state.viewName = make("input");
  state.viewName.placeholder = "Name of the view";
  state.viewName.maxLength = 60;
  state.viewName.setAttribute("aria-label", "Name of the view");
  state.viewName.addEventListener("keydown", (event) => {
    if (event.key === "Enter") keep();
    if (event.key === "Escape") name(false);
  });
  state.keep = make("button", "more");
  state.keep.addEventListener("click", () => (state.viewName.hidden ? name(true) : keep()));
  state.drop = make("button", "more");
  state.drop.textContent = "Delete view";
  state.drop.addEventListener("click", () => state.save({ name: current(state).name, address: null }));
  const name = (open) => {
    state.viewName.hidden = !open;
    if (open) state.viewName.focus();
    drawViews(state);
  };
  const keep = () => {
    const called = state.viewName.value.trim();
    if (!called) return state.viewName.focus();
    state.save({ name: called, address: String(viewed(state)) });
    state.viewName.value = "";
    name(false);
  };
  state.viewName.hidden = true;
  bar.append(state.views, state.viewName, state.keep, state.drop);
}

function current(state) {
  const here = String(viewed(state));
  return here && state.data.views.find((one) => one.address === here);
}

function drawViews(state) {
  const { views, may_save: maySave } = state.data;
  const here = current(state);
  state.views.replaceChildren(option("", "All runs"), ...views.map((one) => option(one.address, one.name)));
  if (!here && String(viewed(state))) state.views.append(option("?", "Not saved"));
  state.views.value = here ? here.address : String(viewed(state)) ? "?" : "";
  state.views.hidden = !views.length;
  state.keep.textContent = state.viewName.hidden ? "Save view" : "Save";
  state.keep.hidden = !maySave || (state.viewName.hidden && (Boolean(here) || !String(viewed(state))));
  state.drop.hidden = !maySave || !here;
}

// --- The list ------------------------------------------------------------------------------------

function option(value, text) {
  const made = make("option");
  made.value = value;
  made.textContent = text;
  return made;
}

function left(state) {
  const { wanted } = state;
  const words = wanted.search.toLowerCase().split(/\s+/).filter(Boolean);
  const found = state.data.rows.filter((row) => {
    const all = `${row.id} ${COLUMNS.map(([field]) => row[field].text).join(" ")}`.toLowerCase();
    return (
      words.every((word) => all.includes(word)) &&
      FILTERS.every((field) => !wanted[field] || row[field].text === wanted[field])
    );
  });
  const { field, down } = sorting(state);
  if (!field) return found;
  const sign = down ? -1 : 1;
  return found.sort((a, b) => sign * compare(a[field].order, b[field].order));
}

// What the list is sorted by, as the address says it: ``epsilon``, or ``-epsilon`` downwards.
function sorting(state) {
  const { sort } = state.wanted;
  const field = sort.replace(/^-/, "");
  return { field: COLUMNS.some(([one]) => one === field) ? field : "", down: sort.startsWith("-") };
}

function compare(a, b) {
  return a === b ? 0 : a === null || a > b ? 1 : -1;
}

function counted(all) {
  return all === 1 ? "1 run" : `${all} runs`;
}

function draw(state) {
  refill(state);
  drawViews(state);
  const rows = left(state);
  state.head.replaceChildren(header(state));
  state.body.replaceChildren(...rows.slice(0, state.most).map((row) => line(state, row)));
  state.root.classList.toggle("plotted", state.ticked.size > 0);
  const all = state.data.rows.length;
  state.count.textContent = rows.length === all ? counted(all) : `${rows.length} of ${counted(all)}`;
  state.more.hidden = rows.length <= state.most;
  state.more.textContent = `Show ${rows.length - state.most} more`;
}

function header(state) {
  const row = make("tr");
  for (const words of ["Plot", "Samples"]) {
    const cell = make("th");
    cell.textContent = words;
    row.append(cell);
  }
  const { field: sorted, down } = sorting(state);
  for (const [field, words] of COLUMNS) {
    const cell = make("th", field);
    const button = make("button");
    const mark = sorted === field ? (down ? " ▾" : " ▴") : "";
    button.textContent = words + mark;
    button.addEventListener("click", () => {
      want(state, "sort", `${sorted === field && !down ? "-" : ""}${field}`);
      state.head.querySelector(`.${field} button`).focus();
    });
    cell.setAttribute("aria-sort", mark ? (down ? "descending" : "ascending") : "none");
    cell.append(button);
    row.append(cell);
  }
  return row;
}

// Several runs are drawn together: ticked here, or by the address.
function tick(state, row) {
  const cell = make("td", "tick");
  const box = make("input");
  box.type = "checkbox";
  box.checked = state.ticked.has(row.id);
  box.disabled = !box.checked && state.ticked.size >= state.data.most;
  box.setAttribute("aria-label", `Plot ${row.name.text}`);
  box.addEventListener("change", () => {
    state.ticked[box.checked ? "add" : "delete"](row.id);
    write(state);
    state.tell();
    for (const one of state.body.querySelectorAll(".tick input")) {
      one.disabled = !one.checked && state.ticked.size >= state.data.most;
    }
    state.root.classList.toggle("plotted", state.ticked.size > 0);
  });
  cell.append(box);
  return cell;
}

function line(state, row) {
  const made = make("tr");
  made.append(tick(state, row));
  const thumb = make("td", "thumb");
  if (row.picture) {
    const image = make("img");
    image.loading = "lazy";
    image.alt = `Synthetic samples of ${row.name.text}`;
    image.src = row.picture;
    thumb.append(link("samples", row, image));
  }
  made.append(thumb);
  for (const [field] of COLUMNS) {
    const cell = make("td", field);
    const said = row[field];
    let shown = document.createTextNode(said.text);
    if (said.kind !== undefined && said.text) {
      shown = make("span", `tag ${said.kind}`);
      shown.textContent = said.text;
    }
    cell.append(said.page && said.text ? link(said.page, row, shown) : shown);
    if (said.under) {
      const under = make("small");
      under.textContent = said.under;
      cell.append(under);
    }
    made.append(cell);
  }
  return made;
}

function link(page, row, inner) {
  const made = make("a");
  made.href = `${page}?run=${encodeURIComponent(row.id)}`;
  made.dataset.page = page;
  made.dataset.run = row.id;
  if (page === "diagnosis") made.setAttribute("aria-label", `${page}: ${row.name.text}, ${inner.textContent}`);
  made.append(inner);
  return made;
}

function make(name, kind = "") {
  const made = document.createElement(name);
  if (kind) made.className = kind;
  return made;
}
