"use strict";
(async () => {
  const trouble = (text) => { const p = document.getElementById("trouble"); p.textContent = text; p.hidden = false; };

  // Tables: sorted by their headings, filtered by a part of a row.
  const UNITS = { ns: 1, "µs": 1e3, ms: 1e6, s: 1e9, B: 1, KiB: 1024, MiB: 1024 ** 2, GiB: 1024 ** 3, TiB: 1024 ** 4 };
  const value = (text) => {
    const found = /^([<>≥~]*)\s*(-?[\d,]+(?:\.\d+)?)\s*(\S*)/.exec(text);
    if (!found) return null;
    const less = found[1] === "<" ? 0.5 : 1;
    return Number(found[2].replaceAll(",", "")) * less * (UNITS[found[3]] ?? 1);
  };
  const compare = (a, b) => {
    const x = value(a), y = value(b);
    if (x !== null && y !== null) return x - y;
    if (x !== null || y !== null) return x !== null ? 1 : -1;
    return a.localeCompare(b);
  };
  const words = (cell) => `${cell.textContent} ${cell.querySelector("[title]")?.title ?? ""}`;
  for (const table of document.querySelectorAll("table.sortable")) {
    const headings = [...table.tHead.rows[0].cells];
    headings.forEach((th, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...th.childNodes);
      th.append(button);
      button.addEventListener("click", () => {
        const down = th.getAttribute("aria-sort") === "descending" ? false : th.classList.contains("right") || th.getAttribute("aria-sort") === "ascending";
        for (const other of headings) other.removeAttribute("aria-sort");
        th.setAttribute("aria-sort", down ? "descending" : "ascending");
        const rows = [...table.tBodies[0].rows].map((row) => [row.cells[column].textContent.trim(), row]);
        rows.sort(([a], [b]) => (down ? compare(b, a) : compare(a, b)));
        table.tBodies[0].append(...rows.map(([, row]) => row));
      });
    });
  }
  for (const input of document.querySelectorAll("input[data-filters]")) {
    const rows = [...document.getElementById(input.dataset.filters).tBodies[0].rows];
    const texts = rows.map((row) => [...row.cells].map(words).join(" ").toLowerCase());
    const count = document.getElementById(`${input.dataset.filters}-count`);
    input.addEventListener("input", () => {
      const wanted = input.value.toLowerCase();
      let shown = 0;
      rows.forEach((row, i) => { row.hidden = !texts[i].includes(wanted); shown += !row.hidden; });
      count.textContent = wanted ? `${shown} of ${rows.length} rows` : "";
    });
  }

  // Figures: unpacked once, drawn when they come into view.
  if (typeof DecompressionStream === "undefined") return trouble("This browser is too old to draw the figures; every number is in the tables too.");
  const unpacked = async (id) => {
    const packed = atob(document.getElementById(id).textContent.trim());
    const bytes = new Uint8Array(packed.length);
    for (let i = 0; i < packed.length; i++) bytes[i] = packed.charCodeAt(i);
    return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
  };
  const data = JSON.parse(await unpacked("data"));
  if (document.getElementById("library")) {
    const script = document.createElement("script");
    script.textContent = await unpacked("library");
    document.head.append(script);
  }
  if (typeof Plotly === "undefined") return trouble("plotly.js could not be loaded, so there are no figures; every number is in the tables too.");

  const dark = matchMedia("(prefers-color-scheme: dark)");
  const config = { responsive: true, displaylogo: false, modeBarButtonsToRemove: ["lasso2d", "select2d", "autoScale2d"], toImageButtonOptions: { format: "svg" } };
  const boxes = [...document.querySelectorAll(".plot")];
  const choice = document.getElementById("timeline-choice");
  let printing = false;
  const figureOf = (box) => (box.id === "timeline" ? data.timelines[choice.value] : data.figures[box.id]);
  const draw = (box) => {
    const figure = figureOf(box);
    const layout = { ...structuredClone(figure.layout), template: data.templates[dark.matches && !printing ? "dark" : "light"] };
    box.dataset.drawn = "yes";
    return Plotly.react(box, structuredClone(figure.data), layout, config);
  };
  const drawnOnes = () => boxes.filter((box) => box.dataset.drawn);
  const watcher = new IntersectionObserver((entries) => {
    for (const entry of entries) if (entry.isIntersecting && !entry.target.dataset.drawn) draw(entry.target);
  }, { rootMargin: "300px" });
  for (const box of boxes) watcher.observe(box);
  dark.addEventListener("change", () => drawnOnes().forEach(draw));
  addEventListener("beforeprint", () => { printing = true; boxes.forEach(draw); });
  addEventListener("afterprint", () => { printing = false; drawnOnes().forEach(draw); });

  // The timeline: another rank, the whole step, or the place of an evidence.
  const timeline = document.getElementById("timeline");
  if (timeline) {
    choice.addEventListener("change", () => draw(timeline));
    document.getElementById("timeline-whole").addEventListener("click", () => Plotly.relayout(timeline, { "xaxis.range": [...figureOf(timeline).layout.xaxis.range] }));
    for (const link of document.querySelectorAll("a.evidence")) {
      link.addEventListener("click", async (event) => {
        event.preventDefault();
        choice.value = link.dataset.rank;
        await draw(timeline);
        await Plotly.relayout(timeline, { "xaxis.range": [Number(link.dataset.from), Number(link.dataset.to)] });
        document.getElementById("timeline-section").scrollIntoView({ block: "start" });
        timeline.focus({ preventScroll: true });
      });
    }
  }
  document.body.dataset.ready = "yes";
})();
