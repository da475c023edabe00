"use strict";
// What stands around the traces of a figure: margins, axes, shapes, annotations, colour bars.
(function () {
  const { Axis, finite, format, lines, wide, wrap } = window.PlotAxes;
  const { borders, centresOf, dashes, draw, filled, heatEnds, scaled, stroked } = window.PlotTraces;
  const INK = "#17222d", MUTED = "#5a6773", RULE = "#dde3e8", LINE = "#aab4bd";
  const TEXT = 12;

  const numbersOf = (trace, letter) => {
    const values = trace[letter];
    if (Array.isArray(values)) return values;
    const [start, step] = letter === "x" ? [trace.x0 || 0, trace.dx || 1] : [trace.y0 || 0, trace.dy || 1];
    return (trace[letter === "x" ? "y" : "x"] || []).map((_, k) => start + k * step);
  };
  // A trace with both coordinates of every point.
  const complete = (trace) => (["bar", "scatter", undefined].includes(trace.type)
    ? { ...trace, x: numbersOf(trace, "x"), y: numbersOf(trace, "y") } : trace);

  const barSlot = (traces, trace, gap) => {
    const bars = traces.filter((other) => other.type === "bar");
    const places = [...new Set(bars.flatMap((other) => other.x))].filter(finite).sort((a, b) => a - b);
    const apart = places.slice(1).reduce((least, value, k) => Math.min(least, value - places[k]), Infinity);
    const room = (finite(apart) ? apart : 1) * (1 - (gap === undefined ? 0.2 : gap));
    const width = room / bars.length;
    return { width, start: -room / 2 + width * bars.indexOf(trace) };
  };

  function extend(axis, trace, traces, gap) {
    const letter = axis.letter;
    if (trace.type === "heatmap") {
      const ends = borders(centresOf(trace, letter));
      axis.include(ends[0], true);
      axis.include(ends[ends.length - 1], true);
      return;
    }
    if (trace.type === "bar") {
      const slot = barSlot(traces, trace, gap);
      if (letter === "y") axis.include(0, true);
      trace[letter].forEach((value) => {
        if (letter === "y") axis.include(value);
        else [value + slot.start, value + slot.start + slot.width].forEach((end) => axis.include(end, true));
      });
      return;
    }
    const bar = trace["error_" + letter];
    trace[letter].forEach((value, k) => {
      const other = trace[letter === "x" ? "y" : "x"][k];
      if (other === null || other === undefined) return;
      axis.include(value, letter === "x" && trace.fill === "tozeroy");
      if (!bar || !finite(value) || !Array.isArray(bar.array)) return;
      axis.include(value + (bar.array[k] || 0));
      axis.include(value - ((bar.arrayminus || bar.array)[k] || 0));
    });
    if (trace.fill === "tozeroy" && letter === "y" && !axis.log) axis.include(0, true);
    if (!trace.mode || /markers|text/.test(trace.mode) || trace.error_x || trace.error_y) axis.padded = true;
  }

  // All axes of a layout with their ranges, by their ids.
  function axesOf(traces, layout, zoomed) {
    const axes = {};
    const names = Object.keys(layout).filter((name) => /^[xy]axis\d*$/.test(name));
    for (const name of new Set(["xaxis", "yaxis", ...names])) {
      const axis = new Axis(name, layout[name] || {});
      axes[axis.id] = axis;
    }
    for (const axis of Object.values(axes)) {
      traces.filter((trace) => (trace[axis.letter + "axis"] || axis.letter) === axis.id && trace.type !== "scatterternary")
        .forEach((trace) => extend(axis, trace, traces, layout.bargap));
    }
    for (const axis of Object.values(axes)) {
      const other = axes[axis.settings.matches];
      if (!other) continue;
      const ends = [Math.min(axis.extent[0], other.extent[0]), Math.max(axis.extent[1], other.extent[1])];
      axis.extent = other.extent = ends;
    }
    Object.values(axes).forEach((axis) => axis.fit(zoomed[axis.id]));
    return axes;
  }

  const titleOf = (settings) => (typeof settings.title === "string" ? { text: settings.title } : settings.title || {});
  const sizeOf = (font, other) => (font && font.size) || other;
  const HIGH = 1.2; // height of a line of text, in sizes of its type

  // Room that the labels and the title of an axis need beside it; least: room for the labels,
  // so that the titles of panels above each other stand in one line.
  function reach(axis, room, least = 0) {
    const { settings } = axis;
    if (axis.hidden) return 0;
    const ticks = settings.showticklabels === false ? [] : axis.ticks();
    const size = sizeOf(settings.tickfont, TEXT), title = titleOf(settings);
    const outer = settings.ticks === "outside" ? (settings.ticklen || 5) + 3 : 3;
    const label = axis.letter === "y" ? Math.max(0, ...ticks.map((tick) => wide(tick[1], size)))
      : Math.max(0, ...ticks.map((tick) => tick[1].split("\n").length)) * size * HIGH;
    axis.labels = Math.max(outer + label, least);
    axis.titles = title.text ? wrap(title.text, room, sizeOf(title.font, 13)) : [];
    const rows = axis.titles.length * sizeOf(title.font, 13) * HIGH;
    return axis.labels + (rows ? rows + (title.standoff === undefined ? 8 : Math.min(title.standoff, 8)) : 0);
  }

  const anchorOf = (axis, axes) => axes[axis.settings.anchor] || axes[axis.letter === "x" ? "y" : "x"];

  // Margins by what has to stand in them; then each axis gets its place.
  function frameOf(axes, layout, size, bars) {
    const margin = { l: 40, r: 14, t: 12, b: 36, ...layout.margin };
    const all = Object.values(axes), [xs, ys] = ["x", "y"].map((letter) => all.filter((axis) => axis.letter === letter));
    const share = (axis) => axis.settings.domain || [0, 1];
    let frame = { left: margin.l, top: margin.t, width: Math.max(size.width - margin.l - margin.r, 40), height: size.height - margin.t - margin.b };
    for (let turn = 0; turn < 2; turn += 1) { // the second time with the ticks of the first
      xs.forEach((axis) => axis.place(frame.left + share(axis)[0] * frame.width, frame.left + share(axis)[1] * frame.width));
      ys.forEach((axis) => axis.place(frame.top + (1 - share(axis)[0]) * frame.height, frame.top + (1 - share(axis)[1]) * frame.height));
      ys.forEach((axis) => reach(axis, Math.max(axis.length, 60) + 8));
      const labels = Math.max(0, ...ys.filter((axis) => !axis.hidden).map((axis) => axis.labels));
      const left = Math.max(size.width < 500 ? 0 : 44, ...ys.map((axis) => reach(axis, Math.max(axis.length, 60) + 8, labels)));
      const below = Math.max(0, ...xs.map((axis) => reach(axis, axis.length)));
      const right = Math.max(margin.r, bars ? 66 : 0);
      frame = { left: left + 4, top: margin.t, width: Math.max(size.width - left - 4 - right, 40), height: Math.max(size.height - margin.t - below - 4, 40) };
    }
    xs.forEach((axis) => axis.place(frame.left + share(axis)[0] * frame.width, frame.left + share(axis)[1] * frame.width));
    ys.forEach((axis) => axis.place(frame.top + (1 - share(axis)[0]) * frame.height, frame.top + (1 - share(axis)[1]) * frame.height));
    return frame;
  }

  // Labels that would touch their neighbour are left out; their marks stay.
  function spaced(axis, ticks, size) {
    let last = -Infinity;
    const placed = ticks.map((tick) => [axis.pixelOf(tick[0]), tick[1]]).sort((a, b) => a[0] - b[0]);
    return placed.filter(([at, text]) => {
      const half = axis.letter === "x" ? wide(text, size) / 2 : size * 0.5;
      if (at - half < last + (axis.letter === "x" ? 5 : 1) || !text) return false;
      last = at + half;
      return true;
    });
  }

  const say = (group, x, y, rows, font, settings = {}) => {
    const size = sizeOf(font, 13);
    rows.forEach((row, k) => draw("text", group, { x, y: y + k * size * HIGH, "font-size": size, style: filled((font && font.color) || MUTED), ...settings }, row));
  };

  function drawGrid(group, axis, axes) {
    const { settings } = axis;
    if (axis.hidden || settings.showgrid === false) return;
    const across = Object.values(axes).filter((other) => other.letter !== axis.letter && !other.hidden &&
      (axis.letter === "x" || other === anchorOf(axis, axes)));
    for (const other of across) {
      const d = axis.ticks().map((tick) => {
        const at = axis.pixelOf(tick[0]).toFixed(2);
        return axis.letter === "x" ? "M" + at + " " + other.from + "V" + other.to : "M" + other.from + " " + at + "H" + other.to;
      }).join("");
      if (d) draw("path", group, { d, class: "grid", fill: "none", style: stroked(settings.gridcolor || RULE, 1) });
    }
  }

  function drawAxis(group, axis, axes) {
    const { settings } = axis;
    if (axis.hidden) return;
    const foot = anchorOf(axis, axes).from, x = axis.letter === "x";
    const ticks = axis.ticks(), long = settings.ticks === "outside" ? settings.ticklen || 5 : 0;
    if (settings.linecolor && settings.showline !== false) {
      draw("path", group, { d: x ? "M" + axis.from + " " + foot + "H" + axis.to : "M" + foot + " " + axis.from + "V" + axis.to, class: "axis", style: stroked(settings.linecolor, 1) });
    }
    if (long) {
      const d = ticks.map((tick) => (x ? "M" + axis.pixelOf(tick[0]) + " " + foot + "v" + long : "M" + foot + " " + axis.pixelOf(tick[0]) + "h" + -long)).join("");
      if (d) draw("path", group, { d, class: "tick", style: stroked(settings.tickcolor || LINE, 1) });
    }
    const size = sizeOf(settings.tickfont, TEXT), title = titleOf(settings);
    if (settings.showticklabels !== false) {
      for (const [at, text] of spaced(axis, ticks, size)) {
        if (x) say(group, at, foot + long + 2 + size, [text], { size, ...settings.tickfont }, { "text-anchor": "middle", class: "label" });
        else say(group, foot - long - 3, at + size * 0.36, [text], { size, ...settings.tickfont }, { "text-anchor": "end", class: "label" });
      }
    }
    if (!axis.titles || !axis.titles.length) return;
    const middle = (axis.from + axis.to) / 2, type = sizeOf(title.font, 13), gap = title.standoff === undefined ? 8 : Math.min(title.standoff, 8);
    if (x) say(group, middle, foot + axis.labels + gap + type * 0.85, axis.titles, { size: type, ...title.font }, { "text-anchor": "middle", class: "title" });
    else {
      const turned = draw("g", group, { transform: "translate(" + (foot - axis.labels - gap - 3 - (axis.titles.length - 1) * type * HIGH) + "," + middle + ") rotate(-90)" });
      say(turned, 0, 0, axis.titles, { size: type, ...title.font }, { "text-anchor": "middle", class: "title" });
    }
  }

  // Place of a coordinate by its reference: an axis, the domain of one, or the whole frame.
  function placer(ref, letter, axes, frame, logged) {
    const [id, domain] = String(ref || "paper").split(" ");
    const axis = axes[id];
    if (id === "paper" || !axis) {
      return letter === "x" ? (value) => frame.left + value * frame.width : (value) => frame.top + (1 - value) * frame.height;
    }
    if (domain) return (value) => axis.from + value * (axis.to - axis.from);
    return (value) => (logged && axis.log ? axis.pixelOf(value) : axis.pixel(value));
  }

  function drawShapes(groups, layout, axes, frame, below) {
    for (const shape of layout.shapes || []) {
      if ((shape.layer === "below") !== below) continue;
      const [x, y] = [placer(shape.xref || "x", "x", axes, frame), placer(shape.yref || "y", "y", axes, frame)];
      const [x0, x1, y0, y1] = [x(shape.x0), x(shape.x1), y(shape.y0), y(shape.y1)];
      if (![x0, x1, y0, y1].every(Number.isFinite)) continue;
      const group = shape.xref === "paper" && shape.yref === "paper" ? groups.free : groups.cut;
      const line = shape.line || {}, width = line.width === undefined ? 2 : line.width;
      const edge = width ? stroked(line.color || INK, width, shape.opacity) : "stroke:none";
      const settings = { class: "shape", "stroke-dasharray": dashes(line.dash, width) };
      if (shape.type === "line") draw("path", group, { d: "M" + x0 + " " + y0 + "L" + x1 + " " + y1, style: edge, ...settings });
      else {
        draw("rect", group, { x: Math.min(x0, x1), y: Math.min(y0, y1), width: Math.abs(x1 - x0), height: Math.abs(y1 - y0),
          style: (shape.fillcolor ? filled(shape.fillcolor, shape.opacity) : "fill:none") + ";" + edge, ...settings });
      }
    }
  }

  function drawNotes(group, layout, axes, frame, size) {
    for (const note of layout.annotations || []) {
      const x = placer(note.xref || "x", "x", axes, frame, true)(note.x) + (note.xshift || 0);
      const y = placer(note.yref || "y", "y", axes, frame, true)(note.y) - (note.yshift || 0);
      if (!Number.isFinite(x) || !Number.isFinite(y)) continue;
      const type = sizeOf(note.font, 12), rows = wrap(note.text, Math.max(size.width - 40, 120), type);
      const far = Math.max(...rows.map((row) => wide(row, type))), high = rows.length * type * HIGH;
      const thirds = (share) => (share < 1 / 3 ? 0 : share > 2 / 3 ? 1 : 0.5);
      const across = { left: 0, center: 0.5, right: 1 }[note.xanchor] ?? (String(note.xref) === "paper" ? thirds(note.x) : 0.5);
      const up = { top: 0, middle: 0.5, bottom: 1 }[note.yanchor] ?? (String(note.yref) === "paper" ? thirds(1 - note.y) : 0.5);
      const left = Math.min(Math.max(x - across * far, 0), Math.max(size.width - far, 0)); // inside the figure
      const part = draw("g", group, { class: "annotation" });
      say(part, left + far * across, y - up * high + type * 0.95, rows, { size: type, color: INK, ...note.font }, { "text-anchor": ["start", "middle", "end"][2 * across] });
    }
  }

  // Scale of the colours at the right edge, with its ticks and its title.
  function drawBar(group, source, ends, frame, size) {
    const bar = source.colorbar || {}, thick = Math.min(bar.thickness || 14, 16);
    const share = bar.len === undefined ? 1 : bar.len;
    const high = share * frame.height, x = size.width - 58;
    const middle = bar.y === undefined ? 0.5 : bar.y;
    const top = Math.max(frame.top, frame.top + (1 - middle) * frame.height - { top: 0, bottom: high }[bar.yanchor] || 0) || frame.top;
    const rows = wrap(titleOf(bar).text || "", 64, 12);
    const start = top + (rows[0] ? rows.length * 12 * HIGH + 4 : 0), length = Math.max(high - (start - top), 30);
    if (rows[0]) say(group, x, top + 11, rows, { size: 12, color: MUTED }, { class: "title" });
    const slices = 48;
    for (let k = 0; k < slices; k += 1) {
      draw("rect", group, { x, y: start + k * length / slices, width: thick, height: length / slices + 0.6, fill: scaled(source.colorscale, 1 - (k + 0.5) / slices), class: "ramp" });
    }
    const axis = new Axis("yaxis", { tickformat: bar.tickformat, tickvals: bar.tickvals, ticktext: bar.ticktext, nticks: 6 });
    axis.range = ends;
    axis.place(start + length, start);
    for (const [at, text] of spaced(axis, axis.ticks(), 12)) say(group, x + thick + 5, at + 4, [text], { size: 12, color: MUTED }, { class: "label" });
  }

  // Colour scales of a picture: each with its ends.
  const scalesOf = (traces) => traces.flatMap((trace) => {
    if (trace.type === "heatmap" && trace.showscale !== false && trace.z.flat().some(finite)) return [[trace, heatEnds(trace)]];
    const marker = trace.marker || {};
    if (!Array.isArray(marker.color) || !marker.color.some(finite) || !marker.colorscale || marker.showscale === false) return [];
    const known = marker.color.filter(finite);
    return [[marker, [finite(marker.cmin) ? marker.cmin : Math.min(...known), finite(marker.cmax) ? marker.cmax : Math.max(...known)]]];
  });

  // Triangle of three shares; returns the place of a triple.
  function drawTriangle(group, ternary, size, bars) {
    const [a, b, c] = ["aaxis", "baxis", "caxis"].map((name) => wrap(titleOf(ternary[name] || {}).text || "", size.width * 0.4, 13));
    const top = 14 + a.length * 13 * HIGH, below = 14 + Math.max(b.length, c.length) * 13 * HIGH;
    const room = size.width - 28 - (bars ? 74 : 0);
    const side = Math.max(60, Math.min(room, (size.height - top - below) / 0.866));
    const left = 14 + (room - side) / 2, foot = top + side * 0.866;
    const place = (p, q, r) => {
      const sum = p + q + r;
      return [left + side * (r + p / 2) / sum, foot - side * 0.866 * p / sum];
    };
    const line = (from, to) => "M" + from.map((v) => v.toFixed(1)).join(" ") + "L" + to.map((v) => v.toFixed(1)).join(" ");
    const outline = line(place(1, 0, 0), place(0, 1, 0)) + "L" + place(0, 0, 1).join(" ") + "Z";
    draw("path", group, { d: outline, style: filled(ternary.bgcolor || "#ffffff") });
    const step = (ternary.aaxis || {}).dtick || 0.25;
    let d = "";
    for (let at = step; at < 1 - 1e-6; at += step) {
      d += line(place(at, 1 - at, 0), place(at, 0, 1 - at)) + line(place(1 - at, at, 0), place(0, at, 1 - at)) + line(place(1 - at, 0, at), place(0, 1 - at, at));
    }
    draw("path", group, { d, class: "grid", style: stroked((ternary.aaxis || {}).gridcolor || RULE, 1) });
    draw("path", group, { d: outline, fill: "none", class: "axis", style: stroked((ternary.aaxis || {}).linecolor || LINE, 1) });
    say(group, left + side / 2, 16, a, { size: 13, color: INK }, { "text-anchor": "middle", class: "title" });
    say(group, Math.max(left, 2), foot + 20, b, { size: 13, color: INK }, { class: "title" });
    say(group, left + side, foot + 20, c, { size: 13, color: INK }, { "text-anchor": "end", class: "title" });
    return { place, frame: { left, top, width: side, height: foot - top } };
  }

  window.PlotFrame = { axesOf, barSlot, complete, drawAxis, drawBar, drawGrid, drawNotes, drawShapes, drawTriangle, format, frameOf, lines, scalesOf };
}());
