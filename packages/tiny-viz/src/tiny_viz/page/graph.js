// A graph on a canvas: its places come with it, as Python lays graphs out.
const graph = (() => {
  const { make } = text;
  const ROW = 64, TALL = 34;
  const HUES = { BUFFER: 150, PARAM: 150, SINK: 0, LINEAR: 0, CALL: 262, LOAD: 45, STORE: 20, AFTER: 20, INDEX: 200, RANGE: 285, REDUCE: 320, VARIABLE: 170, COPY: 75 };

  /**
   * A view of an answer `graph/N`. `changes`: numbers of nodes → "added", "removed" or "changed", which are marked.
   * `about`: an element in which the chosen node is described.
   */
  function view(answer, changes = new Map(), about = make("div")) {
    if (answer.too_large) {
      return make("p", { class: "page" }, `This graph has ${text.count(answer.count)} nodes, more than the ${text.count(answer.too_large)} that are drawn: python -m tiny_viz TRACE --graph prints it.`);
    }
    const size = answer.id.length;
    const place = new Map(answer.id.map((number, node) => [number, node]));
    const y = answer.layer.map((layer) => 24 + layer * ROW);
    const users = answer.id.map(() => []), sources = answer.id.map(() => []);
    for (let i = 0; i < answer.edges.length; i += 2) {
      users[answer.edges[i]].push(answer.edges[i + 1]);
      sources[answer.edges[i + 1]].push(answer.edges[i]);
    }
    const layers = [];
    answer.layer.forEach((layer, node) => (layers[layer] ??= []).push(node));
    layers.forEach((row) => row.sort((a, b) => answer.x[a] - answer.x[b]));
    const extent = [Math.max(...answer.x.map((x, n) => x + answer.width[n] / 2), 1), y.reduce((a, b) => Math.max(a, b), 0) + 48];
    let zoom = 0, left = 0, top = 0, chosen = -1, found = null;
    const { holder, element, redraw, hint } = text.canvas("Graph. Arrows go to sources, users and neighbours; plus and minus zoom; c goes to the next change.", draw);
    const search = make("input", { type: "search", placeholder: "operation, type or argument ( / )", "aria-label": "Search the graph", size: 26 });
    const counted = make("span", { class: "soft" });

    function fit() {
      const { clientWidth: wide, clientHeight: tall } = holder;
      zoom = Math.min(1.2, wide / (extent[0] + 40), tall / (extent[1] + 40));
      left = extent[0] / 2 - wide / zoom / 2;
      top = (extent[1] - tall / zoom) / 2;
      if (zoom < 0.5) {
        // too large to be read in one piece: its end, where its root is
        zoom = 0.7;
        left = answer.x[size - 1] - wide / zoom / 2;
        top = extent[1] - tall / zoom + 10;
      }
      redraw();
    }

    function whole() {
      zoom = Math.min(1.2, holder.clientWidth / (extent[0] + 40), holder.clientHeight / (extent[1] + 40));
      left = extent[0] / 2 - holder.clientWidth / zoom / 2;
      top = extent[1] / 2 - holder.clientHeight / zoom / 2;
      redraw();
    }

    function draw(context, wide, tall) {
      if (!zoom) return fit();
      const colours = text.colours();
      const px = (x) => (x - left) * zoom, py = (at) => (at - top) * zoom;
      const bend = zoom > 0.25;
      context.lineWidth = Math.min(1, Math.max(0.3, zoom));
      context.strokeStyle = colours.soft;
      context.globalAlpha = size > 3000 ? 0.25 : 0.45;
      context.beginPath();
      for (let i = 0; i < answer.edges.length; i += 2) {
        // in a large graph the long ones hide all else: they are drawn for the chosen node
        if (size < 600 || answer.layer[answer.edges[i + 1]] - answer.layer[answer.edges[i]] < 9) edge(answer.edges[i], answer.edges[i + 1]);
      }
      context.stroke();
      context.globalAlpha = 1;
      if (chosen >= 0) {
        context.strokeStyle = colours.accent;
        context.lineWidth = 2;
        context.beginPath();
        sources[chosen].forEach((source) => edge(source, chosen));
        users[chosen].forEach((user) => edge(chosen, user));
        context.stroke();
      }
      function edge(a, b) {
        const x1 = px(answer.x[a]), y1 = py(y[a] + TALL), x2 = px(answer.x[b]), y2 = py(y[b]);
        if ((y1 < 0 && y2 < 0) || (y1 > tall && y2 > tall) || (x1 < 0 && x2 < 0) || (x1 > wide && x2 > wide)) return;
        context.moveTo(x1, y1);
        if (bend) context.bezierCurveTo(x1, y1 + 14 * zoom, x2, y2 - 14 * zoom, x2, y2);
        else context.lineTo(x2, y2);
      }
      const letters = zoom > 0.42;
      const mono = "ui-monospace, 'SF Mono', Menlo, Consolas, 'Liberation Mono', 'DejaVu Sans Mono', monospace";
      for (let node = 0; node < size; node++) {
        const width = answer.width[node] * zoom, x = px(answer.x[node]) - width / 2, at = py(y[node]);
        if (x > wide || x + width < 0 || at > tall || at + TALL * zoom < 0) continue;
        const mark = changes.get(answer.id[node]);
        const op = answer.op[node], hue = HUES[op] ?? 215, plain = !(op in HUES);
        context.globalAlpha = found && !found.has(node) ? 0.25 : 1;
        context.fillStyle = colours.dark ? `hsl(${hue} ${plain ? 12 : 32}% ${plain ? 24 : 28}%)` : `hsl(${hue} ${plain ? 20 : 60}% ${plain ? 94 : 89}%)`;
        context.fillRect(x, at, width, TALL * zoom);
        context.lineWidth = node === chosen ? 2.5 : mark ? 2 : 1;
        context.strokeStyle = node === chosen ? colours.accent : mark ? (mark === "removed" ? colours.minus_ink : mark === "added" ? colours.plus_ink : colours.changed) : colours.line;
        if (mark === "removed") context.setLineDash([4, 3]);
        context.strokeRect(x, at, width, TALL * zoom);
        context.setLineDash([]);
        if (letters) {
          context.textAlign = "center";
          context.fillStyle = colours.ink;
          context.font = `600 ${11 * zoom}px ${mono}`;
          context.fillText(op, x + width / 2, at + (answer.label[node] ? 14 : 21) * zoom);
          context.font = `${10 * zoom}px ${mono}`;
          context.fillStyle = colours.soft;
          context.fillText(answer.label[node], x + width / 2, at + 27 * zoom);
          context.textAlign = "start";
        }
        context.globalAlpha = 1;
      }
    }

    function centre(node) {
      left = answer.x[node] - holder.clientWidth / zoom / 2;
      top = y[node] - holder.clientHeight / zoom / 2;
    }

    function choose(node, reveal) {
      chosen = node;
      if (reveal) {
        if (zoom < 0.45) zoom = 0.8;
        const x = (answer.x[node] - left) * zoom, at = (y[node] - top) * zoom;
        if (x < 60 || at < 30 || x > holder.clientWidth - 60 || at > holder.clientHeight - 60) centre(node);
      }
      describe();
      redraw();
    }

    function describe() {
      if (chosen < 0) return about.replaceChildren(overview());
      const link = (number) => {
        const node = place.get(number);
        if (node === undefined) return make("div", { class: "mono" }, `CONST ${answer.constants[number] ?? ""}`);
        return make("div", {}, make("a", { href: "#", class: "mono", onclick: (event) => (event.preventDefault(), choose(node, true), element.focus()) }, `${answer.op[node]} ${answer.label[node]}`));
      };
      const unit = answer.unit[chosen];
      about.replaceChildren(make("h2", { class: "mono" }, answer.op[chosen]), make("dl", {},
        make("dt", {}, "type"), make("dd", { class: "mono" }, answer.dtype[chosen]),
        answer.arg[chosen] ? [make("dt", {}, "argument"), make("dd", { class: "mono" }, answer.arg[chosen].slice(0, 2000))] : [],
        make("dt", {}, "number"), make("dd", {}, `${answer.id[chosen]}`),
        changes.get(answer.id[chosen]) ? [make("dt", {}, "here"), make("dd", {}, changes.get(answer.id[chosen]))] : []),
      unit === null ? "" : make("p", {}, make("a", { href: `#unit/${unit}` }, "this kernel in the compiler")),
      make("h3", {}, text.plural(answer.src[chosen].length, "source")), ...answer.src[chosen].slice(0, 60).map(link),
      make("h3", {}, text.plural(users[chosen].length, "user")), ...users[chosen].slice(0, 60).map((user) => link(answer.id[user])));
    }

    function overview() {
      const counts = new Map();
      answer.op.forEach((op) => counts.set(op, (counts.get(op) || 0) + 1));
      const list = [...counts].sort((a, b) => b[1] - a[1]).map(([op, count]) => make("button", { type: "button", class: "chip mono", onclick: () => ((search.value = op), look()) }, `${op} ${count}`));
      const marks = [...changes.values()].reduce((sums, mark) => ({ ...sums, [mark]: (sums[mark] || 0) + 1 }), {});
      return make("div", {}, make("h2", {}, text.plural(answer.count, "node")), make("div", {}, list),
        changes.size ? make("p", {}, Object.entries(marks).map(([mark, count]) => `${count} ${mark}`).join(", ")) : "");
    }

    function look() {
      const words = search.value.trim().toLowerCase();
      const hit = (node) => `${answer.op[node]} ${answer.dtype[node]} ${answer.arg[node]} ${answer.label[node]}`.toLowerCase().includes(words);
      found = words ? new Set([...Array(size).keys()].filter(hit)) : null;
      counted.textContent = found ? text.plural(found.size, "node") : "";
      redraw();
    }

    /** The next of some nodes after the chosen one. */
    function next(nodes) {
      if (nodes.length) choose(nodes.find((node) => node > chosen) ?? nodes[0], true);
    }

    function at(event) {
      const x = event.offsetX / zoom + left, high = event.offsetY / zoom + top;
      for (let node = size - 1; node >= 0; node--) {
        if (Math.abs(x - answer.x[node]) <= answer.width[node] / 2 && high >= y[node] && high <= y[node] + TALL) return node;
      }
      return -1;
    }

    function scale(factor, x = holder.clientWidth / 2, high = holder.clientHeight / 2) {
      const wanted = Math.max(0.005, Math.min(3, zoom * factor));
      left += x / zoom - x / wanted;
      top += high / zoom - high / wanted;
      zoom = wanted;
      redraw();
    }

    function beside(by) {
      const row = layers[answer.layer[chosen]];
      return row[Math.max(0, Math.min(row.length - 1, row.indexOf(chosen) + by))];
    }

    const nearest = (nodes) => nodes.reduce((best, node) => (best < 0 || Math.abs(answer.x[node] - answer.x[chosen]) < Math.abs(answer.x[best] - answer.x[chosen]) ? node : best), -1);
    const go = (node) => choose(chosen < 0 ? size - 1 : node < 0 || node === undefined ? chosen : node, true);
    const keys = {
      ArrowUp: () => go(chosen < 0 ? 0 : nearest(sources[chosen])), ArrowDown: () => go(chosen < 0 ? 0 : nearest(users[chosen])),
      ArrowLeft: () => go(chosen < 0 ? 0 : beside(-1)), ArrowRight: () => go(chosen < 0 ? 0 : beside(1)),
      "+": () => scale(1.25), "=": () => scale(1.25), "-": () => scale(0.8), 0: whole, f: fit,
      w: () => ((top -= 60 / zoom), redraw()), s: () => ((top += 60 / zoom), redraw()), a: () => ((left -= 60 / zoom), redraw()), d: () => ((left += 60 / zoom), redraw()),
      c: () => next([...Array(size).keys()].filter((node) => changes.has(answer.id[node]))),
      n: () => found && next([...found].sort((a, b) => a - b)),
      Enter: () => chosen >= 0 && answer.unit[chosen] !== null && (location.hash = `#unit/${answer.unit[chosen]}`),
      Escape: () => ((chosen = -1), (found = null), (search.value = counted.textContent = ""), describe(), redraw()),
    };
    element.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || !(event.key in keys)) return;
      keys[event.key]();
      event.preventDefault();
    });
    let drag = null;
    element.addEventListener("pointerdown", (event) => {
      element.setPointerCapture(event.pointerId);
      drag = { x: event.offsetX, y: event.offsetY, left, top, moved: false };
    });
    element.addEventListener("pointermove", (event) => {
      if (!drag) {
        const node = at(event);
        return hint(event, node < 0 || zoom > 0.75 ? "" : `${answer.op[node]} ${answer.label[node]}`);
      }
      if (Math.hypot(event.offsetX - drag.x, event.offsetY - drag.y) > 3) drag.moved = true;
      if (!drag.moved) return;
      left = drag.left - (event.offsetX - drag.x) / zoom;
      top = drag.top - (event.offsetY - drag.y) / zoom;
      redraw();
    });
    element.addEventListener("pointerup", (event) => {
      if (drag && !drag.moved) choose(at(event));
      drag = null;
    });
    element.addEventListener("wheel", (event) => {
      event.preventDefault();
      scale(1.0015 ** -event.deltaY, event.offsetX, event.offsetY);
    }, { passive: false });
    search.addEventListener("input", look);
    search.addEventListener("keydown", (event) => {
      if (event.key === "Enter") keys.n();
      if (event.key === "Escape") (keys.Escape(), element.focus());
    });
    describe();
    const made = make("div", { class: "wide" }, holder);
    Object.assign(made, { search, counted, focusOn: element, next: keys.c, all: whole });
    // for tests: where a node is drawn
    made.at = (op) => {
      const node = answer.op.lastIndexOf(op);
      return node < 0 ? null : { x: (answer.x[node] - left) * zoom, y: (y[node] + TALL / 2 - top) * zoom, zoom };
    };
    return made;
  }

  /** Which nodes differ between two graphs, for `view`. */
  async function changes(before, after) {
    const marks = new Map();
    if (before === null || after === null || before === after) return marks;
    const found = await data.get(`changes/${before}/${after}`);
    for (const kind of ["removed", "added", "changed"]) found[kind].forEach((number) => marks.set(number, kind));
    return marks;
  }

  return { view, changes };
})();
