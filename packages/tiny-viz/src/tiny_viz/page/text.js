// Texts and elements. Whatever comes from a trace becomes text of an element, never markup.
const text = (() => {
  /** An element: `make("td", {class: "number"}, "12", child)`. Names that begin with `on` are listeners. */
  function make(tag, attributes, ...children) {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes || {})) {
      if (value === undefined || value === null || value === false) continue;
      if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
      else if (name === "style") Object.assign(made.style, value);
      else made.setAttribute(name, value === true ? "" : value);
    }
    made.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
    return made;
  }

  function scaled(value, units, base) {
    let unit = 0;
    while (value >= base && unit < units.length - 1) {
      value /= base;
      unit++;
    }
    const digits = value >= 100 || (unit === 0 && Number.isInteger(value)) ? 0 : value >= 10 ? 1 : 2;
    return `${value.toFixed(digits)} ${units[unit]}`;
  }

  const nanoseconds = (value) => scaled(value, ["ns", "µs", "ms", "s"], 1000);
  const seconds = (value) => (value === null || value === undefined ? "" : nanoseconds(value * 1e9));
  const bytes = (value) => scaled(value, ["B", "kB", "MB", "GB", "TB"], 1000);
  const count = (value) => value.toLocaleString("en");
  const percent = (share) => `${(share * 100).toFixed(share < 0.0995 ? 1 : 0)} %`;
  /** Per second, of an amount and nanoseconds; empty where one is 0. */
  const rate = (amount, time, unit) => (amount && time ? scaled(amount / (time * 1e-9), ["", "k", "M", "G", "T", "P"].map((p) => p + unit), 1000) : "");
  const plural = (number, what) => `${count(number)} ${what}${number === 1 ? "" : "s"}`;

  /** Where an origin is, in short: `train.py:41`. */
  const place = (origin) => (origin && origin[0] ? `${origin[0].split("/").pop()}:${origin[1]}` : "");

  /** A hue for a name, the same every time. */
  function hue(name) {
    let sum = 0;
    for (let i = 0; i < name.length; i++) sum = (sum * 31 + name.charCodeAt(i)) >>> 0;
    return (sum * 137) % 360;
  }

  /** Colours of the style sheet, for canvases. */
  function colours() {
    const style = getComputedStyle(document.documentElement);
    const names = ["ground", "panel", "line", "ink", "soft", "accent", "mark", "changed", "peak", "chosen", "plus-ink", "minus-ink"];
    const found = Object.fromEntries(names.map((name) => [name.replace("-", "_"), style.getPropertyValue(`--${name}`).trim()]));
    found.dark = matchMedia("(prefers-color-scheme: dark)").matches;
    return found;
  }

  /** A canvas that fills its parent and keeps the screen's resolution; `draw(context, width, height)` paints it. */
  function canvas(label, draw) {
    const element = make("canvas", { tabindex: 0, role: "application", "aria-label": label });
    const holder = make("div", { class: "canvas" }, element);
    let waiting = false;
    function paint() {
      waiting = false;
      const { clientWidth: width, clientHeight: height } = holder;
      if (!width || !height) return;
      const scale = devicePixelRatio || 1;
      if (element.width !== Math.round(width * scale) || element.height !== Math.round(height * scale)) {
        element.width = Math.round(width * scale);
        element.height = Math.round(height * scale);
        element.style.width = `${width}px`;
        element.style.height = `${height}px`;
      }
      const context = element.getContext("2d");
      context.setTransform(scale, 0, 0, scale, 0, 0);
      context.clearRect(0, 0, width, height);
      draw(context, width, height);
    }
    /** Paint soon, once however often this is called. */
    function redraw() {
      if (!waiting) requestAnimationFrame(paint);
      waiting = true;
    }
    new ResizeObserver(redraw).observe(holder);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
    const tip = make("div", { class: "tip", hidden: true });
    holder.append(tip);
    /** Show a note beside the pointer, or none. */
    function hint(at, words) {
      tip.hidden = !words;
      if (!words) return;
      tip.textContent = words;
      tip.style.left = `${Math.max(0, Math.min(at.offsetX + 14, holder.clientWidth - tip.offsetWidth - 4))}px`;
      tip.style.top = `${Math.max(0, Math.min(at.offsetY + 16, holder.clientHeight - tip.offsetHeight - 4))}px`;
    }
    return { holder, element, redraw, hint };
  }

  const keywords = /^(define|declare|ret|br|label|switch|phi|load|store|getelementptr|call|void|float|double|i1|i8|i16|i32|i64|ptr|for|if|else|int|unsigned|long|char|const|static|return|kernel|device|constant|threadgroup|uint|ulong|half)$/;

  const keywordsOfPython = /^(and|as|assert|def|elif|else|for|from|if|import|in|is|lambda|not|or|raise|return|while|with|yield|None|True|False)$/;

  /** The lines of generated code, or of Python, with keywords, numbers and comments marked. */
  function code(source, python = false) {
    const [words, parts, comment] = python ? [keywordsOfPython, /#.*$|[A-Za-z_][\w]*|\d[\w.]*|[^\w]/g, /^#/] : [keywords, /(?:;|\/\/|#).*$|[A-Za-z_.%@$][\w.$]*|\d[\w.+]*|[^\w]/g, /^(;|\/\/|#)/];
    const lines = source.split("\n").map((line) => {
      const made = make("span", { class: "l" });
      for (const [part] of line.matchAll(parts)) {
        const kind = comment.test(part) && part.length > 1 ? "comment" : words.test(part) ? "keyword" : /^\d/.test(part) ? "constant" : "";
        made.append(kind ? make("span", { class: kind }, part) : part);
      }
      return made;
    });
    return make("pre", { class: "code mono", tabindex: 0 }, lines);
  }

  /** Lines of a diff: pairs of `+`, `-` or a blank, and a text. */
  function diff(lines) {
    const kinds = { "+": "plus", "-": "minus", "@": "at" };
    return make("pre", { class: "diff mono", tabindex: 0 }, lines.map(([kind, line]) => make("span", { class: kinds[kind] }, kind + line)));
  }

  return { make, nanoseconds, seconds, bytes, count, percent, rate, plural, place, hue, colours, canvas, code, diff };
})();
