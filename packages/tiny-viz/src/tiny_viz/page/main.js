// Which view is shown, by the part of the address behind #; and keys that work everywhere.
(async () => {
  const { make } = text;
  const holder = document.getElementById("view"), tabs = document.getElementById("tabs"), help = document.getElementById("help");
  let shown = null, turn = 0;

  function failed(problem) {
    holder.replaceChildren(make("p", { class: "error", role: "alert" }, problem.message));
  }

  let overview;
  try {
    overview = await data.get("overview");
  } catch (problem) {
    return failed(problem);
  }
  const VIEWS = {
    timeline: timeline.view, layers: layers.view, compiler: compiler.list, unit: compiler.unit, rewrite: compiler.rewrite, graph: compiler.alone,
    rules: rules.list, rule: rules.one, compare: compare.view, counters: counters.one,
  };
  const TABS = [
    ["timeline", "Timeline"], overview.run?.records && ["layers", "Layers"], ["compiler", "Compiler", "unit", "rewrite", "graph"], ["rules", "Rules", "rule"],
    overview.other && ["compare", "Compare"], overview.run?.counted.length && ["counters", "Counters"],
  ].filter(Boolean);
  const first = overview.other ? "compare" : overview.run?.records ? "timeline" : "compiler";

  document.title = `${overview.name || overview.program} – tiny-viz`;
  document.getElementById("program").textContent = [overview.name, overview.program].filter(Boolean).join(" · ");
  tabs.append(...TABS.map(([name, title], n) => make("a", { href: `#${name}`, title: `key ${n + 1}` }, title)));
  const warnings = overview.warnings.map((warning) => make("div", { class: "warn", role: "status" }, warning));
  holder.before(...warnings);

  async function show() {
    const mine = ++turn;
    const [name, ...parts] = (location.hash.slice(1) || first).split("/");
    TABS.forEach(([tab, , ...others], n) => {
      if ([tab, ...others].includes(name)) tabs.children[n].setAttribute("aria-current", "page");
      else tabs.children[n].removeAttribute("aria-current");
    });
    const view = Object.hasOwn(VIEWS, name) ? VIEWS[name] : null;
    try {
      if (!view) throw new Error(`There is no view ${name}.`);
      const made = await view(overview, parts);
      if (mine !== turn) return; // another one was asked for meanwhile
      shown = made;
      holder.replaceChildren(made);
      holder.dataset.shown = location.hash.slice(1) || first;
      (made.focusOn || holder).focus({ preventScroll: true });
    } catch (problem) {
      if (mine === turn) {
        failed(problem);
        holder.dataset.shown = location.hash.slice(1);
      }
    }
  }

  const KEYS = [
    ["1 … 6", "the views"], ["/", "search"], ["↑ ↓ ← →", "rows, nodes, or through time"], ["Enter", "open what is chosen"], ["Backspace", "back"],
    ["+ −", "zoom"], ["w a s d", "zoom and move"], ["0", "all of it"], ["n p", "next and previous event, or search hit"], ["[ ]", "begin and end of a selection (timeline)"],
    ["m", "what is in memory (timeline)"], ["f", "as large as it can be read"], ["c", "the next node that changed (graph)"], ["j k", "next and previous rewrite"],
    ["Esc", "nothing chosen, nothing searched"], ["?", "these keys"],
  ];
  help.append(make("h2", {}, "Keys"), make("dl", {}, KEYS.map(([key, what]) => [make("dt", {}, make("kbd", {}, key)), make("dd", {}, what)])),
    make("p", { class: "soft" }, "With a mouse: the wheel zooms, with Shift it scrolls the timeline; dragging selects a time, or moves a graph."),
    make("button", { type: "button", onclick: () => help.close() }, "close"));
  document.getElementById("keys").addEventListener("click", () => help.showModal());

  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || help.open) return;
    const writing = /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName);
    if (writing) return;
    if (/^[1-9]$/.test(event.key) && TABS[event.key - 1]) location.hash = `#${TABS[event.key - 1][0]}`;
    else if (event.key === "/" && shown?.search) {
      shown.search.focus();
      shown.search.select();
    } else if (event.key === "?") help.showModal();
    else if (event.key === "Backspace") history.back();
    else if (shown?.keys && event.key in shown.keys) shown.keys[event.key]();
    else return;
    event.preventDefault();
  });
  addEventListener("hashchange", show);
  // for tests, and for the curious in the console
  window.viz = { overview, get: data.get, view: () => shown };
  await show();
})();
