// A list of runs: searched, filtered and sorted in the browser; its links are links.

const FIRST = 200; // rows drawn at once; the others on demand
const COLUMNS = [
  ["name", "Run"], ["data", "Data"], ["users", "Users"], ["rounds", "Rounds"],
  ["epsilon", "ε spent"], ["worth", "Worth"], ["diagnosis", "Diagnosis"], ["status", "Status"],
  ["started", "Started"],
];
const FILTERS = ["status", "worth", "diagnosis", "data"];
const states = new WeakMap();

export default function (component) {
  const { data, parentElement } = component;
  let state = states.get(parentElement);
  if (!state) {
    state = create(parentElement);
    states.set(parentElement, state);
  }
  state.open = (page, run) => component.setTriggerValue("opened", { page, run });
  const said = JSON.stringify(data.rows);
  if (said !== state.seen) {
    state.seen = said;
    state.rows = data.rows;
    refill(state);
    draw(state);
  }
  return () => {
    states.delete(parentElement);
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
  const state = { root, search, rows: [], seen: "", sort: "", down: false, most: FIRST, chosen: {} };
  search.addEventListener("input", () => again(state));
  bar.append(search);
  for (const field of FILTERS) {
    const select = make("select");
    select.setAttribute("aria-label", `Filter by ${field}`);
    select.addEventListener("change", () => again(state));
    state.chosen[field] = select;
    bar.append(select);
  }
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

function refill(state) {
  for (const [field, select] of Object.entries(state.chosen)) {
    const kept = select.value;
    const values = [...new Set(state.rows.map((row) => row[field].text))].filter(Boolean).sort();
    select.replaceChildren(option("", `Any ${field}`), ...values.map((one) => option(one, one)));
    select.value = values.includes(kept) ? kept : "";
    select.hidden = values.length < 2;
  }
}

function option(value, text) {
  const made = make("option");
  made.value = value;
  made.textContent = text;
  return made;
}

function again(state) {
  state.most = FIRST;
  draw(state);
}

function left(state) {
  const words = state.search.value.toLowerCase().split(/\s+/).filter(Boolean);
  const found = state.rows.filter((row) => {
    const all = `${row.id} ${COLUMNS.map(([field]) => row[field].text).join(" ")}`.toLowerCase();
    const chosen = Object.entries(state.chosen);
    return (
      words.every((word) => all.includes(word)) &&
      chosen.every(([field, select]) => !select.value || row[field].text === select.value)
    );
  });
  if (!state.sort) return found;
  const sign = state.down ? -1 : 1;
  return found.sort((a, b) => sign * compare(a[state.sort].order, b[state.sort].order));
}

function compare(a, b) {
  return a === b ? 0 : a === null || a > b ? 1 : -1;
}

function counted(all) {
  return all === 1 ? "1 run" : `${all} runs`;
}

function draw(state) {
  const rows = left(state);
  state.head.replaceChildren(header(state));
  state.body.replaceChildren(...rows.slice(0, state.most).map(line));
  const all = state.rows.length;
  state.count.textContent = rows.length === all ? counted(all) : `${rows.length} of ${counted(all)}`;
  state.more.hidden = rows.length <= state.most;
  state.more.textContent = `Show ${rows.length - state.most} more`;
}

function header(state) {
  const row = make("tr");
  const thumb = make("th");
  thumb.textContent = "Samples";
  row.append(thumb);
  for (const [field, words] of COLUMNS) {
    const cell = make("th", field);
    const button = make("button");
    const mark = state.sort === field ? (state.down ? " ▾" : " ▴") : "";
    button.textContent = words + mark;
    button.addEventListener("click", () => {
      state.down = state.sort === field && !state.down;
      state.sort = field;
      draw(state);
      state.head.querySelector(`.${field} button`).focus();
    });
    cell.setAttribute("aria-sort", mark ? (state.down ? "descending" : "ascending") : "none");
    cell.append(button);
    row.append(cell);
  }
  return row;
}

function line(row) {
  const made = make("tr");
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
