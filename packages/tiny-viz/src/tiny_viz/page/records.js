// The records of the run, in columns: loaded once, part by part, as they are many.
const records = (() => {
  const NUMBERS = ["thread", "busy", "ops", "nbytes", "kernels", "held", "memory", "start", "duration", "record", "unit"];
  const TEXTS = ["kind", "name", "device", "tensor", "key"];
  let loaded = null, named = null;

  async function load(overview) {
    const all = { size: overview.events, strings: [], origins: [], where: [], whole: overview.duration };
    for (const column of NUMBERS) all[column] = new Float64Array(all.size);
    for (const column of TEXTS) all[column] = new Int32Array(all.size);
    const numbers = new Map();
    const number = (string) => {
      if (!numbers.has(string)) numbers.set(string, all.strings.push(string) - 1);
      return numbers.get(string);
    };
    all.where = await data.get("origins");
    let at = 0;
    for (let part = 0; part < overview.parts; part++) {
      const got = await data.get(`run/${part}`);
      const here = got.strings.map(number);
      for (const column of NUMBERS) all[column].set(got[column], at);
      for (const column of TEXTS) got[column].forEach((value, row) => (all[column][at + row] = here[value]));
      all.origins.push(...got.origins);
      at += got.start.length;
    }
    all.text = (column, row) => all.strings[all[column][row]];
    /** The origin with most of the work, or undefined. */
    all.origin = (row) => all.where[all.origins[row][0]];
    all.launch = (row) => LAUNCHES.has(all.text("kind", row));
    return all;
  }

  /** What a device computes: kernels on their own, and those of a graph. A graph's own record is the sum of them. */
  const LAUNCHES = new Set(["kernel", "graph kernel"]);

  /** The rows that are work of a device. A graph counts where the device did not tell of its kernels. */
  function work(all) {
    const told = new Set();
    for (let row = 0; row < all.size; row++) if (all.text("kind", row) === "graph kernel") told.add(all.device[row]);
    const rows = [];
    for (let row = 0; row < all.size; row++) {
      if (all.launch(row) || (all.text("kind", row) === "graph" && !told.has(all.device[row]))) rows.push(row);
    }
    return rows;
  }

  /** Sums of some rows by a key: [{key, rows, calls, busy, ops, nbytes}], the longest first. */
  function sums(all, rows, key) {
    const found = new Map();
    for (const row of rows) {
      const name = key(row);
      let sum = found.get(name);
      if (!sum) found.set(name, (sum = { key: name, first: row, calls: 0, busy: 0, ops: 0, nbytes: 0 }));
      sum.calls++;
      sum.busy += all.busy[row];
      sum.ops += all.ops[row];
      sum.nbytes += all.nbytes[row];
    }
    return [...found.values()].sort((a, b) => b.busy - a.busy);
  }

  /** The number of the kernel that a row launched, or -1. Traces without keys know kernels by their names. */
  function unitOf(overview, all, row) {
    const { name, kind, key } = overview.units;
    if (!named) {
      named = new Map();
      for (let n = name.length - 1; n >= 0; n--) if (kind[n] === "kernel") named.set(name[n], n).set(key[n] || name[n], n);
    }
    return named.get(all.text("key", row) || all.text("name", row)) ?? named.get(all.text("name", row)) ?? -1;
  }

  return { unitOf, load: (overview) => (loaded ??= load(overview)), work, sums };
})();
