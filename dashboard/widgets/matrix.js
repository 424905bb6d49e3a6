// A table of counts whose cells are buttons; darker cells hold more of their row.

const states = new WeakMap();

export default function (component) {
  const { data, parentElement } = component;
  let state = states.get(parentElement);
  if (!state) {
    state = { root: document.createElement("div") };
    state.root.className = "matrix";
    parentElement.querySelector("div").append(state.root);
    states.set(parentElement, state);
  }
  state.pick = (row, column) => component.setTriggerValue("picked", [row, column]);
  const said = JSON.stringify(data);
  if (state.seen !== said) {
    state.seen = said;
    draw(state, data);
  }
  return () => {
    states.delete(parentElement);
    state.root.remove();
  };
}

function draw(state, data) {
  const table = document.createElement("table");
  const caption = document.createElement("caption");
  caption.textContent = data.title;
  const head = document.createElement("tr");
  head.append(heading(data.corner, "col"), ...data.columns.map((one) => heading(one, "col")));
  table.append(caption, head);
  data.counts.forEach((counts, row) => {
    const line = document.createElement("tr");
    const all = counts.reduce((sum, count) => sum + count, 0);
    line.append(heading(data.rows[row], "row"));
    counts.forEach((count, column) => line.append(cell(state, data, row, column, count / (all || 1))));
    table.append(line);
  });
  state.root.replaceChildren(table);
}

function heading(words, scope) {
  const made = document.createElement("th");
  made.scope = scope;
  made.textContent = words;
  return made;
}

function cell(state, data, row, column, share) {
  const made = document.createElement("td");
  const count = data.counts[row][column];
  if (!count) return made;
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = count.toLocaleString("en");
  button.dataset.cell = `${row}-${column}`;
  button.style.setProperty("--share", `${Math.round(55 * share)}%`);
  if (data.expected[row] === column) button.className = "expected";
  const words = `${data.rows[row]}, ${data.columns[column]}: ${count}, ${Math.round(100 * share)}% of the row`;
  button.setAttribute("aria-label", words);
  button.title = words;
  button.setAttribute("aria-pressed", String(data.picked[0] === row && data.picked[1] === column));
  button.addEventListener("click", () => state.pick(row, column));
  made.append(button);
  return made;
}
