// Tables that are sorted by their heads and walked through with the arrow keys.
const table = (() => {
  const { make } = text;
  const STEP = 400; // rows that are shown at once: more come at the end of them

  /**
   * `columns`: {title, value(row), show(row), kind: "number" | "name" | "", first: whether it is sorted downwards first}.
   * `go(row)`: what Enter and a click do. `sort`: the column that rows are sorted by at first, or -1 for none.
   */
  function table({ columns, rows, go, sort = -1, label, current }) {
    let by = sort, down = true, shown = STEP;
    const head = make("tr");
    const body = make("tbody");
    const more = make("button", { type: "button", onclick: () => ((shown += STEP * 5), fill()) });
    const made = make("table", { "aria-label": label, "data-rows": rows.length }, make("thead", {}, head), body);

    function sorted() {
      if (by < 0) return rows;
      const { value } = columns[by];
      const keyed = rows.map((row, place) => [value(row), place, row]);
      keyed.sort(([a, i], [b, j]) => {
        const order = a === b ? i - j : a === null || a === undefined ? 1 : b === null || b === undefined ? -1 : (a < b ? -1 : 1) * (down ? -1 : 1);
        return order;
      });
      return keyed.map((entry) => entry[2]);
    }

    function titles() {
      head.replaceChildren(...columns.map((column, place) => {
        const sign = place === by ? (down ? " ↓" : " ↑") : "";
        const inside = column.value
          ? make("button", { type: "button", onclick: () => turn(place) }, column.title + sign)
          : column.title;
        const direction = place === by ? (down ? "descending" : "ascending") : undefined;
        return make("th", { class: column.kind === "number" ? "number" : undefined, "aria-sort": direction, title: column.about }, inside);
      }));
    }

    function turn(place) {
      down = by === place ? !down : columns[place].kind === "number";
      by = place;
      titles();
      fill();
      head.querySelectorAll("button")[columns.slice(0, place).filter((column) => column.value).length].focus();
    }

    function fill() {
      const all = sorted();
      body.replaceChildren(...all.slice(0, shown).map((row, place) => {
        const cells = columns.map((column) => make("td", { class: column.kind || undefined }, column.show(row)));
        const line = make("tr", { class: go ? "goes" : undefined, tabindex: go ? (place ? -1 : 0) : undefined }, cells);
        if (current && current(row)) line.classList.add("current");
        if (go) line.addEventListener("click", (event) => event.target.closest("a") || go(row));
        line.row = row;
        return line;
      }));
      more.textContent = `${text.count(all.length - shown)} more`;
      more.hidden = all.length <= shown;
    }

    body.addEventListener("keydown", (event) => {
      const line = event.target.closest("tr");
      const moves = { ArrowDown: 1, ArrowUp: -1, PageDown: 12, PageUp: -12, Home: -1e9, End: 1e9 };
      if (event.key === "Enter" && go && line && event.target === line) go(line.row);
      else if (event.key in moves && line) {
        const lines = [...body.children];
        const next = lines[Math.max(0, Math.min(lines.length - 1, lines.indexOf(line) + moves[event.key]))];
        lines.forEach((other) => (other.tabIndex = other === next ? 0 : -1));
        next.focus();
        next.scrollIntoView({ block: "nearest" });
      } else return;
      event.preventDefault();
    });
    titles();
    fill();
    return make("div", {}, made, more);
  }

  return table;
})();
