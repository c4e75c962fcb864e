// The compiler: tensor graph → schedule → kernel → passes → code, each linked to the next.
const compiler = (() => {
  const { make, seconds, nanoseconds } = text;

  // *** all schedules and kernels ***

  async function list(overview) {
    const { units } = overview;
    if (!units.name.length) return make("p", { class: "page" }, "This trace has no schedules and kernels: VIZ=1 and VIZ=-1 record them.");
    const times = new Map();
    if (overview.run) {
      const all = await records.load(overview);
      for (const sum of records.sums(all, records.work(all).filter(all.launch), (row) => records.unitOf(overview, all, row))) times.set(sum.key, sum);
    }
    const rows = units.name.map((name, n) => ({ n, name, kind: units.kind[n], seconds: units.seconds[n], compiling: units.compiling[n], passes: units.passes[n], rewrites: units.rewrites[n], run: times.get(n) }));
    const search = make("input", { type: "search", placeholder: "name ( / )", "aria-label": "Search" });
    const holder = make("div", { class: "page" });
    const columns = [
      { title: "number", value: (row) => row.n, show: (row) => `${row.n}`, kind: "number" },
      { title: "kind", value: (row) => row.kind, show: (row) => row.kind },
      { title: "name", value: (row) => row.name, show: (row) => make("a", { href: `#unit/${row.n}`, tabindex: -1 }, row.name), kind: "name" },
      overview.run && { title: "run, in all", value: (row) => row.run?.busy ?? 0, show: (row) => (row.run ? nanoseconds(row.run.busy) : ""), kind: "number" },
      overview.run && { title: "launches", value: (row) => row.run?.calls ?? 0, show: (row) => (row.run ? text.count(row.run.calls) : ""), kind: "number" },
      { title: "lowering", value: (row) => row.seconds, show: (row) => seconds(row.seconds), kind: "number", about: "time in our passes" },
      { title: "compiling", value: (row) => row.compiling, show: (row) => seconds(row.compiling), kind: "number", about: "time of the device's compiler, the passes included" },
      { title: "passes", value: (row) => row.passes, show: (row) => `${row.passes}`, kind: "number" },
      { title: "rewrites", value: (row) => row.rewrites, show: (row) => text.count(row.rewrites), kind: "number" },
    ].filter(Boolean);
    const fill = () => holder.replaceChildren(table({
      label: "schedules and kernels", columns, rows: rows.filter((row) => row.name.toLowerCase().includes(search.value.trim().toLowerCase())),
      go: (row) => (location.hash = `#unit/${row.n}`), sort: overview.run ? 3 : 0,
    }));
    search.addEventListener("input", fill);
    search.addEventListener("keydown", (event) => event.key === "Enter" && holder.querySelector("tr[tabindex='0']")?.focus());
    fill();
    const view = make("div", { class: "split" }, make("div", { class: "wide" }, make("div", { class: "bar" }, search,
      make("span", { class: "soft" }, `${text.plural(rows.length, "schedule or kernel").replace("kernels", "kernels").replace("schedule or", rows.length === 1 ? "schedule or" : "schedules and")}, ${text.plural(overview.rewrites, "rewrite")}`)), holder));
    return Object.assign(view, { search, focusOn: holder.querySelector("tr[tabindex='0']") });
  }

  // *** one of them ***

  /** The way from the tensor graph to the code, with where we are. */
  function way(overview, number, unit, here) {
    const step = (title, href, current) => make("a", { class: "step", href, "aria-current": current ? "step" : undefined }, title);
    const steps = [];
    if (unit.kind === "schedule") {
      steps.push(step("tensor graph", `#unit/${number}/graph`, here === "graph"), step(`schedule ${number}`, `#unit/${number}`, here === "unit"));
      if (unit.calls.length) steps.push(step(text.plural(unit.calls.length, "kernel"), `#unit/${number}/calls`, here === "calls"));
    } else {
      const [caller] = unit.callers;
      if (caller !== undefined) steps.push(step("tensor graph", `#unit/${caller}/graph`), step(`schedule ${caller}`, `#unit/${caller}/calls`));
      steps.push(step(`${unit.kind} ${unit.name}`, `#unit/${number}/graph`, here === "graph"), step("passes", `#unit/${number}`, here === "unit"));
      if (unit.code) steps.push(step("code", `#unit/${number}/code`, here === "code"));
    }
    return make("div", { class: "path", role: "navigation", "aria-label": "From tensors to code" }, steps.flatMap((each, n) => (n ? ["→", each] : [each])));
  }

  async function unit(overview, [id, what = "", which]) {
    const number = Number(id);
    const found = await data.get(`unit/${number}`);
    if (what === "code") return code(overview, number, found);
    if (what === "graph") return whole(overview, number, found);
    if (what === "calls") return calls(overview, number, found);
    return passes(overview, number, found, what === "pass" ? Number(which) : defaultPass(found));
  }

  /** The pass that did most, to begin with. */
  function defaultPass(found) {
    let best = 0;
    found.passes.forEach((each, n) => {
      if (each.before !== each.after && each.rewrites > (found.passes[best].before !== found.passes[best].after ? found.passes[best].rewrites : -1)) best = n;
    });
    return best;
  }

  async function passes(overview, number, found, which) {
    const rows = found.passes.map((each, n) => ({ n, ...each }));
    const list = table({
      label: "passes", rows, go: (row) => (location.hash = `#unit/${number}/pass/${row.n}`), current: (row) => row.n === which,
      columns: [
        { title: "pass", show: (row) => (row.before === row.after ? make("span", { class: "soft" }, row.name) : row.name), kind: "name" },
        { title: "time", show: (row) => seconds(row.seconds), kind: "number" },
        { title: "rewrites", show: (row) => (row.rewrites ? text.count(row.rewrites) : ""), kind: "number" },
        { title: "nodes", show: (row) => (row.before === null || row.after === null ? "" : row.nodes[0] === row.nodes[1] ? `${row.nodes[1]}` : `${row.nodes[0]} → ${row.nodes[1]}`), kind: "number" },
      ],
    });
    const note = make("p", { class: "soft filler" }, `${seconds(found.seconds)} in ${text.plural(rows.length, "pass").replace("passs", "passes")}${found.compiling === null ? "" : ` of ${seconds(found.compiling)} of compiling`}`);
    const left = make("aside", { class: "left" }, note, list);
    const right = rows.length ? await onePass(overview, number, found, which) : make("p", { class: "page" }, "No pass of it is in the trace.");
    const view = make("div", { class: "split" }, left, right);
    const all = make("div", { class: "split", style: { flexDirection: "column" } }, make("div", { class: "bar" }, way(overview, number, found, "unit")), view);
    setTimeout(() => left.querySelector("tr.current")?.scrollIntoView({ block: "nearest" }));
    return Object.assign(all, { search: right.search, focusOn: left.querySelector("tr.current") || left.querySelector("tr[tabindex]"), graph: right.graph });
  }

  /** One pass: the graph with what it changed, the difference as text, and its rewrites. */
  async function onePass(overview, number, found, which) {
    const chosen = await data.get(`pass/${number}/${which}`);
    const body = make("div", { class: "wide" });
    const right = make("div", { class: "wide" });
    const tools = make("span", { class: "path" });
    const about = make("aside");
    const modes = { after: "graph after", before: "graph before", difference: "difference", rewrites: `rewrites (${chosen.steps.length + chosen.left_out})` };
    const buttons = Object.entries(modes).map(([mode, title]) => make("button", { type: "button", "aria-pressed": "false", onclick: () => ((onePass.mode = mode), show(mode)) }, title));
    async function show(mode) {
      buttons.forEach((button, n) => button.setAttribute("aria-pressed", String(Object.keys(modes)[n] === mode)));
      tools.replaceChildren();
      right.search = right.graph = undefined;
      try {
        if (mode === "rewrites") body.replaceChildren(...rewrites(chosen, tools, right));
        else if (mode === "difference") body.replaceChildren(make("div", { class: "page" }, make("p", { class: "soft" }, chosen.summary), text.diff(chosen.diff)));
        else {
          const node = chosen[mode];
          if (node === null) throw new Error("The trace does not have this graph: the pass raised, or the trace ends before it.");
          const [answer, marks] = await Promise.all([data.get(`graph/${node}`), graph.changes(chosen.before, chosen.after)]);
          const drawn = graph.view(answer, marks, about);
          if (drawn.search) tools.replaceChildren(drawn.search, drawn.counted, marks.size ? make("button", { type: "button", title: "go to the next node that changed (c)", onclick: drawn.next }, "next change") : "", make("button", { type: "button", title: "all of the graph (0)", onclick: drawn.all }, "all"));
          right.search = drawn.search;
          right.graph = drawn;
          body.replaceChildren(make("div", { class: "split" }, drawn, about));
        }
      } catch (problem) {
        body.replaceChildren(make("p", { class: "error" }, problem.message));
      }
    }
    right.append(make("div", { class: "bar" }, make("b", { class: "mono" }, chosen.name), buttons, make("span", { class: "space" }), tools), body);
    await show(onePass.mode && (onePass.mode !== "rewrites" || chosen.steps.length) ? onePass.mode : "after");
    return right;
  }

  /** The rewrites of a pass; rules are chips that filter them. */
  function rewrites(chosen, tools, right) {
    const rules = new Map();
    chosen.steps.forEach((step) => rules.set(step[2], (rules.get(step[2]) || 0) + 1));
    const search = make("input", { type: "search", placeholder: "rule or node ( / )", "aria-label": "Search the rewrites" });
    let rule = null;
    const holder = make("div", { class: "page" });
    const chips = [...rules].sort((a, b) => b[1] - a[1]).map(([name, count]) => make("button", {
      type: "button", class: "chip mono", "aria-pressed": "false",
      onclick: () => {
        rule = rule === name ? null : name;
        chips.forEach((chip, n) => chip.setAttribute("aria-pressed", String([...rules].sort((a, b) => b[1] - a[1])[n][0] === rule)));
        fill();
      },
    }, `${name} ${count}`));
    function fill() {
      const words = search.value.trim().toLowerCase();
      const rows = chosen.steps.filter((step) => (rule === null || step[2] === rule) && `${step[2]} ${step[3]} ${step[4]}`.toLowerCase().includes(words));
      holder.replaceChildren(rows.length ? stepTable(rows) : make("p", { class: "soft" }, chosen.steps.length ? "No rewrite is like this." : "This pass made no rewrites."));
      if (rule !== null && rows.length) holder.prepend(make("p", {}, make("a", { href: `#rule/${rows[0][6]}` }, `what ${rule} does`)));
      if (chosen.left_out) holder.append(make("p", { class: "soft" }, `${text.count(chosen.left_out)} more are not shown.`));
    }
    search.addEventListener("input", fill);
    tools.replaceChildren(search);
    right.search = search;
    fill();
    return [chips.length ? make("div", { class: "bar" }, chips) : "", holder];
  }

  function stepTable(rows) {
    return table({
      label: "rewrites", rows, go: (row) => (location.hash = `#rewrite/${row[0]}`),
      columns: [
        { title: "number", value: (row) => row[0], show: (row) => `${row[0]}`, kind: "number" },
        { title: "rule", value: (row) => row[2], show: (row) => make("a", { href: `#rule/${row[6]}`, tabindex: -1 }, row[2]), kind: "name short" },
        { title: "before", show: (row) => row[3], kind: "name" }, { title: "after", show: (row) => row[4], kind: "name" },
        { title: "time", value: (row) => row[5], show: (row) => nanoseconds(row[5] * 1000), kind: "number" },
      ],
    });
  }

  // *** one rewrite ***

  async function rewrite(overview, [id]) {
    const number = Number(id);
    const found = await data.get(`rewrite/${number}`);
    const unitOf = found.unit === null ? null : await data.get(`unit/${found.unit}`);
    const back = found.unit === null ? "" : make("a", { class: "step", href: found.pass === null ? `#unit/${found.unit}` : `#unit/${found.unit}/pass/${found.pass}` }, found.pass === null ? "passes" : `pass ${unitOf.passes[found.pass].name}`);
    const move = (by, title, key) => make("button", { type: "button", disabled: number + by < 0 || number + by >= found.count, title: `${title} (${key})`, onclick: () => (location.hash = `#rewrite/${number + by}`) }, title);
    const about = make("aside");
    const pictures = make("div", { class: "split" });
    const sides = make("div", { class: "path" }, ["before", "after"].map((side) => make("button", { type: "button", "aria-pressed": "false", onclick: () => draw(side) }, side)));
    async function draw(side) {
      [...sides.children].forEach((button) => button.setAttribute("aria-pressed", String(button.textContent === side)));
      const [answer, marks] = await Promise.all([data.get(`graph/${found[side]}`), graph.changes(found.before, found.after)]);
      pictures.replaceChildren(graph.view(answer, marks, about), about);
    }
    const top = make("div", { class: "page", style: { flex: "none", maxHeight: "55%" } },
      make("h2", {}, `Rewrite ${number} of ${text.count(found.count)}: `, make("a", { href: `#rule/${found.rule_number}`, class: "mono" }, found.rule)),
      make("p", { class: "soft" }, `${found.path}; ${found.place}; ${seconds(found.seconds)}`),
      make("dl", {}, make("dt", {}, "before"), make("dd", { class: "mono" }, found.short[0]), make("dt", {}, "after"), make("dd", { class: "mono" }, found.short[1])),
      make("p", { class: "soft" }, found.summary), text.diff(found.diff));
    const view = make("div", { class: "wide" }, make("div", { class: "bar" }, make("div", { class: "path" }, unitOf ? way(overview, found.unit, unitOf, "") : "", back ? ["→", back] : ""), make("span", { class: "space" }),
      move(-1, "previous", "k"), move(1, "next", "j")), top, make("div", { class: "bar" }, sides), pictures);
    await draw("after").catch((problem) => pictures.replaceChildren(make("p", { class: "error" }, problem.message)));
    const holder = make("div", { class: "split" }, view);
    holder.keys = { j: () => number + 1 < found.count && (location.hash = `#rewrite/${number + 1}`), k: () => number > 0 && (location.hash = `#rewrite/${number - 1}`) };
    holder.focusOn = top.querySelector("pre");
    return holder;
  }

  // *** graph, calls, code ***

  async function whole(overview, number, found) {
    const about = make("aside");
    if (found.before === null) throw new Error("The trace does not have this graph.");
    const drawn = graph.view(await data.get(`graph/${found.before}`), new Map(), about);
    const view = make("div", { class: "split", style: { flexDirection: "column" } }, make("div", { class: "bar" }, way(overview, number, found, "graph"), make("span", { class: "space" }), drawn.search || "", drawn.counted || ""),
      make("div", { class: "split" }, drawn, about));
    return Object.assign(view, { search: drawn.search, focusOn: drawn.focusOn, graph: drawn });
  }

  async function calls(overview, number, found) {
    const list = table({
      label: "kernels", rows: found.calls.map((call, n) => ({ n, ...call })), go: (row) => (location.hash = row.unit === null ? `#graph/${row.node}` : `#unit/${row.unit}`),
      columns: [
        { title: "number", value: (row) => row.n, show: (row) => `${row.n}`, kind: "number" },
        { title: "kernel", value: (row) => row.name, show: (row) => row.name, kind: "name" },
        { title: "compiled", show: (row) => (row.unit === null ? "not in this trace" : `unit ${row.unit}`) },
      ],
    });
    const view = make("div", { class: "split", style: { flexDirection: "column" } }, make("div", { class: "bar" }, way(overview, number, found, "calls")), make("div", { class: "page" }, list));
    return Object.assign(view, { focusOn: list.querySelector("tr[tabindex='0']") });
  }

  async function code(overview, number, found) {
    const listing = text.code(found.code || "");
    const loops = found.loops || [];
    const lines = [...listing.children];
    const side = make("aside", {}, make("h2", {}, "Loops of the machine code"), loops.length ? table({
      label: "loops", rows: loops,
      columns: [
        { title: "share", value: (row) => row[0], show: (row) => text.percent(row[0]), kind: "number" },
        { title: "loop", show: (row) => row[1], kind: "name" },
        { title: "instr.", value: (row) => row[2], show: (row) => text.count(row[2]), kind: "number", about: "instructions" },
        { title: "fma", value: (row) => row[3], show: (row) => text.count(row[3]), kind: "number", about: "multiply-adds among them" },
        { title: "what it does", show: (row) => row[5] },
      ],
    }) : make("p", { class: "soft" }, "The trace does not say where its time goes, loop by loop: hatch run hot-loops --trace records that, of the benchmark's kernels."));
    const run = overview.run ? await runOf(overview, number) : "";
    side.append(run);
    const view = make("div", { class: "split", style: { flexDirection: "column" } }, make("div", { class: "bar" }, way(overview, number, found, "code"), make("span", { class: "space" }), make("span", { class: "soft" }, text.plural(lines.length, "line"))),
      make("div", { class: "split" }, make("div", { class: "page" }, found.code ? listing : "The trace has no code of it."), side));
    return Object.assign(view, { focusOn: listing });
  }

  async function runOf(overview, unit) {
    const all = await records.load(overview);
    const name = overview.units.name[unit];
    const rows = records.work(all).filter((row) => all.text("name", row) === name && records.unitOf(overview, all, row) === unit);
    if (!rows.length) return "";
    const [sum] = records.sums(all, rows, () => "");
    const places = [...new Set(rows.flatMap((row) => all.origins[row]))].map((n) => all.where[n]);
    return make("div", {}, make("h2", {}, "In the run"), make("dl", {}, [
      ["launches", text.count(sum.calls)], ["time", `${nanoseconds(sum.busy)}, ${nanoseconds(Math.round(sum.busy / sum.calls))} each`],
      ["operations", text.rate(sum.ops, sum.busy, "FLOPS")], ["traffic", text.rate(sum.nbytes, sum.busy, "B/s")],
    ].filter((fact) => fact[1]).map(([title, value]) => [make("dt", {}, title), make("dd", {}, value)])),
    places.length ? make("h3", {}, "for") : "", places.slice(0, 12).map((origin) => make("div", {}, [origin[3], origin[4], text.place(origin)].filter(Boolean).join(", "))));
  }

  async function alone(overview, [node]) {
    const about = make("aside");
    const drawn = graph.view(await data.get(`graph/${node}`), new Map(), about);
    return Object.assign(make("div", { class: "split" }, drawn, about), { search: drawn.search, focusOn: drawn.focusOn, graph: drawn });
  }

  return { list, unit, rewrite, alone, stepTable };
})();
