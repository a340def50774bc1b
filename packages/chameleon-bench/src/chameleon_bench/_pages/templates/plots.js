"use strict";
// Draws plots with plotly.js in the place of their still drawings, and saves them as PNG and CSV.
(() => {
  const MOST = 2000; // points of a plot at once: more of them make browsers slow
  const unpacked = (id) => {
    const text = atob(document.getElementById(id).textContent);
    const bytes = Uint8Array.from(text, (letter) => letter.charCodeAt(0));
    return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip")));
  };
  let page = null; // the data of all plots, once one of them was touched
  const needPage = async () => { page ??= await unpacked("data").json(); };
  const chooser = document.getElementById("subject");
  const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  const column = (table, name) => {
    const found = table[name];
    if (!Array.isArray(found)) {
      table[name] = found.codes.map((code) => (code < 0 ? null : found.labels[code]));
    }
    return table[name];
  };
  const chosen = ({ dataset }) => page.plots.find(
    (plot) => plot.key === dataset.plot && plot.subject === dataset.of);

  const UNITS = [["s", 1], ["ms", 1e-3], ["µs", 1e-6], ["ns", 1e-9]];
  const inSeconds = (value) => {
    const [unit, scale] = UNITS.find(([, one]) => value >= one) || UNITS[3];
    return `${Number((value / scale).toPrecision(4))} ${unit}`;
  };
  const words = (name, value) => {
    if (/seconds|best so far/.test(name) && !/wall-clock/.test(name)) return inSeconds(value);
    if (name === "spread") return `${(100 * value).toFixed(1)} %`;
    return typeof value === "number" ? String(Number(value.toPrecision(5))) : value;
  };
  const escaped = (value) => String(value).replace(/&/g, "&amp;").replace(/</g, "&lt;");
  const hover = (table, names, row) => names
    .filter((name) => column(table, name)[row] !== null && column(table, name)[row] !== "")
    .map((name) => `${escaped(name.replace(/^knob /, ""))}: ` +
      escaped(words(name, column(table, name)[row])))
    .join("<br>");

  // ----- what is drawn -----

  const valueOf = (axis, table) => {
    if (axis.column === undefined) return () => axis.constant;
    const all = column(table, axis.column);
    return (row) => all[row];
  };
  const rowsOf = (trace, table, view) => {
    const names = Object.keys(table);
    let rows = trace.rows || Array.from(column(table, names[0]).keys());
    if (trace.where) rows = rows.filter((row) => column(table, trace.where[0])[row] === trace.where[1]);
    if (trace.skip) rows = rows.filter((row) => column(table, trace.skip[0])[row] !== trace.skip[1]);
    if (!view) return rows;
    const x = valueOf(trace.x, table), y = valueOf(trace.y, table);
    return rows.filter((row) => x(row) >= view.x[0] && x(row) <= view.x[1] &&
      y(row) >= view.y[0] && y(row) <= view.y[1]);
  };
  // Evenly in their order, and the lowest ones in any case: the fastest.
  const thinned = (rows, value, limit) => {
    if (rows.length <= limit) return rows;
    const kept = new Set([...rows].sort((a, b) => value(a) - value(b)).slice(0, limit / 10));
    const step = rows.length / (limit - kept.size);
    for (let at = 0; at < rows.length; at += step) kept.add(rows[Math.floor(at)]);
    return [...kept].sort((a, b) => a - b);
  };
  // Columns and constants take the place of what names them, and colours that of theirs.
  const resolved = (value, table, rows) => {
    if (Array.isArray(value)) return value.map((one) => resolved(one, table, rows));
    if (typeof value === "string" && value.startsWith("--")) {
      const [name, opacity] = value.split("/"); // "--c1/26" is mostly transparent
      return style(name) + (opacity || "");
    }
    if (value === null || typeof value !== "object") return value;
    if (value.column !== undefined || value.constant !== undefined) {
      return rows.map(valueOf(value, table));
    }
    return Object.fromEntries(
      Object.entries(value).map(([key, one]) => [key, resolved(one, table, rows)]));
  };
  const tracesOf = (plot, table, view) => {
    // Of points in the plane some may be left out.
    const inPlane = [plot.layout.xaxis, plot.layout.yaxis].every((one) => one.type !== "category");
    const isPoints = (trace) => inPlane && trace.mode === "markers" && !trace.rows;
    const rows = plot.traces.map((trace) => rowsOf(trace, table, isPoints(trace) ? view : null));
    const points = rows.reduce((sum, one, at) => sum + (isPoints(plot.traces[at]) ? one.length : 0), 0);
    let drawn = 0;
    const traces = plot.traces.map((trace, at) => {
      const { where, rows: _rows, skip, hover: names, ...rest } = trace;
      let mine = rows[at];
      if (isPoints(trace)) {
        const limit = points > MOST ? Math.max(20, Math.floor(MOST * mine.length / points)) : mine.length;
        mine = thinned(mine, valueOf(trace.y, table), limit);
        drawn += mine.length;
      }
      const made = resolved(rest, table, mine);
      if (names) {
        made.hovertext = mine.map((row) => hover(table, names, row));
        made.hovertemplate = "%{hovertext}<extra></extra>";
      }
      return made;
    });
    return { traces, drawn, points };
  };
  const SHORT = 17;
  // On logarithmic axes plotly leaves the suffix out where it writes one digit: "4m" is 4 ms.
  const WITH_UNIT = Object.fromEntries(["", "m", "µ", "n"].flatMap((unit) => [1, 10, 100].flatMap(
    (power) => [1, 2, 3, 4, 5, 6, 7, 8, 9].map((digit) => {
      const text = `${digit * power}${unit}`;
      return [text, `${text}s`];
    }))));
  const layoutOf = (plot, table, figure) => {
    const narrow = figure.clientWidth < 560;
    const axis = { gridcolor: style("--line"), zerolinecolor: style("--line"), automargin: true,
      linecolor: style("--line"), tickfont: { size: narrow ? 11 : 12 } };
    const given = resolved(plot.layout, table, []);
    for (const one of [given.xaxis, given.yaxis]) {
      if (one && one.ticksuffix) one.labelalias = WITH_UNIT;
    }
    // Numbers beside bars need room.
    if (narrow && given.xaxis.range) given.xaxis.range[1] *= 1.25;
    const yaxis = { ...axis, ...given.yaxis };
    if (given.yaxis && given.yaxis.type === "category") {
      const named = plot.traces.find((trace) => trace.y && trace.y.column);
      const names = [...new Set(column(table, named.y.column))];
      yaxis.tickvals = names;
      yaxis.ticktext = names.map((name) => escaped(
        narrow && name.length > SHORT ? `${name.slice(0, SHORT - 1)}…` : name));
    }
    return {
      font: { family: getComputedStyle(document.body).fontFamily, size: 13, color: style("--ink") },
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      margin: { l: 56, r: narrow ? 10 : 24, t: 12, b: 44 },
      // Above the plot, so that it covers nothing; what it can do only a pointer could ask for.
      legend: { orientation: "h", traceorder: "normal", x: 0, y: 1.02, yanchor: "bottom", itemclick: false,
        itemdoubleclick: false },
      hoverlabel: { align: "left", bgcolor: style("--panel"), bordercolor: style("--line"),
        font: { color: style("--ink"), size: 12 } },
      dragmode: matchMedia("(pointer: coarse)").matches ? false : "zoom",
      ...given, xaxis: { ...axis, ...given.xaxis }, yaxis,
    };
  };

  // Its buttons cannot be reached by keyboard; the page has its own.
  const CONFIGURED = { displayModeBar: false, doubleClick: false, responsive: true };
  const range = (axis) => (axis.type === "log" ? axis.range.map((end) => 10 ** end) : axis.range)
    .slice().sort((a, b) => a - b);
  const tell = (figure, { drawn, points }) => {
    figure.querySelector(".drawn").textContent = drawn < points
      ? `${drawn.toLocaleString("en")} of ${points.toLocaleString("en")} points are drawn; ` +
        "zoom in for the others. The CSV has all."
      : "";
  };
  let plotly = null;
  const needPlotly = () => {
    plotly ??= unpacked("plotly").blob().then((blob) => new Promise((loaded, failed) => {
      const script = document.createElement("script");
      script.src = URL.createObjectURL(new Blob([blob], { type: "text/javascript" }));
      script.onload = loaded;
      script.onerror = failed;
      document.head.append(script);
    }));
    return plotly;
  };
  const draw = async (figure) => {
    await Promise.all([needPage(), needPlotly()]);
    if (!figure.touched) return; // it was given back meanwhile
    const plot = chosen(figure);
    const table = page.tables[plot.table];
    const canvas = figure.querySelector(".canvas");
    const made = tracesOf(plot, table, null);
    const first = !canvas.layout;
    if (first) canvas.style.height = `${figure.querySelector(".still").getBoundingClientRect().height}px`;
    figure.classList.add("live");
    await Plotly.react(canvas, made.traces, layoutOf(plot, table, figure), CONFIGURED);
    tell(figure, made);
    figure.dataset.drawn = "yes";
    figure.querySelector("[data-do=reset]").hidden = true;
    if (first) {
      canvas.on("plotly_relayout", (change) => zoomed(figure, change));
      canvas.on("plotly_doubleclick", () => draw(figure));
    }
  };
  const touch = (figure) => figure.touched ??= draw(figure);
  // The still drawing has the colours and the width that the page has now.
  const giveBack = (figure) => {
    if (!figure.touched) return;
    figure.touched = null;
    if (figure.dataset.drawn) Plotly.purge(figure.querySelector(".canvas"));
    figure.classList.remove("live");
    delete figure.dataset.drawn;
  };
  // Points that were left out are drawn where there is room for them.
  const zoomed = async (figure, change) => {
    if (!Object.keys(change).some((key) => /^[xy]axis\.range/.test(key))) return;
    const plot = chosen(figure);
    const canvas = figure.querySelector(".canvas");
    figure.querySelector("[data-do=reset]").hidden = false;
    const table = page.tables[plot.table];
    const view = { x: range(canvas.layout.xaxis), y: range(canvas.layout.yaxis) };
    const made = tracesOf(plot, table, view);
    const { dtick: _dtick, ...yaxis } = canvas.layout.yaxis; // ticks of the whole are too few here
    await Plotly.react(canvas, made.traces, { ...canvas.layout, yaxis }, CONFIGURED);
    tell(figure, made);
  };

  // ----- what is saved -----

  const save = (name, parts, type) => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob(parts, { type }));
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  };
  const quoted = (value) => {
    if (value === null || value === undefined) return "";
    return /[",\n]/.test(value) ? `"${String(value).replace(/"/g, '""')}"` : String(value);
  };
  const csv = (plot) => {
    const table = page.tables[plot.table];
    const columns = plot.saved.map((name) => column(table, name));
    const lines = [plot.saved, ...columns[0].map((_, row) => columns.map((one) => one[row]))];
    return lines.map((line) => `${line.map(quoted).join(",")}\n`);
  };
  const fileOf = (plot) => [page.name, plot.subject, plot.key].filter(Boolean).join("-")
    .replace(/[^\w.-]+/g, "_");
  const actions = {
    csv: (_figure, plot) => save(`${fileOf(plot)}.csv`, csv(plot), "text/csv"),
    png: async (figure, plot) => {
      await touch(figure);
      const canvas = figure.querySelector(".canvas");
      const layout = { ...canvas.layout, paper_bgcolor: style("--paper"),
        title: { text: escaped(figure.querySelector("figcaption b").textContent) } };
      layout.margin = { ...layout.margin, t: 48 };
      await Plotly.downloadImage({ data: canvas.data, layout }, { format: "png", scale: 2,
        width: canvas.clientWidth, height: canvas.clientHeight + 36, filename: fileOf(plot) });
    },
    reset: async (figure) => {
      figure.querySelector("[data-do=png]").focus(); // this button goes away
      await draw(figure);
    },
  };

  // ----- the page -----

  const figures = [...document.querySelectorAll("figure[data-plot]")];
  const tabbable = () => {
    for (const one of document.querySelectorAll(".scroll, pre")) {
      if (one.scrollWidth > one.clientWidth || one.scrollHeight > one.clientHeight) one.tabIndex = 0;
      else one.removeAttribute("tabindex");
    }
  };
  const again = () => figures.forEach(giveBack);
  const choose = () => {
    for (const one of document.querySelectorAll("[data-subject]")) {
      one.hidden = one.dataset.subject !== chooser.value;
    }
    again();
    tabbable();
  };
  for (const figure of figures) {
    const plot = figure.querySelector(".plot");
    plot.addEventListener("click", () => touch(figure));
    plot.addEventListener("pointermove", ({ movementX, movementY }) => {
      if (movementX || movementY) touch(figure); // the page may move under a pointer that rests
    });
    figure.addEventListener("focusin", ({ target }) => {
      if (target.matches(":focus-visible")) touch(figure);
    });
    for (const button of figure.querySelectorAll("button")) {
      button.addEventListener("click", async () => {
        await needPage();
        actions[button.dataset.do](figure, chosen(figure));
      });
    }
  }
  if (chooser) {
    chooser.addEventListener("change", choose);
    choose();
  }
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", again);
  addEventListener("resize", tabbable);
  document.addEventListener("toggle", tabbable, true); // what was folded has a size now
  tabbable();
  document.documentElement.dataset.ready = "yes";
})();
