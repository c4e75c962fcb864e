// The timeline: what each thread and device did, how fast that was, and the memory in use.
const timeline = (() => {
  const { make, nanoseconds, bytes, rate, percent } = text;
  const ROW = 19, HEAD = 20, LINE = 56, AXIS = 24, GUTTER = 132;
  const CALM = { schedule: 265, pass: 240, lower: 225, compile: 210, load: 195, alloc: 130, free: 20, write: 45, read: 60, copy: 75 };

  // *** what is drawn ***

  /** Events in rows in which none overlap, each below those that it is inside of. */
  function stacked(title, events) {
    events.sort((a, b) => a[1] - b[1] || b[2] - a[2]);
    const rows = [];
    const open = []; // [end, row], the innermost last
    const ends = [];
    for (const event of events) {
      while (open.length && open[open.length - 1][0] <= event[1]) open.pop();
      let row = open.length ? open[open.length - 1][1] + 1 : 0;
      while (row < rows.length && ends[row] > event[1]) row++;
      (rows[row] ??= []).push(event);
      ends[row] = Math.max(ends[row] ?? 0, event[2]);
      open.push([event[2], row]);
    }
    const columns = rows.map((row) => ({
      index: Int32Array.from(row, (event) => event[0]),
      start: Float64Array.from(row, (event) => event[1]),
      end: Float64Array.from(row, (event) => event[2]),
    }));
    return { title, kind: "events", rows: columns, height: HEAD + columns.length * ROW + 6 };
  }

  function tracksOf(overview, all) {
    const threads = new Map(overview.threads.map(([number, name]) => [number, { name, events: [] }]));
    const devices = new Map();
    const memory = [];
    for (let row = 0; row < all.size; row++) {
      const start = all.start[row], end = start + all.duration[row], kind = all.text("kind", row);
      if (kind !== "graph kernel") threads.get(all.thread[row]).events.push([row, start, end]);
      if (kind === "alloc" || kind === "free") memory.push([row, end, all.held[row]]);
      if (all.launch(row) || kind === "copy") {
        const device = all.text("device", row);
        if (!devices.has(device)) devices.set(device, []);
        const busy = kind === "kernel" ? Math.max(1, all.busy[row]) : end - start;
        devices.get(device).push([row, end - busy, end]);
      }
    }
    const tracks = [];
    for (const [number, { name, events }] of threads) {
      if (events.length) tracks.push({ ...stacked(name === `thread ${number}` ? name : `${name} (${number})`, events), about: "thread" });
    }
    for (const [device, events] of devices) {
      tracks.push({ ...stacked(`${device} queue`, events), about: "device" });
      const peaks = overview.run.peaks[device] || {};
      for (const [what, unit, column, key] of [["operations", "FLOPS", "ops", "ops_per_s"], ["memory traffic", "B/s", "nbytes", "bytes_per_s"]]) {
        const made = rates(all, events, column);
        if (made.most) tracks.push({ title: `${device} ${what}`, kind: "rate", unit, ...made, peak: peaks[key] || 0, height: HEAD + LINE });
      }
    }
    if (memory.length) {
      memory.sort((a, b) => a[1] - b[1]);
      const most = memory.reduce((top, event) => Math.max(top, event[2]), 0);
      tracks.push({
        title: "memory in use", kind: "memory", index: memory.map((event) => event[0]), most, height: HEAD + LINE,
        time: Float64Array.from(memory, (event) => event[1]), value: Float64Array.from(memory, (event) => event[2]),
      });
    }
    let top = AXIS;
    for (const track of tracks) {
      track.top = top;
      top += track.height;
    }
    return { tracks, height: top };
  }

  /** How many of something there were per second, while each event ran. */
  function rates(all, events, column) {
    const value = Float64Array.from(events, ([row, start, end]) => (end > start ? all[column][row] / ((end - start) * 1e-9) : 0));
    const most = value.reduce((top, each) => Math.max(top, each), 0);
    return { start: Float64Array.from(events, (e) => e[1]), end: Float64Array.from(events, (e) => e[2]), value, most };
  }

  /** The first place in a sorted column whose value is above `limit`. */
  function above(column, limit) {
    let low = 0, high = column.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (column[middle] > limit) high = middle;
      else low = middle + 1;
    }
    return low;
  }

  // *** the view ***

  async function view(overview) {
    const all = await records.load(overview);
    if (!all.size) return make("p", { class: "page" }, "This trace has no times of a run.");
    const { tracks, height } = tracksOf(overview, all);
    let from = 0, to = Math.max(1, all.whole) * 1.005;
    let scroll = 0, chosen = -1, range = null, found = null, moment = null;
    const aside = make("aside", { "aria-live": "polite" });
    const search = make("input", { type: "search", placeholder: "search names, layers, lines ( / )", "aria-label": "Search", size: 30 });
    const counted = make("span", { class: "soft" });
    const { holder, element, redraw, hint } = text.canvas("Timeline. Arrows move, plus and minus zoom, n and p go from event to event.", draw);
    let inner = 0; // the width of the plot: asking the page for it takes longer than drawing an event
    const width = () => inner || Math.max(1, holder.clientWidth - GUTTER);
    const hues = all.strings.map(text.hue);
    const x = (time) => GUTTER + ((time - from) / (to - from)) * width();
    const time = (at) => from + ((at - GUTTER) / width()) * (to - from);

    // *** drawing ***

    function fill(colours, row) {
      const kind = all.text("kind", row);
      const hue = kind in CALM ? CALM[kind] : hues[all.name[row]];
      const strong = !(kind in CALM);
      return colours.dark ? `hsl(${hue} ${strong ? 45 : 18}% ${strong ? 38 : 30}%)` : `hsl(${hue} ${strong ? 62 : 28}% ${strong ? 76 : 86}%)`;
    }

    function drawEvents(context, colours, track, top) {
      const right = GUTTER + width(), scale = width() / (to - from), none = GUTTER - from * scale;
      track.rows.forEach((row, depth) => {
        const y = top + HEAD + depth * ROW;
        let drawn = -1;
        for (let i = above(row.end, from); i < row.start.length && row.start[i] < to; i++) {
          const index = row.index[i];
          const left = Math.max(GUTTER, row.start[i] * scale + none), end = Math.min(right, Math.max(row.end[i] * scale + none, left + 1));
          if (end <= drawn + 0.5 && index !== chosen) continue; // another one has these pixels
          drawn = end;
          const dim = found && !found.has(index);
          context.globalAlpha = dim ? 0.18 : 1;
          context.fillStyle = fill(colours, index);
          context.fillRect(left, y, Math.max(1, end - left - (end - left > 3 ? 1 : 0)), ROW - 2);
          if (end - left > 34) {
            context.fillStyle = colours.ink;
            context.save();
            context.beginPath();
            context.rect(left, y, end - left - 3, ROW);
            context.clip();
            context.fillText(all.text("name", index), left + 4, y + 13);
            context.restore();
          }
          if (index === chosen) {
            context.globalAlpha = 1;
            context.strokeStyle = colours.accent;
            context.lineWidth = 2;
            context.strokeRect(left + 0.5, y + 0.5, Math.max(2, end - left - 1), ROW - 3);
          }
        }
        context.globalAlpha = 1;
      });
    }

    function drawRate(context, colours, track, top) {
      const limit = Math.max(track.most, track.peak) * 1.05, floor = top + HEAD + LINE - 8, tall = LINE - 12;
      context.fillStyle = colours.dark ? "hsl(212 60% 45%)" : "hsl(212 75% 68%)";
      let drawn = -1, most = 0;
      const scale = width() / (to - from), none = GUTTER - from * scale;
      for (let i = above(track.end, from); i < track.start.length && track.start[i] < to; i++) {
        const left = Math.max(GUTTER, track.start[i] * scale + none), end = Math.max(left + 1, Math.min(GUTTER + width(), track.end[i] * scale + none));
        if (end <= drawn + 0.5 && track.value[i] <= most) continue;
        most = end <= drawn + 0.5 ? Math.max(most, track.value[i]) : track.value[i];
        drawn = end;
        const high = (track.value[i] / limit) * tall;
        context.fillRect(left, floor - high, end - left, high);
      }
      context.strokeStyle = colours.line;
      context.beginPath();
      context.moveTo(GUTTER, floor + 0.5);
      context.lineTo(GUTTER + width(), floor + 0.5);
      context.stroke();
      if (track.peak) {
        const y = floor - (track.peak / limit) * tall;
        context.strokeStyle = context.fillStyle = colours.peak;
        context.setLineDash([5, 4]);
        context.beginPath();
        context.moveTo(GUTTER, y);
        context.lineTo(GUTTER + width(), y);
        context.stroke();
        context.setLineDash([]);
        const words = `peak ${rate(track.peak, 1e9, track.unit)}`;
        context.fillText(words, GUTTER + width() - context.measureText(words).width - 6, y - 3 < top + 12 ? y + 12 : y - 3);
      } else {
        context.fillStyle = colours.soft;
        context.fillText(`at most ${rate(track.most, 1e9, track.unit)}`, GUTTER + 6, top + HEAD + 4);
      }
    }

    function drawMemory(context, colours, track, top) {
      const floor = top + HEAD + LINE - 8, tall = LINE - 14;
      const y = (value) => floor - (track.most ? value / track.most : 0) * tall;
      let i = above(track.time, from);
      let value = i ? track.value[i - 1] : 0, at = GUTTER;
      context.beginPath();
      context.moveTo(GUTTER, floor);
      context.lineTo(GUTTER, y(value));
      for (; i < track.time.length && track.time[i] < to; i++) {
        const next = x(track.time[i]);
        let top = track.value[i];
        // all changes within one pixel: their highest
        while (i + 1 < track.time.length && x(track.time[i + 1]) - next < 0.7) top = Math.max(top, track.value[++i]);
        context.lineTo(next, y(value));
        context.lineTo(next, y(top));
        value = track.value[i];
        context.lineTo(next, y(value));
        at = next;
      }
      context.lineTo(GUTTER + width(), y(value));
      context.lineTo(GUTTER + width(), floor);
      context.fillStyle = colours.dark ? "hsl(150 35% 32%)" : "hsl(150 45% 80%)";
      context.fill();
      context.fillStyle = colours.soft;
      context.fillText(`at most ${bytes(track.most)}`, GUTTER + 6, top + HEAD + 4);
      if (moment !== null) {
        context.strokeStyle = colours.accent;
        context.strokeRect(x(moment), top + 6, 1, track.height - 12);
      }
    }

    function drawAxis(context, colours, wide) {
      context.fillStyle = colours.panel;
      context.fillRect(0, 0, wide, AXIS);
      const rough = ((to - from) / width()) * 110, power = 10 ** Math.floor(Math.log10(rough));
      const step = [1, 2, 5, 10].map((n) => n * power).find((each) => each >= rough);
      // as many digits as tell one line from the next
      const [unit, size] = [["s", 1e9], ["ms", 1e6], ["µs", 1e3], ["ns", 1]].find(([, each]) => Math.abs(to) >= each) ?? ["ns", 1];
      const digits = Math.max(0, Math.min(9, Math.ceil(-Math.log10(step / size) - 1e-9)));
      for (let at = Math.ceil(from / step) * step; at < to; at += step) {
        const left = Math.round(x(at)) + 0.5;
        context.strokeStyle = colours.line;
        context.beginPath();
        context.moveTo(left, AXIS - 6);
        context.lineTo(left, context.canvas.height);
        context.stroke();
        context.fillStyle = colours.soft;
        context.fillText(`${(at / size).toFixed(digits)} ${unit}`, left + 4, 15);
      }
    }

    function draw(context, wide, tall) {
      const colours = text.colours();
      inner = Math.max(1, wide - GUTTER);
      scroll = Math.max(0, Math.min(scroll, height - tall));
      context.font = "11px system-ui, 'Liberation Sans', 'DejaVu Sans', sans-serif";
      context.lineWidth = 1;
      drawAxis(context, colours, wide);
      context.save();
      context.beginPath();
      context.rect(0, AXIS, wide, tall);
      context.clip();
      for (const track of tracks) {
        const top = track.top - scroll;
        if (top > tall || top + track.height < AXIS) continue;
        context.lineWidth = 1;
        context.strokeStyle = colours.line;
        context.beginPath();
        context.moveTo(0, top + 0.5);
        context.lineTo(wide, top + 0.5);
        context.stroke();
        if (track.kind === "events") drawEvents(context, colours, track, top);
        else if (track.kind === "rate") drawRate(context, colours, track, top);
        else drawMemory(context, colours, track, top);
        context.fillStyle = colours.panel;
        context.fillRect(0, top + 1, GUTTER - 1, track.height - 1);
        context.fillStyle = colours.ink;
        context.save();
        context.beginPath();
        context.rect(0, top, GUTTER - 6, track.height);
        context.clip();
        context.fillText(track.title, 10, top + 14);
        context.restore();
      }
      context.restore();
      if (range) {
        const left = Math.max(GUTTER, x(range[0])), right = Math.max(GUTTER, x(range[1]));
        context.fillStyle = colours.accent;
        context.globalAlpha = 0.13;
        context.fillRect(left, 0, right - left, tall);
        context.globalAlpha = 1;
        context.fillRect(left, 0, 1, tall);
        context.fillRect(right, 0, 1, tall);
        context.fillText(nanoseconds(range[1] - range[0]), left + 4, AXIS + 11);
      }
    }

    // *** what is said beside it ***

    function facts(row) {
      const origin = all.origin(row), kind = all.text("kind", row), peaks = overview.run?.peaks[all.text("device", row)] || {};
      const share = (amount, peak) => (peak && all.busy[row] ? ` (${percent(amount / (all.busy[row] * 1e-9) / peak)} of the peak)` : "");
      const busy = all.launch(row) || kind === "graph";
      return [
        ["kind", kind], ["device", all.text("device", row)], ["start", `${(all.start[row] / 1e6).toLocaleString("en", { minimumFractionDigits: 3, maximumFractionDigits: 3 })} ms`], ["took", nanoseconds(all.duration[row])],
        busy && ["device busy", nanoseconds(all.busy[row])], all.kernels[row] > 1 && ["kernels", text.count(all.kernels[row])],
        busy && all.ops[row] && ["operations", rate(all.ops[row], all.busy[row], "FLOPS") + share(all.ops[row], peaks.ops_per_s)],
        busy && all.nbytes[row] && ["traffic", rate(all.nbytes[row], all.busy[row], "B/s") + share(all.nbytes[row], peaks.bytes_per_s)],
        !busy && all.nbytes[row] && ["size", bytes(all.nbytes[row])],
        all.tensor[row] && all.text("tensor", row) && ["tensor", all.text("tensor", row)],
        origin && ["layer", [origin[3], origin[4]].filter(Boolean).join(", ")], origin && ["line", `${text.place(origin)} ${origin[2]}`],
        all.origins[row].length > 1 && ["also of", all.origins[row].slice(1, 6).map((n) => all.where[n][3] || text.place(all.where[n])).join(", ")],
        all.held[row] && ["memory in use", bytes(all.held[row])],
      ].filter((fact) => fact && fact[1]);
    }

    async function links(row) {
      if (all.unit[row] >= 0) return [make("a", { href: `#unit/${all.unit[row]}` }, `this ${all.text("kind", row) === "schedule" ? "schedule" : "kernel"} in the compiler`)];
      const unit = records.unitOf(overview, all, row);
      const counters = overview.run?.counted.includes(all.record[row]);
      return [
        unit >= 0 && make("a", { href: `#unit/${unit}` }, "how it was compiled"), unit >= 0 && make("a", { href: `#unit/${unit}/code` }, "its code"),
        counters && make("a", { href: `#counters/${all.record[row]}` }, "counters and waves"),
      ].filter(Boolean);
    }

    async function describe(row) {
      const list = make("dl", {}, facts(row).map(([name, value]) => [make("dt", {}, name), make("dd", {}, value)]));
      aside.replaceChildren(make("h2", {}, all.text("name", row)), list);
      for (const link of await links(row)) aside.append(make("p", {}, link));
    }

    /** Sums of the records that are in an interval, at least in part; these by the part. */
    function totals(title, rows, begin = 0, end = Infinity) {
      const kinds = new Map(), names = new Map();
      for (const row of rows) {
        const kind = all.text("kind", row), busy = all.launch(row) ? Math.max(1, all.busy[row]) : all.duration[row];
        const stop = all.start[row] + all.duration[row];
        const part = Math.min(stop, end) - Math.max(stop - busy, begin);
        if (part < 0 || stop < begin || all.start[row] > end) continue;
        for (const [sums, key] of [[kinds, kind], [names, all.launch(row) ? all.text("name", row) : null]]) {
          if (key === null) continue;
          const sum = sums.get(key) || { key, calls: 0, time: 0 };
          sum.calls++;
          sum.time += Math.max(0, part);
          sums.set(key, sum);
        }
      }
      const show = (sums, label) => table({
        label, sort: 1, rows: [...sums.values()],
        columns: [
          { title: label, value: (sum) => sum.key, show: (sum) => sum.key, kind: "name" },
          { title: "time", value: (sum) => sum.time, show: (sum) => nanoseconds(Math.round(sum.time)), kind: "number" },
          { title: "calls", value: (sum) => sum.calls, show: (sum) => text.count(sum.calls), kind: "number" },
        ],
      });
      aside.replaceChildren(make("h2", {}, title), names.size ? show(names, "kernel") : "", make("h3", {}, "by kind"), show(kinds, "kind"));
    }

    const every = () => Array.from({ length: all.size }, (_, row) => row);

    function idle() {
      totals(range ? `Selected: ${nanoseconds(range[1] - range[0])}` : found ? `${text.plural(found.size, "record")} found` : `All of it: ${nanoseconds(all.whole)}`,
        found ? [...found] : every(), ...(range || []));
    }

    /** What is in memory at a moment: which tensors, who asked for them, and when they are freed. */
    function memoryAt(at) {
      moment = at;
      const live = new Map(), freed = new Map();
      for (let row = 0; row < all.size; row++) {
        const kind = all.text("kind", row), end = all.start[row] + all.duration[row];
        if (kind === "alloc" && end <= at) live.set(all.memory[row] || `row ${row}`, row);
        if (kind === "free" && all.memory[row]) (end <= at ? live.delete(all.memory[row]) : freed.has(all.memory[row]) || freed.set(all.memory[row], end));
      }
      const numbered = [...live.keys()].some((key) => typeof key === "number");
      const rows = [...live.values()].sort((a, b) => all.nbytes[b] - all.nbytes[a]);
      const title = make("h2", {}, `Memory at ${nanoseconds(at)}`);
      if (!numbered) return aside.replaceChildren(title, make("p", { class: "soft" }, "The trace does not say what is freed when."));
      const sum = rows.reduce((total, row) => total + all.nbytes[row], 0);
      const owner = (row) => all.origin(row)?.[3] || text.place(all.origin(row));
      aside.replaceChildren(title, make("p", {}, `${text.plural(rows.length, "allocation")}, ${bytes(sum)}`), table({
        label: "memory", rows, sort: -1, go: (row) => choose(row, true),
        columns: [
          { title: "size", value: (row) => all.nbytes[row], show: (row) => bytes(all.nbytes[row]), kind: "number" },
          { title: "what, for whom", show: (row) => [all.text("tensor", row), owner(row)].filter(Boolean).join(", ") || all.text("name", row) },
          { title: "freed", value: (row) => freed.get(all.memory[row]) ?? Infinity, show: (row) => (freed.has(all.memory[row]) ? nanoseconds(freed.get(all.memory[row])) : "never"), kind: "number" },
        ],
      }));
      redraw();
    }

    // *** moving ***

    function window(begin, end) {
      const least = 20, most = Math.max(1, all.whole) * 1.1;
      const span = Math.max(least, Math.min(most, end - begin));
      from = Math.max(-0.05 * all.whole, Math.min(begin, all.whole - 0.05 * span));
      to = from + span;
      redraw();
    }

    const zoom = (factor, at = (from + to) / 2) => window(at - (at - from) * factor, at + (to - at) * factor);
    const pan = (share) => window(from + (to - from) * share, to + (to - from) * share);

    function trackOf(row) {
      const wanted = all.launch(row) ? "device" : "thread";
      const order = [...tracks.filter((t) => t.about === wanted), ...tracks.filter((t) => t.kind === "events")];
      for (const track of order) {
        for (let depth = 0; depth < track.rows.length; depth++) {
          const place = track.rows[depth].index.indexOf(row);
          if (place >= 0) return { track, depth, place };
        }
      }
      return null;
    }

    function choose(row, reveal) {
      chosen = row;
      moment = null;
      if (reveal) {
        const start = all.start[row], end = start + all.duration[row];
        if (start < from || end > to || all.duration[row] < (to - from) / width()) {
          const span = Math.max(all.duration[row] * 8, Math.min(to - from, all.duration[row] * 40));
          window((start + end - span) / 2, (start + end + span) / 2);
        }
        const at = trackOf(row);
        if (at) {
          const y = at.track.top + HEAD + at.depth * ROW;
          if (y - scroll < AXIS || y - scroll > holder.clientHeight - ROW) scroll = y - holder.clientHeight / 2;
        }
      }
      describe(row);
      redraw();
    }

    /** From the chosen event to the next of its row, or of what was found. */
    function next(by) {
      if (found) {
        const hits = [...found].sort((a, b) => all.start[a] - all.start[b]);
        if (hits.length) choose(hits[(Math.max(0, hits.indexOf(chosen) + by) + hits.length) % hits.length], true);
        return;
      }
      const at = chosen >= 0 ? trackOf(chosen) : null;
      if (!at) {
        const track = tracks.find((each) => each.about === "device") || tracks.find((each) => each.kind === "events");
        if (track) choose(track.rows[0].index[Math.min(above(track.rows[0].end, from), track.rows[0].index.length - 1)], true);
        return;
      }
      const row = at.track.rows[at.depth];
      const place = at.place + by;
      if (place >= 0 && place < row.index.length) choose(row.index[place], true);
    }

    function hit(event) {
      const track = tracks.find((each) => event.offsetY >= Math.max(AXIS, each.top - scroll) && event.offsetY < each.top - scroll + each.height);
      if (!track || event.offsetX < GUTTER) return {};
      const at = time(event.offsetX);
      if (track.kind !== "events") return { track, at };
      const row = track.rows[Math.floor((event.offsetY - (track.top - scroll) - HEAD) / ROW)];
      if (!row) return { track, at };
      const slack = (to - from) / width();
      const place = above(row.end, at - slack);
      return place < row.index.length && row.start[place] <= at + slack ? { track, at, row: row.index[place] } : { track, at };
    }

    let drag = null;
    element.addEventListener("pointerdown", (event) => {
      element.setPointerCapture(event.pointerId);
      drag = { at: event.offsetX, from, to, pan: event.offsetY < AXIS || event.button === 1 || event.altKey, moved: false };
    });
    element.addEventListener("pointermove", (event) => {
      if (!drag) {
        const { track, row, at } = hit(event);
        let words = "";
        if (row !== undefined) words = [all.text("name", row), nanoseconds(all.launch(row) ? all.busy[row] : all.duration[row]), all.origin(row)?.[3]].filter(Boolean).join("\n");
        else if (track?.kind === "memory") words = bytes(track.value[above(track.time, at) - 1] || 0);
        else if (track?.kind === "rate") {
          const place = above(track.end, at);
          if (track.start[place] <= at) words = rate(track.value[place], 1e9, track.unit) + (track.peak ? `\n${percent(track.value[place] / track.peak)} of the peak` : "");
        }
        return hint(event, words);
      }
      if (Math.abs(event.offsetX - drag.at) > 3) drag.moved = true;
      if (!drag.moved) return;
      if (drag.pan) {
        const by = ((drag.at - event.offsetX) / width()) * (drag.to - drag.from);
        return window(drag.from + by, drag.to + by);
      }
      range = [time(drag.at), time(event.offsetX)].sort((a, b) => a - b).map((at) => Math.max(0, at));
      redraw();
    });
    element.addEventListener("pointerup", (event) => {
      const moved = drag?.moved, panned = drag?.pan;
      drag = null;
      if (moved) return panned ? undefined : idle();
      const { track, at, row } = hit(event);
      range = null;
      if (row !== undefined) return choose(row);
      chosen = -1;
      if (track?.kind === "memory") return memoryAt(at);
      moment = null;
      idle();
      redraw();
    });
    element.addEventListener("pointerleave", () => hint(null, ""));
    element.addEventListener("wheel", (event) => {
      event.preventDefault();
      if (event.shiftKey) scroll += event.deltaY;
      else if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) pan(event.deltaX / width());
      else zoom(1.0015 ** event.deltaY, time(event.offsetX));
      redraw();
    }, { passive: false });

    const keys = {
      ArrowLeft: () => pan(-0.15), a: () => pan(-0.15), ArrowRight: () => pan(0.15), d: () => pan(0.15), "+": () => zoom(0.66), "=": () => zoom(0.66),
      w: () => zoom(0.66), "-": () => zoom(1.5), s: () => zoom(1.5), 0: () => window(0, all.whole * 1.005), n: () => next(1), p: () => next(-1),
      ArrowDown: () => ((scroll += 40), redraw()), ArrowUp: () => ((scroll -= 40), redraw()),
      f: () => chosen >= 0 && window(all.start[chosen] - all.duration[chosen], all.start[chosen] + 2 * all.duration[chosen]),
      m: () => memoryAt(chosen >= 0 ? all.start[chosen] + all.duration[chosen] : (from + to) / 2),
      "[": () => ((range = [chosen >= 0 ? all.start[chosen] : from, range ? Math.max(range[1], from) : to]), idle(), redraw()),
      "]": () => ((range = [range ? range[0] : from, chosen >= 0 ? all.start[chosen] + all.duration[chosen] : to]), idle(), redraw()),
      Enter: () => aside.querySelector("a")?.click(),
      Escape: () => {
        [range, chosen, moment, found] = [null, -1, null, null];
        search.value = counted.textContent = "";
        idle();
        redraw();
      },
    };
    element.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || !(event.key in keys)) return;
      keys[event.key]();
      event.preventDefault();
    });

    function look() {
      const words = search.value.trim().toLowerCase();
      const names = all.strings.map((name) => name.toLowerCase().includes(words));
      const places = all.where.map((origin) => `${origin[3]} ${text.place(origin)} ${origin[2]} ${origin[4]}`.toLowerCase().includes(words));
      found = words ? new Set(every().filter((row) => names[all.name[row]] || all.origins[row].some((n) => places[n]))) : null;
      counted.textContent = found ? text.plural(found.size, "record") : "";
      idle();
      redraw();
    }
    search.addEventListener("input", look);
    search.addEventListener("keydown", (event) => {
      if (event.key === "Enter") next(event.shiftKey ? -1 : 1);
      if (event.key === "Escape") {
        keys.Escape();
        element.focus();
      }
    });

    const button = (label, about, action) => make("button", { type: "button", title: about, onclick: () => (action(), element.focus()) }, label);
    idle();
    const made = make("div", { class: "split" },
      make("div", { class: "wide" },
        make("div", { class: "bar" }, search, counted, make("span", { class: "space" }), button("−", "zoom out (-)", keys["-"]), button("+", "zoom in (+)", keys["+"]),
          button("all", "the whole run (0)", keys[0]), button("memory", "what is in memory at this moment (m)", keys.m)),
        holder),
      aside);
    Object.assign(made, { focusOn: element, search });
    // for tests: where a record is drawn
    made.at = (name) => {
      const row = every().find((each) => all.text("name", each) === name && (all.launch(each) || all.text("kind", each) === "pass"));
      const place = row === undefined ? null : trackOf(row);
      if (!place) return null;
      const { start, end } = place.track.rows[place.depth];
      return { x: x((start[place.place] + end[place.place]) / 2), y: place.track.top - scroll + HEAD + place.depth * ROW + ROW / 2, tracks: tracks.map((t) => t.title) };
    };
    made.reveal = (name) => {
      const row = every().find((each) => all.text("name", each) === name && all.launch(each));
      if (row !== undefined) choose(row, true);
    };
    made.moment = (share) => ({ x: GUTTER + share * width(), y: (tracks.find((t) => t.kind === "memory")?.top ?? 0) - scroll + HEAD + 20 });
    return made;
  }

  return { view };
})();
