// What the hardware told of a launch: counters, and the instructions of its waves (VIZ=-2).
const counters = (() => {
  const { make } = text;
  const ROW = 20, GUTTER = 190, AXIS = 24;

  async function list(overview) {
    const all = await records.load(overview);
    const rows = overview.run.counted.map((record) => ({ record, row: all.record.indexOf(record) }));
    const made = table({
      label: "launches with counters", rows, go: (each) => (location.hash = `#counters/${each.record}`),
      columns: [
        { title: "record", value: (each) => each.record, show: (each) => `${each.record}`, kind: "number" },
        { title: "kernel", value: (each) => all.text("name", each.row), show: (each) => all.text("name", each.row), kind: "name" },
        { title: "device", show: (each) => all.text("device", each.row) },
        { title: "time", value: (each) => all.busy[each.row], show: (each) => text.nanoseconds(all.busy[each.row]), kind: "number" },
      ],
    });
    return Object.assign(make("div", { class: "page" }, make("h2", {}, "Launches that the hardware counted"), made), { focusOn: made.querySelector("tr[tabindex='0']") });
  }

  async function one(overview, [number]) {
    if (number === undefined) return list(overview);
    const found = await data.get(`waves/${number}`);
    const names = Object.entries(found.counters);
    const side = make("aside");
    if (names.length) {
      side.append(make("h2", {}, "Counters"), table({
        label: "counters", rows: names, columns: [
          { title: "counter", value: (row) => row[0], show: (row) => row[0], kind: "name" },
          { title: "value", value: (row) => row[1], show: (row) => text.count(row[1]), kind: "number" },
        ],
      }));
    }
    const about = make("div");
    side.append(about);
    const title = make("div", { class: "bar" }, make("b", { class: "mono" }, found.name), make("span", { class: "soft" }, `record ${number}, ${text.plural(found.waves.length, "wave")}`));
    if (!found.waves.length) return make("div", { class: "split" }, make("div", { class: "wide" }, title), side);
    const { drawn, choose } = waves(found, about);
    const view = make("div", { class: "split" }, make("div", { class: "wide" }, title, drawn.holder, make("div", { class: "page" }, instructions(found, choose))), side);
    return Object.assign(view, { focusOn: drawn.element });
  }

  /** Per instruction, over all waves: how often, for how long, and how much of that it waited. */
  function instructions(found, choose) {
    const sums = new Map();
    for (const wave of found.waves) {
      const lines = new Map(found.code[wave.code]);
      for (const [, duration, stalled, address] of wave.rows) {
        const key = `${wave.code} ${address}`;
        const sum = sums.get(key) || { address, words: lines.get(address) ?? "", hits: 0, cycles: 0, stalled: 0 };
        sum.hits++;
        sum.cycles += duration;
        sum.stalled += stalled;
        sums.set(key, sum);
      }
    }
    return table({
      label: "instructions", rows: [...sums.values()].sort((a, b) => a.address - b.address), go: (row) => choose(row.address),
      columns: [
        { title: "address", value: (row) => row.address, show: (row) => row.address.toString(16).padStart(4, "0"), kind: "name" },
        { title: "instruction", value: (row) => row.words, show: (row) => row.words, kind: "name" },
        { title: "hits", value: (row) => row.hits, show: (row) => text.count(row.hits), kind: "number" },
        { title: "cycles", value: (row) => row.cycles, show: (row) => text.count(row.cycles), kind: "number" },
        { title: "waiting", value: (row) => row.stalled, show: (row) => text.count(row.stalled), kind: "number" },
      ],
    });
  }

  /** The waves on a canvas, a row each. */
  function waves(found, about) {
    const begin = Math.min(...found.waves.map((wave) => wave.start)), end = Math.max(...found.waves.map((wave) => wave.end));
    let from = begin, to = begin + (end - begin) * 1.01 + 1, scroll = 0, chosen = null, marked = null;
    const drawn = text.canvas("Waves. Arrows move, plus and minus zoom, n and p go from instruction to instruction.", draw);
    drawn.holder.style.flex = `0 1 ${AXIS + found.waves.length * ROW + 6}px`;
    drawn.holder.style.minHeight = "70px";
    const width = () => Math.max(1, drawn.holder.clientWidth - GUTTER);
    const x = (cycle) => GUTTER + ((cycle - from) / (to - from)) * width();
    function draw(context, wide, tall) {
      const colours = text.colours();
      scroll = Math.max(0, Math.min(scroll, AXIS + found.waves.length * ROW - tall));
      context.font = "11px system-ui, 'Liberation Sans', 'DejaVu Sans', sans-serif";
      found.waves.forEach((wave, n) => {
        const y = AXIS + n * ROW - scroll;
        if (y < AXIS - ROW || y > tall) return;
        const lines = new Map(found.code[wave.code]);
        context.fillStyle = colours.panel;
        context.fillRect(Math.max(GUTTER, x(wave.start)), y, x(wave.end) - Math.max(GUTTER, x(wave.start)), ROW - 3);
        wave.rows.forEach(([time, duration, stalled, address], place) => {
          const left = Math.max(GUTTER, x(time)), right = x(time + duration);
          if (right < GUTTER || left > wide) return;
          const words = lines.get(address) ?? "", hue = text.hue(words.split(/[ _]/).slice(0, 2).join("_"));
          context.globalAlpha = marked !== null && marked !== address ? 0.25 : 1;
          context.fillStyle = colours.dark ? `hsl(${hue} 45% 38%)` : `hsl(${hue} 60% 76%)`;
          context.fillRect(left, y, Math.max(1, right - left - 1), ROW - 3);
          if (stalled) {
            // what it waited for is the lower half
            context.fillStyle = colours.peak;
            context.fillRect(left, y + ROW - 7, Math.max(1, x(time + stalled) - left - 1), 4);
          }
          if (right - left > 40) {
            context.fillStyle = colours.ink;
            context.save();
            context.beginPath();
            context.rect(left, y, right - left - 4, ROW);
            context.clip();
            context.fillText(words, left + 3, y + 11);
            context.restore();
          }
          if (chosen && chosen[0] === n && chosen[1] === place) {
            context.strokeStyle = colours.accent;
            context.lineWidth = 2;
            context.strokeRect(left, y, Math.max(2, right - left - 1), ROW - 4);
          }
          context.globalAlpha = 1;
        });
        context.fillStyle = colours.panel;
        context.fillRect(0, y - 1, GUTTER - 2, ROW);
        context.fillStyle = colours.ink;
        context.fillText(wave.place, 8, y + 12);
      });
      context.fillStyle = colours.panel;
      context.fillRect(0, 0, wide, AXIS - 3);
      context.fillStyle = colours.soft;
      for (let part = 0; part < 6; part++) context.fillText(`${text.count(Math.round(from + ((to - from) * part) / 6))}${part ? "" : " cycles"}`, GUTTER + (width() * part) / 6 + 3, 14);
    }
    function show(n, place) {
      chosen = [n, place];
      const wave = found.waves[n], [time, duration, stalled, address] = wave.rows[place];
      const words = new Map(found.code[wave.code]).get(address) ?? "";
      about.replaceChildren(make("h2", { class: "mono" }, words), make("dl", {}, [
        ["wave", wave.place], ["at", `cycle ${text.count(time)}`], ["took", text.plural(duration, "cycle")], ["waiting", text.plural(stalled, "cycle")], ["address", address.toString(16)],
      ].map(([name, value]) => [make("dt", {}, name), make("dd", {}, value)])));
      drawn.redraw();
    }
    const zoom = (factor, at = (from + to) / 2) => {
      [from, to] = [at - (at - from) * factor, at + (to - at) * factor];
      drawn.redraw();
    };
    const pan = (share) => {
      const by = (to - from) * share;
      [from, to] = [from + by, to + by];
      drawn.redraw();
    };
    const step = (by) => {
      const [n, place] = chosen || [0, -1];
      const next = Math.max(0, Math.min(found.waves[n].rows.length - 1, place + by));
      if (found.waves[n].rows.length) show(n, next);
    };
    const keys = {
      ArrowLeft: () => pan(-0.15), ArrowRight: () => pan(0.15), a: () => pan(-0.15), d: () => pan(0.15), "+": () => zoom(0.66), "=": () => zoom(0.66), "-": () => zoom(1.5),
      w: () => zoom(0.66), s: () => zoom(1.5), 0: () => ((from = begin), (to = end + 1), drawn.redraw()), n: () => step(1), p: () => step(-1),
      ArrowDown: () => found.waves.length && show(Math.min(found.waves.length - 1, (chosen?.[0] ?? -1) + 1), 0), ArrowUp: () => show(Math.max(0, (chosen?.[0] ?? 0) - 1), 0),
      Escape: () => ((chosen = marked = null), about.replaceChildren(), drawn.redraw()),
    };
    drawn.element.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || !(event.key in keys)) return;
      keys[event.key]();
      event.preventDefault();
    });
    drawn.element.addEventListener("wheel", (event) => {
      event.preventDefault();
      if (event.shiftKey) ((scroll += event.deltaY), drawn.redraw());
      else zoom(1.0015 ** event.deltaY, from + ((event.offsetX - GUTTER) / width()) * (to - from));
    }, { passive: false });
    drawn.element.addEventListener("click", (event) => {
      const n = Math.floor((event.offsetY - AXIS + scroll) / ROW), at = from + ((event.offsetX - GUTTER) / width()) * (to - from);
      const place = found.waves[n]?.rows.findIndex(([time, duration]) => time <= at && at < time + duration) ?? -1;
      if (place >= 0) show(n, place);
    });
    const choose = (address) => {
      marked = marked === address ? null : address;
      drawn.redraw();
    };
    return { drawn, choose };
  }

  return { one };
})();
