"use strict";
(() => {
  const collator = new Intl.Collator("en", { numeric: true });

  // Cells without a number stay last in both directions.
  const compare = (column, descending) => (one, other) => {
    const [a, b] = [one.cells[column], other.cells[column]].map((cell) => cell.dataset.v ?? cell.textContent);
    if (a === "" || b === "") return (a === "") - (b === "");
    const isNumber = "v" in one.cells[column].dataset;
    const order = isNumber ? a - b : collator.compare(a, b);
    return descending ? -order : order;
  };

  const sort = (table, column) => {
    const heads = [...table.tHead.rows[0].cells];
    const head = heads[column];
    const first = head.classList.contains("number") ? "descending" : "ascending";
    const second = first === "descending" ? "ascending" : "descending";
    const order = head.getAttribute("aria-sort") === first ? second : first;
    for (const other of heads) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", order);
    const body = table.tBodies[0];
    const rows = [...body.rows].sort(compare(column, order === "descending"));
    const sorted = document.createDocumentFragment();
    sorted.append(...rows);
    body.append(sorted);
  };

  for (const table of document.querySelectorAll(".containers, .namespaces")) {
    [...table.tHead.rows[0].cells].forEach((head, column) => {
      if (head.classList.contains("bar")) return;
      const button = document.createElement("button");
      button.type = "button";
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => sort(table, column));
    });
  }

  // The keyboard has to reach tables that scroll because they are too wide.
  const scrolls = () => {
    for (const area of document.querySelectorAll(".scroll")) {
      if (area.scrollWidth > area.clientWidth) {
        area.tabIndex = 0;
        area.setAttribute("role", "region");
        area.setAttribute("aria-label", area.querySelector("caption").textContent);
      } else {
        for (const name of ["tabindex", "role", "aria-label"]) area.removeAttribute(name);
      }
    }
  };
  scrolls();
  addEventListener("resize", scrolls);

  const form = document.getElementById("search");
  const words = document.getElementById("words");
  const least = document.getElementById("least");
  const found = document.getElementById("found");
  const rows = [...document.querySelectorAll(".containers > tbody > tr")];
  const texts = new Map();
  const textOf = (row) => {
    if (!texts.has(row)) {
      const cells = [...row.cells].map((cell) => cell.textContent);
      texts.set(row, cells.join(" ").toLowerCase());
    }
    return texts.get(row);
  };
  const all = document.querySelector("#all tbody");
  const search = () => {
    const wanted = words.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const row of rows) {
      const matches = Number(row.dataset.risk) >= Number(least.value) && wanted.every((word) => textOf(row).includes(word));
      row.hidden = !matches;
      if (matches && row.parentElement === all) shown += 1;
    }
    const isAll = wanted.length === 0 && least.value === "0";
    found.textContent = isAll ? "" : `${shown} of ${all.rows.length} containers`;
  };
  if (all) {
    let waiting;
    const soon = () => {
      clearTimeout(waiting);
      waiting = setTimeout(search, 80);
    };
    words.addEventListener("input", soon);
    least.addEventListener("change", search);
    form.addEventListener("submit", (event) => event.preventDefault());
    form.hidden = false;
    // Browsers restore the inputs of a page that is loaded again.
    search();
  }
})();
