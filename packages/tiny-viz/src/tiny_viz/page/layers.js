// Which layer is slow: the run by module, by line or by kernel, as a table whose rows open.
const layers = (() => {
  const { make, nanoseconds, rate, percent } = text;
  const PHASES = ["forward", "backward", "optimiser", "other"];

  const WAYS = {
    layer: (all, row) => {
      const origin = all.origin(row);
      if (!origin) return ["(nobody knows)", all.text("name", row)];
      const path = origin[3] ? origin[3].split(".") : ["(no layer)", text.place(origin)];
      return [...path, all.text("name", row)];
    },
    line: (all, row) => {
      const origin = all.origin(row);
      return origin ? [origin[0].split("/").pop(), `line ${origin[1]} ${origin[2]}`, all.text("name", row)] : ["(nobody knows)", all.text("name", row)];
    },
    kernel: (all, row) => [all.text("name", row)],
  };

  function node(name) {
    return { name, calls: 0, busy: 0, ops: 0, nbytes: 0, phases: [0, 0, 0, 0], inside: new Map(), lines: new Map(), row: -1 };
  }

  /** Sums of all rows in a tree, the longest first on every level. */
  function treeOf(all, rows, way) {
    const root = node("all");
    for (const row of rows) {
      const origin = all.origin(row), phase = Math.max(0, PHASES.indexOf(origin?.[4] || "other"));
      let at = root;
      for (const part of [null, ...WAYS[way](all, row)]) {
        if (part !== null) {
          if (!at.inside.has(part)) at.inside.set(part, node(part));
          at = at.inside.get(part);
        }
        at.calls++;
        at.busy += all.busy[row];
        at.ops += all.ops[row];
        at.nbytes += all.nbytes[row];
        at.phases[phase] += all.busy[row];
        const line = text.place(origin);
        if (line) at.lines.set(line, (at.lines.get(line) || 0) + all.busy[row]);
        at.row = row;
      }
    }
    const sort = (each) => {
      each.children = [...each.inside.values()].sort((a, b) => b.busy - a.busy);
      each.children.forEach(sort);
      // a path with one way on is one row: model.layer2
      while (each !== root && each.children.length === 1 && each.children[0].children.length && way === "layer" && each.name !== "(no layer)") {
        const [only] = each.children;
        each.name += `.${only.name}`;
        each.children = only.children;
      }
    };
    sort(root);
    return root;
  }

  async function view(overview) {
    const all = await records.load(overview);
    const work = records.work(all);
    if (!work.length) return make("p", { class: "page" }, "This trace has no launches of kernels.");
    let way = all.where.some((origin) => origin[3]) ? "layer" : all.where.length ? "line" : "kernel";
    let root, open, focus = null;
    const body = make("tbody");
    const summary = make("span", { class: "soft" });
    const choice = make("select", { "aria-label": "Group by" }, Object.keys(WAYS).map((each) => make("option", { value: each, selected: each === way }, `by ${each}`)));
    const made = make("table", { "aria-label": "time by layer", role: "treegrid" },
      make("thead", {}, make("tr", {}, ["what", "time", "share", "", "calls", "operations", "memory traffic", "line"].map((title, n) =>
        make("th", { class: [1, 2, 4, 5, 6].includes(n) ? "number" : undefined }, title)))),
      body);

    function start() {
      root = treeOf(all, work, way);
      open = new Set();
      // the way to where most of the time goes stands open
      for (let at = root; at.children?.length && at.children[0].children.length; at = at.children[0]) open.add(at.children[0]);
      summary.textContent = `${nanoseconds(root.busy)} of the devices in ${text.plural(work.length, "launch").replace("launchs", "launches")}; the longest first`;
      fill();
    }

    function visible() {
      const rows = [];
      const walk = (each, depth) => {
        rows.push([each, depth]);
        if (open.has(each)) each.children.forEach((child) => walk(child, depth + 1));
      };
      root.children.forEach((child) => walk(child, 0));
      return rows.slice(0, 3000);
    }

    function fill() {
      const rows = visible();
      if (!rows.some(([each]) => each === focus)) focus = rows[0]?.[0] ?? null;
      body.replaceChildren(...rows.map(([each, depth]) => {
        const inside = each.children.length > 0;
        const line = [...each.lines].sort((a, b) => b[1] - a[1])[0]?.[0] || "";
        const unit = inside ? -1 : records.unitOf(overview, all, each.row);
        const name = unit >= 0 ? make("a", { href: `#unit/${unit}`, tabindex: -1 }, each.name) : each.name;
        const parts = make("div", { class: "parts", style: { width: `${Math.max(0.5, (each.busy / (root.busy || 1)) * 100)}%` } },
          PHASES.map((phase, n) => each.phases[n] > 0 && make("i", { class: phase, title: `${phase}: ${nanoseconds(each.phases[n])}`, style: { flex: each.phases[n] } })).filter(Boolean));
        const row = make("tr", { class: "goes", role: "row", "aria-level": depth + 1, "aria-expanded": inside ? String(open.has(each)) : undefined, tabindex: each === focus ? 0 : -1 },
          make("td", { class: "name short", style: { paddingLeft: `${8 + depth * 18}px` } }, make("span", { class: "tree" }, inside ? (open.has(each) ? "▾" : "▸") : ""), name),
          make("td", { class: "number" }, nanoseconds(each.busy)), make("td", { class: "number" }, percent(each.busy / (root.busy || 1))),
          make("td", { class: "share-cell" }, parts), make("td", { class: "number" }, text.count(each.calls)),
          make("td", { class: "number" }, rate(each.ops, each.busy, "FLOPS")), make("td", { class: "number" }, rate(each.nbytes, each.busy, "B/s")),
          make("td", { class: "name short" }, line));
        row.node = each;
        row.addEventListener("click", (event) => event.target.closest("a") || turn(each));
        return row;
      }));
    }

    function turn(each, to = !open.has(each)) {
      if (!each.children.length) return;
      if (to) open.add(each);
      else open.delete(each);
      focus = each;
      fill();
      body.querySelector("[tabindex='0']")?.focus();
    }

    body.addEventListener("keydown", (event) => {
      const lines = [...body.children], at = lines.indexOf(event.target.closest("tr"));
      const each = lines[at]?.node;
      const move = (to) => {
        const line = lines[Math.max(0, Math.min(lines.length - 1, to))];
        lines.forEach((other) => (other.tabIndex = other === line ? 0 : -1));
        focus = line.node;
        line.focus();
      };
      if (event.key === "ArrowDown") move(at + 1);
      else if (event.key === "ArrowUp") move(at - 1);
      else if (event.key === "Home") move(0);
      else if (event.key === "End") move(lines.length - 1);
      else if (event.key === "ArrowRight") open.has(each) || !each.children.length ? move(at + 1) : turn(each, true);
      else if (event.key === "ArrowLeft") {
        if (open.has(each)) turn(each, false);
        else {
          const level = Number(lines[at].getAttribute("aria-level"));
          move(lines.findLastIndex((line, n) => n < at && Number(line.getAttribute("aria-level")) < level));
        }
      } else if (event.key === "Enter" || event.key === " ") {
        if (each.children.length) turn(each);
        else lines[at].querySelector("a")?.click();
      } else return;
      event.preventDefault();
    });
    choice.addEventListener("change", () => {
      way = choice.value;
      start();
    });
    start();
    const legend = PHASES.map((phase) => [make("span", { class: `key ${phase}` }), phase]);
    const view = make("div", { class: "split" }, make("div", { class: "wide" },
      make("div", { class: "bar" }, choice, summary, make("span", { class: "space" }), all.where.length ? make("span", { class: "soft" }, legend) : ""),
      make("div", { class: "page" }, made)));
    view.focusOn = body.querySelector("[tabindex='0']");
    return view;
  }

  return { view };
})();
