"use strict";
(() => {
  const root = document.documentElement;
  const read = () => {
    try {
      return localStorage.getItem("plimsoll-theme");
    } catch {
      return null;
    }
  };
  const setTheme = (theme) => {
    if (theme === "light" || theme === "dark") root.dataset.theme = theme;
    else delete root.dataset.theme;
  };
  // Before the page is drawn, so that it does not change its colors.
  setTheme(read());

  const REFRESH = 30000;
  const collator = new Intl.Collator("en", { numeric: true });

  // Cells without a number stay last in both directions.
  const compare = (column, descending) => (one, other) => {
    const [a, b] = [one.cells[column], other.cells[column]].map((cell) => cell.dataset.v ?? cell.textContent);
    if (a === "" || b === "") return (a === "") - (b === "");
    const order = "v" in one.cells[column].dataset ? a - b : collator.compare(a, b);
    return descending ? -order : order;
  };

  const sort = (table, column, order) => {
    const heads = [...table.tHead.rows[0].cells];
    for (const head of heads) head.removeAttribute("aria-sort");
    heads[column].setAttribute("aria-sort", order);
    const rows = [...table.tBodies[0].rows].sort(compare(column, order === "descending"));
    table.tBodies[0].append(...rows);
    table.dataset.sorted = `${column} ${order}`;
  };

  // The keyboard has to reach areas that scroll because they are too wide.
  const scrolls = () => {
    for (const area of document.querySelectorAll(".scroll")) {
      if (area.scrollWidth > area.clientWidth) {
        area.tabIndex = 0;
        area.setAttribute("role", "region");
        area.setAttribute("aria-label", area.dataset.name ?? area.querySelector("caption")?.textContent ?? "Details");
      } else {
        for (const name of ["tabindex", "role", "aria-label"]) area.removeAttribute(name);
      }
    }
  };

  const filter = (input) => {
    const wanted = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const row of document.querySelectorAll("[data-filter] > tbody > tr")) {
      const text = row.textContent.toLowerCase();
      row.hidden = !wanted.every((word) => text.includes(word));
    }
  };

  // What only works with scripts is not in the page without them.
  const prepare = (state = {}) => {
    document.querySelectorAll("table[data-sort]").forEach((table, place) => {
      [...table.tHead.rows[0].cells].forEach((head, column) => {
        const button = document.createElement("button");
        button.type = "button";
        button.append(...head.childNodes);
        head.append(button);
        button.addEventListener("click", () => {
          const isAscending = head.getAttribute("aria-sort") === "ascending";
          sort(table, column, isAscending ? "descending" : "ascending");
        });
      });
      const [column, order] = state.sorted?.[place]?.split(" ") ?? [];
      if (order) sort(table, Number(column), order);
    });
    const found = document.querySelector("[data-filter]");
    if (found) {
      const label = document.createElement("label");
      const input = document.createElement("input");
      input.type = "search";
      input.id = "filter";
      input.value = state.filter ?? "";
      label.append("Filter ", input);
      found.parentElement.before(label);
      input.addEventListener("input", () => filter(input));
      filter(input);
    }
    document.querySelectorAll("details").forEach((one, place) => {
      if (state.open?.[place]) one.open = true;
    });
    scrolls();
  };

  const state = () => ({
    sorted: [...document.querySelectorAll("table[data-sort]")].map((table) => table.dataset.sorted),
    filter: document.getElementById("filter")?.value,
    open: [...document.querySelectorAll("details")].map((one) => one.open),
  });

  let last = Date.now();
  let version;
  const data = () => document.querySelector("link[rel=alternate]").href;
  const refresh = async () => {
    const main = document.querySelector("main");
    const isUsed = main.contains(document.activeElement) && document.activeElement !== main;
    if (document.hidden || isUsed || !getSelection().isCollapsed || Date.now() - last < REFRESH) return;
    last = Date.now();
    try {
      // The page is made of nothing but its data: without a new version there is nothing to draw.
      const response = await fetch(data(), { method: "HEAD" });
      const now = response.headers.get("x-plimsoll-version");
      if (!response.ok || now === version) return;
      const page = await fetch(location.href);
      if (!page.ok) return;
      const parsed = new DOMParser().parseFromString(await page.text(), "text/html");
      const before = state();
      for (const part of ["main", "footer"]) document.querySelector(part).replaceWith(parsed.querySelector(part));
      version = now;
      prepare(before);
    } catch {
      // The server is away: the page keeps its time, and the next attempt may succeed.
    }
  };

  addEventListener("DOMContentLoaded", () => {
    const theme = document.getElementById("theme");
    theme.value = root.dataset.theme ?? "system";
    theme.addEventListener("change", () => {
      setTheme(theme.value);
      try {
        localStorage.setItem("plimsoll-theme", theme.value);
      } catch {
        // Without storage the theme lasts as long as the page.
      }
    });
    theme.closest("[hidden]").hidden = false;
    prepare();
    addEventListener("resize", scrolls);
    document.addEventListener("visibilitychange", refresh);
    setInterval(refresh, REFRESH);
  });
})();
