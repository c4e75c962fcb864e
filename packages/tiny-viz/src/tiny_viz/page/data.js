// Answers about the trace: from the server, or from the data that stand in the page.
const data = (() => {
  const token = new URLSearchParams(location.search).get("token") || "";
  const embedded = document.getElementById("data").textContent.trim();
  const { bundles, places, complete } = embedded ? JSON.parse(embedded) : {};
  const unpacked = new Map();
  const known = new Map();

  async function unpack(number) {
    const packed = Uint8Array.from(atob(bundles[number]), (letter) => letter.charCodeAt(0));
    const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
    return new Response(stream).json();
  }

  async function ask(path) {
    if (!bundles) {
      const answer = await fetch(`api/${path}?token=${encodeURIComponent(token)}`);
      return answer.json();
    }
    if (!(path in places)) {
      return { error: complete ? "The trace does not have this." : "This is left out of the file, which has the slowest kernels only: python -m tiny_viz serve shows all of a trace." };
    }
    const number = places[path];
    if (!unpacked.has(number)) unpacked.set(number, unpack(number));
    return (await unpacked.get(number))[path];
  }

  /** The answer for a path (answers.py has a table of them). Throws an Error with the reason where there is none. */
  async function get(path) {
    if (!known.has(path)) {
      if (known.size > 400) known.delete(known.keys().next().value);
      known.set(path, ask(path));
    }
    let answer;
    try {
      answer = await known.get(path);
    } catch (problem) {
      known.delete(path);
      throw new Error(`The server does not answer (${problem.message}): is \`tiny_viz serve\` still running?`);
    }
    if (answer && answer.error) throw new Error(answer.error);
    return answer;
  }

  return { get, alone: Boolean(bundles) };
})();
