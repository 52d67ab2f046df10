// Tables are sorted by a click on a heading; without this script they are read as they stand.
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
