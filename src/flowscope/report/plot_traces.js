"use strict";
// Traces of a figure as SVG. Colours are CSS variables where the theme knows them, so that one
// drawing serves the light and the dark page.
(function () {
  const { finite, lines } = window.PlotAxes;
  const SPACE = "http://www.w3.org/2000/svg";
  const BLUE = "#0072b2";
  const pick = (value, k) => (Array.isArray(value) ? value[k] : value);

  function draw(tag, parent, settings, text) {
    const element = document.createElementNS(SPACE, tag);
    for (const [name, value] of Object.entries(settings)) {
      if (value !== undefined) element.setAttribute(name, value);
    }
    if (text !== undefined) element.textContent = text; // never markup: the words are not ours
    parent.appendChild(element);
    return element;
  }

  // "#rrggbb" and "rgba(r,g,b,a)" as a CSS colour and an opacity.
  function paint(colour) {
    const hex = /^#([0-9a-f]{6})$/i.exec(colour || "");
    if (hex) return ["var(--c-" + hex[1].toLowerCase() + ", " + colour + ")", 1];
    if (/^rgb\(/.test(colour || "")) return [colour, 1]; // of a colour scale, the same in both themes
    const parts = /^rgba?\(([\d.]+),\s*([\d.]+),\s*([\d.]+)(?:,\s*([\d.]+))?\)$/.exec(colour || "");
    if (!parts) return ["currentColor", 1];
    const code = parts.slice(1, 4).map((part) => Math.round(Number(part)).toString(16).padStart(2, "0")).join("");
    return ["var(--c-" + code + ", #" + code + ")", parts[4] === undefined ? 1 : Number(parts[4])];
  }
  const filled = (colour, opacity = 1) => {
    const [ink, share] = paint(colour);
    return "fill:" + ink + ";fill-opacity:" + share * opacity;
  };
  const stroked = (colour, width, opacity = 1) => {
    const [ink, share] = paint(colour);
    return "stroke:" + ink + ";stroke-opacity:" + share * opacity + ";stroke-width:" + width;
  };

  const channels = (hex) => [1, 3, 5].map((k) => parseInt(hex.slice(k, k + 2), 16));
  function scaled(scale, share) {
    const at = Math.min(Math.max(share, 0), 1);
    const above = Math.max(1, scale.findIndex((stop) => stop[0] >= at));
    const [[a, low], [b, high]] = [scale[above - 1], scale[above]];
    const part = b > a ? (at - a) / (b - a) : 0;
    const ends = channels(high);
    return "rgb(" + channels(low).map((c, k) => Math.round(c + part * (ends[k] - c))).join(",") + ")";
  }

  const dashes = (dash, width) => ({ dash: [3, 3], dot: [1, 1], dashdot: [3, 1, 1, 1], longdash: [5, 5] }[dash] || [])
    .map((part) => part * Math.max(width, 3)).join(" ") || undefined;

  // A mark around the origin, as plotly sizes it.
  function symbol(name, r) {
    const shape = String(name || "circle").replace("-open", "");
    const point = (angle, far) => (far * Math.cos(angle)).toFixed(2) + " " + (-far * Math.sin(angle)).toFixed(2);
    const ring = (sides, far, turn) => "M" + Array.from({ length: sides }, (_, k) => point(turn + 2 * Math.PI * k / sides, far)).join("L") + "Z";
    const half = Math.PI / 2;
    if (shape === "square") return ring(4, r * Math.SQRT2, half / 2);
    if (shape === "diamond") return ring(4, r * 1.3, half);
    if (shape === "triangle-up") return ring(3, r * 1.155, half);
    if (shape === "triangle-down") return ring(3, r * 1.155, -half);
    if (shape === "hexagon") return ring(6, r, half);
    if (shape === "x-thin") return "M" + -r + " " + -r + "L" + r + " " + r + "M" + r + " " + -r + "L" + -r + " " + r;
    if (shape === "cross-thin") return "M" + -r + " 0H" + r + "M0 " + -r + "V" + r;
    return "M" + r + " 0A" + r + " " + r + " 0 1 1 " + -r + " 0A" + r + " " + r + " 0 1 1 " + r + " 0Z";
  }

  // Places of the points of a trace, each [x, y] in pixels or null where there is no number.
  function runs(places) {
    const parts = [[]];
    for (const place of places) {
      if (place) parts[parts.length - 1].push(place);
      else if (parts[parts.length - 1].length) parts.push([]);
    }
    return parts.filter((part) => part.length);
  }
  const path = (places) => "M" + places.map((place) => place[0].toFixed(2) + " " + place[1].toFixed(2)).join("L");

  const modeOf = (trace, count) => trace.mode || (count < 20 ? "lines+markers" : "lines");

  function drawLine(group, trace, places) {
    const line = trace.line || {};
    const width = line.width === undefined ? 2 : line.width;
    const d = runs(places).filter((part) => part.length > 1).map(path).join("");
    if (!d || !width) return;
    draw("path", group, { d, fill: "none", class: "line", "stroke-dasharray": dashes(line.dash, width), "stroke-linejoin": "round",
      style: stroked(line.color || (trace.marker || {}).color || BLUE, width, trace.opacity) });
  }

  function markColour(trace, k) {
    const marker = trace.marker || {}, value = pick(marker.color, k);
    if (!finite(value)) return value || (trace.line || {}).color || BLUE;
    const known = marker.color.filter(finite);
    const [low, high] = [finite(marker.cmin) ? marker.cmin : Math.min(...known), finite(marker.cmax) ? marker.cmax : Math.max(...known)];
    return scaled(marker.colorscale, high > low ? (value - low) / (high - low) : 0.5);
  }

  function drawMark(group, trace, place, k) {
    const marker = trace.marker || {}, outline = marker.line || {};
    const colour = markColour(trace, k), name = String(pick(marker.symbol, k) || "circle");
    const size = pick(marker.size, k), edge = pick(outline.width, k);
    const thin = name.endsWith("-thin"), open = name.endsWith("-open");
    const opacity = (finite(pick(marker.opacity, k)) ? pick(marker.opacity, k) : 1) * (trace.opacity === undefined ? 1 : trace.opacity);
    const width = edge === undefined ? (open ? 1 : 0) : Math.max(edge, open ? 1 : 0);
    const border = open ? colour : pick(outline.color, k) || colour;
    const style = (thin || open ? "fill:none" : filled(colour, opacity)) + ";" + (width ? stroked(border, width, opacity) : "stroke:none");
    draw("path", group, { d: symbol(name, (size === undefined ? 6 : size) / 2), class: "point", style,
      transform: "translate(" + place[0].toFixed(2) + "," + place[1].toFixed(2) + ")" });
  }

  function drawWords(group, trace, place, k) {
    const text = lines(pick(trace.text, k)).join(" ");
    if (!text) return;
    const [down, across] = String(pick(trace.textposition, k) || "middle center").split(" ");
    const far = (pick((trace.marker || {}).size, k) || 0) / 2 + 3, font = trace.textfont || {};
    const size = font.size || 12;
    const x = place[0] + ({ left: -far, right: far }[across] || 0);
    const y = place[1] + ({ top: -far, bottom: far + size * 0.8 }[down] || size * 0.35);
    draw("text", group, { x, y, "text-anchor": { left: "end", right: "start" }[across] || "middle", "font-size": size, style: filled(font.color || "#17222d") }, text);
  }

  function drawErrors(group, trace, places, axes) {
    for (const [name, axis, along] of [["error_x", axes.x, 0], ["error_y", axes.y, 1]]) {
      const bar = trace[name];
      if (!bar || bar.visible === false || !Array.isArray(bar.array)) continue;
      const cap = bar.width === undefined ? 4 : bar.width, values = along ? trace.y : trace.x;
      let d = "";
      places.forEach((place, k) => {
        if (!place || !finite(bar.array[k])) return;
        const minus = bar.symmetric === false && bar.arrayminus ? bar.arrayminus[k] : bar.array[k];
        const ends = [values[k] - (finite(minus) ? minus : 0), values[k] + bar.array[k]].map((end) => {
          const at = axis.pixel(end);
          return Number.isFinite(at) ? at : axis.from; // below the foot of a logarithmic axis
        });
        const [a, b] = ends.map((end) => end.toFixed(2)), [x, y] = place;
        if (along) d += "M" + x + " " + a + "V" + b + (cap ? "M" + (x - cap) + " " + a + "h" + 2 * cap + "M" + (x - cap) + " " + b + "h" + 2 * cap : "");
        else d += "M" + a + " " + y + "H" + b + (cap ? "M" + a + " " + (y - cap) + "v" + 2 * cap + "M" + b + " " + (y - cap) + "v" + 2 * cap : "");
      });
      if (d) draw("path", group, { d, fill: "none", class: "error", style: stroked(bar.color || (trace.marker || {}).color || BLUE, bar.thickness || 2) });
    }
  }

  // Curve, band or points; groups: "under" is clipped at the axes, "over" is not.
  function drawScatter(groups, trace, places, axes) {
    const mode = modeOf(trace, places.length);
    if (trace.fill === "toself" || trace.fill === "tozeroy") {
      const foot = axes.y ? (axes.y.log ? axes.y.from : axes.y.pixel(0)) : 0;
      const d = runs(places).map((part) => (trace.fill === "toself" ? path(part) + "Z"
        : path([[part[0][0], foot], ...part, [part[part.length - 1][0], foot]]) + "Z")).join("");
      if (d) draw("path", groups.under, { d, class: "fill", stroke: "none", style: filled(trace.fillcolor || (trace.line || {}).color || BLUE) });
    }
    if (mode.includes("lines")) drawLine(groups.under, trace, places);
    if (axes.x) drawErrors(groups.under, trace, places, axes);
    places.forEach((place, k) => {
      if (!place || !place[2]) return; // place[2]: inside the axes
      if (mode.includes("markers")) drawMark(groups.over, trace, place, k);
      if (mode.includes("text")) drawWords(groups.over, trace, place, k);
    });
  }

  function drawBars(group, trace, axes, slot) {
    const cells = [];
    const foot = axes.y.log ? axes.y.from : axes.y.pixel(0);
    trace.x.forEach((value, k) => {
      const top = axes.y.pixel(trace.y[k]);
      if (!Number.isFinite(top) || !finite(value)) return;
      const a = axes.x.pixel(value + slot.start), b = axes.x.pixel(value + slot.start + slot.width);
      const cell = { x: Math.min(a, b), y: Math.min(top, foot), width: Math.abs(b - a), height: Math.abs(foot - top) };
      draw("rect", group, { ...cell, class: "bar", style: filled(markColour(trace, k), trace.opacity) });
      cells.push({ ...cell, k });
    });
    return cells;
  }

  // Borders between the cells of a heat map whose centres are given.
  function borders(centres) {
    if (centres.length === 1) return [centres[0] - 0.5, centres[0] + 0.5];
    const inner = centres.slice(1).map((value, k) => (value + centres[k]) / 2);
    return [2 * centres[0] - inner[0], ...inner, 2 * centres[centres.length - 1] - inner[inner.length - 1]];
  }
  const centresOf = (trace, letter) => trace[letter] ||
    Array.from({ length: letter === "y" ? trace.z.length : trace.z[0].length }, (_, k) => k);

  function drawHeat(group, trace, axes) {
    const cells = [], [low, high] = heatEnds(trace);
    const xs = borders(centresOf(trace, "x")).map((value) => axes.x.pixelOf(value));
    const ys = borders(centresOf(trace, "y")).map((value) => axes.y.pixelOf(value));
    const [gapX, gapY] = [trace.xgap || 0, trace.ygap || 0];
    trace.z.forEach((row, i) => row.forEach((value, j) => {
      if (!finite(value)) return;
      const [x, y] = [Math.min(xs[j], xs[j + 1]), Math.min(ys[i], ys[i + 1])];
      const [wide, high_] = [Math.abs(xs[j + 1] - xs[j]), Math.abs(ys[i + 1] - ys[i])];
      draw("rect", group, { x: (x + gapX / 2).toFixed(2), y: (y + gapY / 2).toFixed(2), class: "cell",
        width: Math.max(wide - gapX, wide / 2).toFixed(2), height: Math.max(high_ - gapY, high_ / 2).toFixed(2),
        fill: scaled(trace.colorscale, high > low ? (value - low) / (high - low) : 0.5) });
      cells.push({ x, y, width: wide, height: high_, i, j });
    }));
    return cells;
  }

  function heatEnds(trace) {
    const known = trace.z.flat().filter(finite);
    return [finite(trace.zmin) ? trace.zmin : Math.min(...known), finite(trace.zmax) ? trace.zmax : Math.max(...known)];
  }

  window.PlotTraces = { borders, centresOf, dashes, draw, drawBars, drawHeat, drawScatter, filled, heatEnds, modeOf, pick, scaled, stroked };
}());
