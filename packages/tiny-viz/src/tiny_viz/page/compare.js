// Two traces side by side: what came, went, got slower or faster.
const compare = (() => {
  const { make, nanoseconds } = text;

  const mean = (value) => (value === null ? "" : nanoseconds(Math.round(value)));

  function sentence(found) {
    const [before, after] = found.total;
    const factor = before && after ? after / before : 0;
    const kinds = ["slower", "faster", "came", "went"].map((kind) => [kind, found.rows.filter((row) => row.what === kind).length]).filter((each) => each[1]);
    return [
      `Kernels, each call as long as it usually is: ${nanoseconds(before)} before, ${nanoseconds(after)} after`, factor ? ` (${factor.toFixed(2)} times)` : "",
      kinds.length ? `; ${kinds.map(([kind, count]) => `${count} ${kind}`).join(", ")}.` : "; none changed.",
    ].join("");
  }

  async function view() {
    const found = await data.get("compare");
    const detail = make("aside", {}, make("p", { class: "soft" }, "Choose a kernel to see what it is for, and how its code differs."));
    const holder = make("div", { class: "page" });
    let by = "rows", only = null;
    const factor = (row) => (row.mean[0] && row.mean[1] ? row.mean[1] / row.mean[0] : null);
    const columns = [
      { title: "what", value: (row) => row.what, show: (row) => make("span", { class: row.what }, row.what) },
      { title: "name", value: (row) => row.name, show: (row) => [row.name, by === "rows" && row.places.length ? make("div", { class: "soft" }, row.places[0]) : ""], kind: "name short" },
      { title: "in all", value: (row) => row.busy[1] - row.busy[0], show: (row) => `${row.busy[1] >= row.busy[0] ? "+" : "−"}${nanoseconds(Math.abs(row.busy[1] - row.busy[0]))}`, kind: "number", about: "more or less time in all" },
      { title: "times", value: factor, show: (row) => (factor(row) ? `${factor(row).toFixed(2)}×` : ""), kind: "number", about: "a usual launch (the median) after, by one before" },
      { title: "before", value: (row) => row.mean[0], show: (row) => mean(row.mean[0]), kind: "number" },
      { title: "after", value: (row) => row.mean[1], show: (row) => mean(row.mean[1]), kind: "number" },
      { title: "launches", value: (row) => row.calls[1] - row.calls[0], show: (row) => (row.calls[0] === row.calls[1] ? `${row.calls[0]}` : `${row.calls[0]} → ${row.calls[1]}`), kind: "number" },
    ];
    async function explain(row) {
      const place = found.rows.indexOf(row);
      detail.replaceChildren(make("h2", { class: "mono" }, row.name), make("p", { class: row.what }, row.what));
      if (row.changed) detail.append(make("p", {}, "Its graph is another one: the kernel computes in another way, or something else."));
      else if (by === "rows" && row.calls[0] && row.calls[1]) detail.append(make("p", {}, "Its graph is the same."));
      const rates = (amounts, unit) => [0, 1].map((side) => text.rate(amounts[side], row.busy[side], unit)).filter(Boolean).join(" → ");
      const facts = [["operations", rates(row.ops, "FLOPS")], ["traffic", rates(row.nbytes, "B/s")], ["work of a launch", work(row)]].filter((fact) => fact[1]);
      detail.append(make("dl", {}, facts.map(([title, value]) => [make("dt", {}, title), make("dd", {}, value)])));
      if (row.places.length) detail.append(make("h3", {}, "for"), ...row.places.map((words) => make("div", {}, words)));
      if (place < 0 || !row.code) return;
      try {
        const code = await data.get(`compare/code/${place}`);
        detail.append(make("h3", {}, "Code"), code.same ? make("p", {}, "The code is the same: what changed is how fast it runs.") : text.diff(code.diff));
      } catch (problem) {
        detail.append(make("p", { class: "error" }, problem.message));
      }
    }
    function work(row) {
      if (!row.calls[0] || !row.calls[1] || !row.ops[0]) return "";
      const factor = row.ops[1] / row.calls[1] / (row.ops[0] / row.calls[0]);
      return Math.abs(factor - 1) < 0.005 ? "the same" : `${factor.toFixed(2)} times`;
    }
    function fill() {
      buttons.forEach((button) => button.setAttribute("aria-pressed", String(button.dataset.by === by)));
      filters.forEach((chip) => chip.setAttribute("aria-pressed", String(chip.dataset.what === only)));
      const rows = found[by].filter((row) => only === null || row.what === only);
      holder.replaceChildren(table({ label: by === "rows" ? "kernels" : "layers", columns, rows, go: explain }));
    }
    const buttons = [["rows", "kernels"], ["layers", "layers"]].map(([way, title]) => make("button", { type: "button", "data-by": way, onclick: () => ((by = way), fill()) }, title));
    const filters = ["slower", "faster", "came", "went", "same"].map((what) => make("button", {
      type: "button", class: `chip ${what}`, "data-what": what, onclick: () => ((only = only === what ? null : what), fill()),
    }, what));
    fill();
    const view = make("div", { class: "split" }, make("div", { class: "wide" },
      make("div", { class: "bar" }, make("b", {}, `${found.names[0]} → ${found.names[1]}`), make("span", { class: "summary" }, sentence(found))),
      make("div", { class: "bar" }, found.layers.length ? buttons : buttons.slice(0, 1), filters), holder), detail);
    detail.style.width = "30%";
    return Object.assign(view, { focusOn: holder.querySelector("tr[tabindex='0']") });
  }

  return { view };
})();
