// Tables are sorted by a click on a heading, and charts are linked; without this script they are read as they stand.
for (const table of document.querySelectorAll("table.sortable")) {
  const body = table.tBodies[0], heads = [...table.tHead.rows[0].cells];
  if (body.rows.length < 3) continue;
  const value = (row, at) => {
    const cell = row.cells[at], text = (cell.dataset.value || cell.innerText).trim();
    const number = text.startsWith("∞") ? Infinity : parseFloat(text.replace(/[,<]/g, ""));
    return { number, text };
  };
  const compare = (a, b) =>
    isNaN(a.number) || isNaN(b.number)
      ? isNaN(a.number) - isNaN(b.number) || a.text.localeCompare(b.text)
      : a.number - b.number;
  heads.forEach((head, at) => {
    const button = document.createElement("button");
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const down = head.ariaSort === "descending" || (!head.ariaSort && at === 0) ? 1 : -1;
      heads.forEach((other) => (other.ariaSort = null));
      head.ariaSort = down === 1 ? "ascending" : "descending";
      const rows = [...body.rows].map((row) => [value(row, at), row]);
      rows.sort((a, b) => down * compare(a[0], b[0]));
      body.append(...rows.map(([, row]) => row));
    });
  });
}

// Marks, bars and rows with the same data-point are highlighted together: by a pointer, by focus, and by arrow keys.
const steps = document.querySelector("[data-steps]");
if (steps) {
  const readout = document.querySelector("[data-readout]"), hint = readout.textContent;
  const parts = [...document.querySelectorAll("[data-point]")];
  const rows = new Map(parts.filter((one) => one.tagName === "TR").map((row) => [row.dataset.point, row]));
  const heads = [...rows.values()][0].closest("table").tHead.rows[0].cells;
  const points = [...rows.keys()];
  let now = null;
  const words = (row) =>
    [...row.cells].map((cell, at) => {
      const [value, reach] = [cell.firstChild.textContent, cell.querySelector("small")?.textContent];
      return at ? `${heads[at].innerText.replace(/[▲▼]/g, "").trim()} ${value}${reach ? " " + reach : ""}` : value;
    }).slice(0, 6).join(" · ");
  const show = (point) => {
    if (point === now) return;
    now = point;
    document.body.classList.toggle("pointing", point !== null);
    for (const one of parts) one.classList.toggle("on", point !== null && one.dataset.point.split(" ").includes(point));
    readout.textContent = point === null ? hint : words(rows.get(point));
  };
  for (const svg of steps.querySelectorAll("svg")) {
    const marks = [...svg.querySelectorAll("path.full[data-point]")];
    svg.addEventListener("pointermove", (event) => {
      let best = null, least = 24;
      for (const mark of marks) {
        const box = mark.getBoundingClientRect();
        const away = Math.hypot(event.clientX - box.x - box.width / 2, event.clientY - box.y - box.height / 2);
        if (away < least) [best, least] = [mark.dataset.point, away];
      }
      show(best);
    });
    svg.addEventListener("pointerleave", () => show(null));
  }
  for (const [point, row] of rows) {
    row.addEventListener("pointerenter", () => show(point));
    row.addEventListener("pointerleave", () => show(null));
    row.addEventListener("focusin", () => show(point));
    row.addEventListener("focusout", () => show(null));
  }
  steps.tabIndex = 0;
  steps.setAttribute("role", "group");
  steps.setAttribute("aria-label", "Charts: the arrow keys step through the points");
  readout.setAttribute("aria-live", "polite");
  steps.addEventListener("keydown", (event) => {
    const by = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (event.key === "Escape") show(null);
    if (!by) return;
    event.preventDefault();
    const at = now === null ? (by > 0 ? -1 : points.length) : points.indexOf(now);
    show(points[(at + by + points.length) % points.length]);
  });
  steps.addEventListener("blur", () => show(null));
  const open = () => {
    const run = document.getElementById(location.hash.slice(1));
    if (run) run.open = true;
  };
  addEventListener("hashchange", open);
  open();
}
