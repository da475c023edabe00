"use strict";
// Plot.draw(box, picture) draws a picture (traces and layout, as plotly names them) into a box as
// SVG. A pointer, a finger or the arrow keys show the text of a point; dragging enlarges a part,
// a double click shows the whole again. What cannot be drawn is said in a sentence.
(function () {
  const { finite, format, lines } = window.PlotAxes;
  const { draw, drawBars, drawHeat, drawScatter, modeOf, pick } = window.PlotTraces;
  const frame_ = window.PlotFrame;
  const KNOWN = ["scatter", "bar", "heatmap", "scatterternary"];
  const states = new WeakMap();
  let count = 0;
  let shown = null; // the drawing and the place that the text in sight belongs to

  // Why a picture cannot be drawn, or nothing.
  function problem(picture) {
    if (!picture || !Array.isArray(picture.data) || !picture.layout) return "the data of this figure cannot be read";
    for (const trace of picture.data) {
      const type = trace.type || "scatter";
      if (!KNOWN.includes(type)) return "this page cannot draw the trace type “" + type + "”";
      if (trace.fill && !["none", "toself", "tozeroy"].includes(trace.fill)) return "this page cannot draw the fill “" + trace.fill + "”";
      if (type === "bar" && trace.orientation === "h") return "this page cannot draw horizontal bars";
    }
    return "";
  }

  const tip = document.createElement("div");
  tip.id = "plot-tip";
  tip.className = "tip";
  tip.setAttribute("role", "status");
  tip.hidden = true;
  document.body.appendChild(tip);
  const hide = () => {
    tip.hidden = true;
    document.querySelectorAll(".plot .ring").forEach((ring) => ring.remove());
  };

  function wordsOf(trace, k, at) {
    const info = trace.hoverinfo || "all";
    const x = pick(trace.x, k), y = pick(trace.y, k);
    if (trace.hovertemplate) {
      const filledIn = trace.hovertemplate.replace(/<extra>.*?<\/extra>/g, "").replace(/%\{(\w+)(?:\[(\d+)\])?(?::([^}]*))?\}/g, (_, name, index, pattern) => {
        const value = pick(trace[name], k);
        return format(index === undefined ? value : value[Number(index)], pattern);
      });
      return lines(filledIn);
    }
    const text = at ? ((trace.hovertext || trace.text || [])[at[0]] || [])[at[1]] : pick(trace.hovertext || trace.text, k);
    if (info === "text" || (text && info === "all")) return text === undefined || text === null ? [] : lines(text);
    if (at) return [format(trace.z[at[0]][at[1]])];
    return [...(trace.name ? lines(trace.name) : []), "(" + format(x) + ", " + format(y) + ")"];
  }

  const silent = (trace) => trace.hoverinfo === "skip" || trace.hoverinfo === "none";

  function cartesian(svg, state, traces, layout, size) {
    const axes = frame_.axesOf(traces, layout, state.zoomed);
    const scales = frame_.scalesOf(traces), frame = frame_.frameOf(axes, layout, size, scales.length > 0);
    const whole = "cut-" + state.number;
    draw("rect", draw("clipPath", draw("defs", svg, {}), { id: whole }), { x: frame.left, y: frame.top, width: frame.width, height: frame.height });
    const layer = (name) => ({ free: draw("g", svg, { class: name }), cut: draw("g", svg, { class: name, "clip-path": "url(#" + whole + ")" }) });
    frame_.drawShapes(layer("below"), layout, axes, frame, true);
    const back = draw("g", svg, { class: "back" });
    Object.values(axes).forEach((axis) => frame_.drawGrid(back, axis, axes));
    const pairs = {};
    traces.forEach((trace, number) => {
      const [x, y] = [axes[trace.xaxis || "x"], axes[trace.yaxis || "y"]];
      const name = "cut-" + state.number + "-" + x.id + y.id;
      const panel = { x: x.from, y: y.to, width: x.length, height: y.length };
      if (!pairs[name]) {
        pairs[name] = { axes: { x, y }, panel };
        draw("rect", draw("clipPath", draw("defs", svg, {}), { id: name }), panel);
      }
      const under = draw("g", svg, { "clip-path": "url(#" + name + ")", class: "trace " + (trace.type || "scatter") });
      if (trace.type === "heatmap" || trace.type === "bar") {
        const cells = trace.type === "heatmap" ? drawHeat(under, trace, { x, y }) : drawBars(under, trace, { x, y }, frame_.barSlot(traces, trace, layout.bargap));
        if (silent(trace)) return;
        cells.forEach((cell) => state.cells.push({ ...cell, number, words: () => wordsOf(trace, cell.k, cell.k === undefined ? [cell.i, cell.j] : null) }));
        return;
      }
      const places = trace.x.map((value, k) => {
        const [a, b] = [x.linear(value), y.linear(trace.y[k])];
        return Number.isFinite(a) && Number.isFinite(b) ? [x.pixelOf(a), y.pixelOf(b), x.within(a) && y.within(b)] : null;
      });
      const over = draw("g", svg, { class: "trace points" });
      drawScatter({ under, over }, trace, places, { x, y });
      listen(state, trace, number, places, under);
    });
    frame_.drawShapes(layer("above"), layout, axes, frame, false);
    Object.values(axes).forEach((axis) => frame_.drawAxis(svg, axis, axes));
    frame_.drawNotes(svg, layout, axes, frame, size);
    scales.forEach(([source, ends]) => frame_.drawBar(svg, source, ends, frame, size));
    state.panels = Object.values(pairs);
  }

  function listen(state, trace, number, places, group) {
    if (silent(trace)) return;
    if (trace.fill && typeof trace.hovertext === "string") {
      state.areas.push({ element: group.querySelector(".fill"), words: () => wordsOf(trace, 0) });
      return;
    }
    places.forEach((place, k) => {
      if (place && place[2] && wordsOf(trace, k).some(Boolean)) state.points.push({ x: place[0], y: place[1], number, words: () => wordsOf(trace, k) });
    });
  }

  function ternary(svg, state, traces, layout, size) {
    const scales = frame_.scalesOf(traces);
    const { place, frame } = frame_.drawTriangle(svg, layout.ternary || {}, size, scales.length > 0);
    traces.forEach((trace, number) => {
      const places = trace.a.map((a, k) => ([a, trace.b[k], trace.c[k]].every(finite) ? [...place(a, trace.b[k], trace.c[k]), true] : null));
      const group = draw("g", svg, { class: "trace points" });
      drawScatter({ under: group, over: group }, { ...trace, mode: modeOf(trace, places.length) }, places, {});
      listen(state, trace, number, places, group);
    });
    scales.forEach(([source, ends]) => frame_.drawBar(svg, source, ends, { ...frame, top: frame.top }, size));
  }

  function render(box) {
    const state = states.get(box), { picture } = state;
    const wrong = problem(picture);
    hide();
    Object.assign(state, { points: [], cells: [], areas: [], panels: [], shown: -1 });
    box.replaceChildren();
    if (wrong) {
      const said = document.createElement("p");
      said.className = "missing";
      said.textContent = "Not shown: " + wrong + ".";
      box.appendChild(said);
      return;
    }
    const { layout } = picture, traces = picture.data.map(frame_.complete);
    const size = { width: Math.max(state.fixed || box.clientWidth || 640, 160), height: layout.height || 400 };
    const svg = draw("svg", box, { width: size.width, height: size.height, viewBox: "0 0 " + size.width + " " + size.height, class: "chart", "aria-hidden": "true" });
    state.svg = svg;
    state.width = box.clientWidth;
    (layout.ternary ? ternary : cartesian)(svg, state, traces, layout, size);
    if (Object.keys(state.zoomed).length) {
      const button = document.createElement("button");
      button.className = "whole";
      button.textContent = "show all";
      button.addEventListener("click", () => reset(box));
      box.appendChild(button);
    }
  }

  function reset(box) {
    states.get(box).zoomed = {};
    render(box);
  }

  function show(state, words, at, ring) {
    hide();
    if (!words.length) return;
    tip.replaceChildren(...words.map((word) => {
      const line = document.createElement("p");
      line.textContent = word;
      return line;
    }));
    tip.hidden = false;
    if (ring) draw("circle", state.svg, { cx: ring.x, cy: ring.y, r: 7, class: "ring" });
    shown = { svg: state.svg, at };
    place();
  }

  // Beside its point, also while the page scrolls; away with the point.
  function place() {
    if (tip.hidden) return;
    const frame = shown.svg.getBoundingClientRect(), size = tip.getBoundingClientRect();
    const [x, y] = [frame.left + shown.at.x, frame.top + shown.at.y];
    const below = y + 16 + size.height < window.innerHeight;
    tip.style.top = (below ? y + 16 : Math.max(4, y - size.height - 14)) + "px";
    tip.style.left = Math.max(4, Math.min(x + 12, window.innerWidth - size.width - 8)) + "px";
  }

  // What stands at a place: a point near it, else the cell or the area below it.
  function hit(state, at, reach) {
    let [best, least] = [-1, reach];
    state.points.forEach((point, k) => {
      const far = Math.hypot(point.x - at.x, point.y - at.y);
      if (far < least) [best, least] = [k, far];
    });
    const cell = state.cells.find((each) => at.x >= each.x && at.x <= each.x + each.width && at.y >= each.y && at.y <= each.y + each.height);
    if (best >= 0 && (!cell || least < 6)) return { words: state.points[best].words(), point: state.points[best], index: best };
    if (cell) return { words: cell.words() };
    const area = state.areas.find(({ element }) => {
      const point = element && state.svg.createSVGPoint();
      return point && element.isPointInFill(Object.assign(point, at));
    });
    return area ? { words: area.words() } : null;
  }

  const placeIn = (state, event) => {
    const frame = state.svg.getBoundingClientRect();
    return { x: event.clientX - frame.left, y: event.clientY - frame.top };
  };

  function pointAt(box, event, reach) {
    const state = states.get(box);
    if (!state.svg) return;
    const at = placeIn(state, event), found = hit(state, at, reach);
    if (!found) { hide(); return; }
    state.shown = found.index === undefined ? -1 : found.index;
    show(state, found.words, found.point || at, found.point);
  }

  // Left and right: along a curve; up and down: to the next curve at the same place.
  function walk(box, event) {
    const state = states.get(box);
    if (event.key === "Escape") { hide(); return; }
    const steps = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -1, ArrowDown: 1 };
    const marks = state.points.length ? state.points
      : (state.cells || []).map((cell) => ({ ...cell, x: cell.x + cell.width / 2, y: cell.y + cell.height / 2 }));
    if (!(event.key in steps) || !marks.length) return;
    event.preventDefault();
    const now = marks[state.shown];
    let next = state.shown + steps[event.key];
    if (now && /Up|Down/.test(event.key)) {
      const numbers = [...new Set(marks.map((mark) => mark.number))];
      const number = numbers[numbers.indexOf(now.number) + steps[event.key]];
      const others = marks.map((mark, k) => [Math.abs(mark.x - now.x), k]).filter(([, k]) => marks[k].number === number);
      if (!others.length) return;
      next = others.sort((a, b) => a[0] - b[0])[0][1];
    }
    state.shown = Math.min(Math.max(next, 0), marks.length - 1);
    const mark = marks[state.shown];
    show(state, mark.words(), mark, mark);
  }

  // Dragging over a panel enlarges that part of it; a flat drag enlarges only along x.
  function startDrag(box, event) {
    const state = states.get(box), from = placeIn(state, event);
    const panel = state.panels.find(({ panel: p }) => from.x >= p.x && from.x <= p.x + p.width && from.y >= p.y && from.y <= p.y + p.height);
    if (!panel) return;
    event.preventDefault();
    const { x, y, width, height } = panel.panel;
    const area = draw("rect", state.svg, { class: "zoom", x: 0, y: 0, width: 0, height: 0 });
    let part = null;
    const move = (moved) => {
      const at = placeIn(state, moved);
      const to = { x: Math.min(Math.max(at.x, x), x + width), y: Math.min(Math.max(at.y, y), y + height) };
      const flat = Math.abs(to.y - from.y) < 12, narrow = Math.abs(to.x - from.x) < 12;
      part = flat && narrow ? null : { x: narrow ? null : [Math.min(from.x, to.x), Math.max(from.x, to.x)], y: flat ? null : [Math.min(from.y, to.y), Math.max(from.y, to.y)] };
      const [a, b] = [part && part.x ? part.x : [x, x + width], part && part.y ? part.y : [y, y + height]];
      const shown = part ? { x: a[0], y: b[0], width: a[1] - a[0], height: b[1] - b[0] } : { width: 0, height: 0 };
      Object.entries(shown).forEach(([name, value]) => area.setAttribute(name, value));
      hide();
    };
    const end = () => {
      window.removeEventListener("pointermove", move);
      window.removeEventListener("pointerup", end);
      area.remove();
      if (!part) return;
      for (const [letter, ends] of Object.entries(part)) {
        const axis = panel.axes[letter];
        if (!ends) continue;
        const range = ends.map((pixel) => axis.linearAt(pixel));
        state.zoomed[axis.id] = (range[0] < range[1]) === (axis.whole[0] < axis.whole[1]) ? range : range.reverse();
      }
      render(box);
    };
    window.addEventListener("pointermove", move);
    window.addEventListener("pointerup", end);
  }

  const observer = new ResizeObserver((entries) => entries.forEach(({ target }) => {
    const state = states.get(target);
    if (state && !state.fixed && target.clientWidth && target.clientWidth !== state.width) render(target);
  }));

  function prepare(box) {
    box.tabIndex = 0;
    box.addEventListener("pointermove", (event) => { if (event.pointerType !== "touch" && !event.buttons) pointAt(box, event, 24); });
    box.addEventListener("pointerleave", (event) => { if (event.pointerType !== "touch") hide(); });
    box.addEventListener("click", (event) => { if (event.target.tagName !== "BUTTON") pointAt(box, event, 36); });
    box.addEventListener("pointerdown", (event) => {
      const state = states.get(box);
      if (event.pointerType === "mouse" && event.button === 0 && event.target.tagName !== "BUTTON" && state.svg) startDrag(box, event);
    });
    box.addEventListener("dblclick", () => reset(box));
    box.addEventListener("keydown", (event) => walk(box, event));
    box.addEventListener("blur", hide);
    observer.observe(box);
  }
  window.addEventListener("scroll", () => {
    const y = shown ? shown.svg.getBoundingClientRect().top + shown.at.y : 0;
    if (y < 0 || y > window.innerHeight) hide();
    else place();
  }, { passive: true });

  function drawPicture(box, picture) {
    if (!states.has(box)) {
      count += 1;
      states.set(box, { number: count, zoomed: {}, fixed: 0 });
      prepare(box);
    }
    Object.assign(states.get(box), { picture, zoomed: {} });
    box.picture = picture;
    render(box);
  }

  // Draw in a fixed width, for a printer; 0: in the width of the page again.
  function setWidth(box, width) {
    if (!states.has(box)) return;
    states.get(box).fixed = width;
    render(box);
  }

  window.Plot = { draw: drawPicture, setWidth, reset, problem };
}());
