// Rules: which were tried how often, what they say, and where they applied.
const rules = (() => {
  const { make, seconds } = text;

  async function list() {
    const found = await data.get("rules");
    if (!found.name.length) return make("p", { class: "page" }, "No rule applied while this was recorded.");
    const rows = found.name.map((name, n) => ({ n, name, table: found.table[n], place: found.place[n], applied: found.applied[n], attempts: found.attempts[n], seconds: found.seconds[n] }));
    const search = make("input", { type: "search", placeholder: "rule, table or file ( / )", "aria-label": "Search", size: 26 });
    const holder = make("div", { class: "page" });
    const fill = () => holder.replaceChildren(table({
      label: "rules", sort: 2, go: (row) => (location.hash = `#rule/${row.n}`),
      rows: rows.filter((row) => `${row.name} ${row.table} ${row.place}`.toLowerCase().includes(search.value.trim().toLowerCase())),
      columns: [
        { title: "rule", value: (row) => row.name, show: (row) => make("a", { href: `#rule/${row.n}`, tabindex: -1 }, row.name), kind: "name" },
        { title: "table", value: (row) => row.table, show: (row) => row.table },
        { title: "time", value: (row) => row.seconds, show: (row) => seconds(row.seconds), kind: "number" },
        { title: "applied", value: (row) => row.applied, show: (row) => text.count(row.applied), kind: "number" },
        { title: "tried", value: (row) => row.attempts, show: (row) => (row.attempts === null ? "" : text.count(row.attempts)), kind: "number" },
        { title: "place", value: (row) => row.place, show: (row) => row.place, kind: "name" },
      ],
    }));
    search.addEventListener("input", fill);
    search.addEventListener("keydown", (event) => event.key === "Enter" && holder.querySelector("tr[tabindex='0']")?.focus());
    fill();
    return Object.assign(make("div", { class: "split" }, make("div", { class: "wide" }, make("div", { class: "bar" }, search), holder)), { search, focusOn: holder.querySelector("tr[tabindex='0']") });
  }

  async function one(overview, [number]) {
    const found = await data.get(`rule/${number}`);
    const facts = [
      ["table", found.table], ["row", make("span", { class: "mono" }, found.place)], ["replaces", found.pattern && make("span", { class: "mono" }, found.pattern)],
      ...found.notes, ["applied", text.plural(found.applied, "time")], ["tried", found.attempts === null ? "" : text.plural(found.attempts, "time")], ["time", seconds(found.seconds)],
    ].filter((fact) => fact[1]);
    const kernels = found.units.map(([unit, count]) => make("a", { class: "chip mono", href: `#unit/${unit}` }, `${overview.units.name[unit]} ${count}`));
    const view = make("div", { class: "page" }, make("h2", { class: "mono" }, found.name),
      make("dl", {}, facts.map(([title, value]) => [make("dt", {}, title), make("dd", {}, value)])),
      found.source ? [make("h3", {}, "by"), text.code(found.source, true)] : "",
      kernels.length ? [make("h3", {}, "Where it applied most"), make("div", {}, kernels)] : "",
      make("h3", {}, found.applied > found.steps.length ? `The first ${found.steps.length} rewrites` : "Rewrites"), compiler.stepTable(found.steps));
    return Object.assign(view, { focusOn: view.querySelector("tr[tabindex='0']") });
  }

  return { list, one };
})();
