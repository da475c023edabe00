"use strict";
// One head on one sentence: kernel, law, net flows and two maps of the tokens, as SVG.
(function () {
  const { island, make, numeral, ramp, heads } = window.flowscope;
  const data = island("portrait");
  if (!data || !heads.data) return;
  const { draw, hint, unhint } = heads;
  const maps = heads.data;
  const find = (name) => document.getElementById("head-" + name);
  const notes = {};
  document.querySelectorAll("#portrait .drawn").forEach((note) => { notes[note.id] = note.textContent; });
  const count = data.tokens.length;
  const tokens = data.labels;
  const colour = ramp(maps.scale);
  const named = (k) => "“" + data.tokens[k] + "” (position " + k + ")";
  const rowHeight = count > 32 ? 15 : 20;

  const sheet = (name, height, label) => {
    const box = find(name);
    const width = Math.max(Math.min(box.clientWidth, 560), 200);
    const high = typeof height === "function" ? height(width) : height;
    const svg = draw("svg", box, { width, height: high, viewBox: "0 0 " + width + " " + high, role: "img", "aria-label": label });
    svg.addEventListener("mouseleave", unhint);
    return { svg, width, height: high };
  };
  const note = (name, text) => { find(name + "-note").textContent = [notes["head-" + name + "-note"], text].filter(Boolean).join(" "); };
  const over = (element, lines) => element.addEventListener("mousemove", (event) => hint(event, lines));

  // A label no wider than its room; the ellipsis says that something was cut.
  function fit(element, room) {
    const characters = Array.from(element.textContent);
    while (characters.length > 1 && element.getComputedTextLength() > room) {
      characters.pop();
      element.textContent = characters.join("") + "…";
    }
    return element.getComputedTextLength();
  }

  function absent(name, reason) {
    make("p", find(name), "Not shown: " + reason.replace(/\.$/, "") + ".", "missing");
    find(name + "-note").textContent = "";
  }

  function drawFacts(k) {
    const table = make("table", find("facts"), undefined, "listing facts-of-head");
    const top = make("tr", make("thead", table));
    for (const title of ["", "this model", "random weights"]) make("th", top, title).scope = "col";
    const body = make("tbody", table);
    for (const statistic of maps.statistics) {
      const row = make("tr", body);
      make("th", row, statistic.label).scope = "row";
      make("td", row, (numeral(statistic.values[k]) + " " + heads.span(statistic, k)).trim());
      make("td", row, numeral(statistic.random[k]));
    }
    const told = maps.steps_to_tell[k], walk = maps.steps[k];
    const lines = [maps.words[maps.because[k]], maps.words[maps.weight_because[k]] && "R_qk: " + maps.words[maps.weight_because[k]]];
    if (told !== null) {
      lines.unshift("The direction of time shows " + (told < 1 ? "within one step" : "after about " + numeral(told) + " steps") +
        (walk === null ? "." : "; the label is about a walk of " + numeral(walk) + " steps."));
    }
    find("facts-note").textContent = lines.filter(Boolean)
      .map((line) => line[0].toUpperCase() + line.slice(1).replace(/\.?$/, ".")).join(" ");
  }

  function drawLaw(law) {
    const { svg, width } = sheet("law", count * rowHeight + 22, "share of the time at each token");
    const left = 106, room = width - left - 62, most = Math.max(...law, 1 / count);
    const even = left + room / count / most, floor = count * rowHeight;
    law.forEach((value, k) => {
      const y = k * rowHeight;
      fit(draw("text", svg, { x: left - 8, y: y + rowHeight / 2 + 4, "text-anchor": "end" }, tokens[k]), left - 12);
      draw("rect", svg, { x: left, y: y + 2, width: Math.max(room * value / most, 0.5), height: rowHeight - 4, class: "bar" });
    });
    draw("path", svg, { d: "M" + even + " 0V" + floor, class: "even" });
    law.forEach((value, k) => {
      const y = k * rowHeight;
      draw("text", svg, { x: left + room * value / most + 6, y: y + rowHeight / 2 + 4, class: "value clear" }, numeral(Number(value.toPrecision(2))));
      over(draw("rect", svg, { x: 0, y, width, height: rowHeight, class: "catch" }), [named(k), ["share of the time", numeral(value)]]);
    });
    draw("text", svg, { x: even, y: floor + 15, "text-anchor": "middle", class: "value" }, "1/" + count);
    note("law");
  }

  function drawKernel(kernel) {
    const narrow = find("kernel").clientWidth < 420;
    const left = narrow ? 76 : 96, top = narrow ? 68 : 84, right = 4;
    const { svg, width } = sheet("kernel", (w) => top + Math.min(w - left - right, 44 * count) + 4, "kernel: from each token to each other");
    const cell = Math.min((width - left - right) / count, 44), most = Math.max(...kernel) || 1;
    const style = "font-size:" + Math.min(12, Math.max(cell, 7)) + "px";
    for (let k = 0; k < count; k += 1) {
      const middle = (k + 0.5) * cell;
      fit(draw("text", svg, { x: left - 6, y: top + middle + 4, "text-anchor": "end", style }, tokens[k]), left - 8);
      fit(draw("text", svg, { style, transform: "translate(" + (left + middle + 4) + "," + (top - 6) + ") rotate(-90)" }, tokens[k]), top - 8);
    }
    kernel.forEach((value, at) => {
      const i = Math.floor(at / count), j = at % count;
      const rect = draw("rect", svg, { x: left + j * cell, y: top + i * cell, width: Math.max(cell - 0.7, 0.5), height: Math.max(cell - 0.7, 0.5),
        fill: "rgb(" + colour(Math.sqrt(value / most)).join(",") + ")" });
      over(rect, ["from " + named(i), "to " + named(j), ["probability", numeral(value)]]);
    });
    note("kernel", "Colour grows with the square root of the probability, up to " + numeral(most) + ".");
  }

  // The sentence from top to bottom: flows down it on the right, flows back up on the left.
  function drawFlows(head) {
    const { svg, width } = sheet("flows", count * rowHeight + 8, "net flows between tokens");
    const label = Math.min(104, width * 0.28), half = width / 2, reach = half - label / 2 - 8;
    const y = (k) => (k + 0.5) * rowHeight + 4;
    tokens.forEach((text, k) => {
      draw("path", svg, { d: "M" + (half - label / 2) + " " + y(k) + "h" + label, class: "ring" });
      fit(draw("text", svg, { x: half, y: y(k) + 4, "text-anchor": "middle", class: "clear" }, text), label - 12);
    });
    const most = head.flows.length ? head.flows[0][2] : 0;
    head.flows.slice().reverse().forEach(([from, to, size]) => {
      const side = to > from ? 1 : -1, x = half + side * (label / 2 + 2);
      const thick = 1 + 5 * size / most, barb = 5 + thick;
      const a = y(from) + side * 3, b = y(to) - side * 3;
      const bulge = side * Math.min(1.33 * reach, 24 + (1.33 * reach - 24) * Math.abs(to - from) / Math.max(count - 1, 1));
      const tipX = x + side * barb;
      const group = draw("g", svg, { class: side > 0 ? "flow down" : "flow up" });
      draw("path", group, { d: "M" + x + " " + a + "C" + (x + bulge) + " " + a + " " + (x + bulge) + " " + b + " " + tipX + " " + b,
        "stroke-width": thick, class: "arc" });
      draw("path", group, { d: "M" + x + " " + b + "L" + tipX + " " + (b - barb / 2) + "V" + (b + barb / 2) + "Z", class: "barb" });
      over(group, ["net flow from " + named(from), "to " + named(to), ["per step", numeral(size)],
        ["of the total", numeral(Number((100 * size / head.total).toPrecision(2))) + " %"]]);
    });
    if (!head.flows.length) return note("flows", "There is none: the chain is in equilibrium on this sentence.");
    const shown = head.flows.reduce((sum, flow) => sum + flow[2], 0);
    return note("flows", "Blue, right: down the sentence; orange, left: back up. Width is size, the widest " + numeral(most) +
      " per step. Drawn: " + head.flows.length + " of " + head.pairs + " pairs, " + numeral(Math.round(100 * Math.min(shown / head.total, 1))) +
      " % of the total of " + numeral(head.total) + ".");
  }

  // Labels one after the other, each at the first free place around its dot; the rest stay hidden.
  function label(svg, points, width, height) {
    const boxes = points.map((p) => [p.x - p.r, p.y - p.r, p.x + p.r, p.y + p.r]);
    const hits = (box, own) => boxes.some((b, k) => k !== own && box[0] < b[2] && b[0] < box[2] && box[1] < b[3] && b[1] < box[3]);
    let hidden = 0;
    const order = points.map((_, k) => k).sort((a, b) => points[b].r - points[a].r);
    for (const k of order) {
      const p = points[k];
      const text = draw("text", svg, { x: 0, y: 0, class: "name" }, tokens[k]);
      const wide = fit(text, 92), high = 13;
      let place = null;
      for (const far of [3, 14, 28, 44]) {
        for (let turn = 0; turn < 12 && !place; turn += 1) {
          const angle = Math.PI * [0, 1, 0.5, 1.5, 0.25, 0.75, 1.25, 1.75, 0.12, 0.88, 1.12, 1.88][turn];
          const [dx, dy] = [Math.cos(angle), -Math.sin(angle)];
          const cx = p.x + dx * (p.r + far + wide / 2), cy = p.y + dy * (p.r + far + high / 2);
          const box = [cx - wide / 2 - 1, cy - high / 2, cx + wide / 2 + 1, cy + high / 2];
          const inside = box[0] >= 0 && box[1] >= 0 && box[2] <= width && box[3] <= height;
          if (inside && !hits(box, k)) place = { box, cx, cy, far, dx, dy };
        }
        if (place) break;
      }
      if (!place) { text.remove(); hidden += 1; continue; }
      boxes.push(place.box);
      text.setAttribute("x", place.box[0] + 1);
      text.setAttribute("y", place.cy + 4);
      if (place.far > 3) {
        const near = (low, high, v) => Math.min(Math.max(v, low), high);
        const line = draw("path", svg, { d: "M" + p.x + " " + p.y + "L" + near(place.box[0], place.box[2], p.x) + " " +
          near(place.box[1] + 2, place.box[3] - 2, p.y), class: "leader" });
        svg.insertBefore(line, svg.firstChild);
      }
    }
    return hidden;
  }

  function drawPoints(name, flat, law, round) {
    const { svg, width, height } = sheet(name, (w) => Math.min(w * 0.82, 420), (round ? "magnetic" : "diffusion") + " map of the tokens");
    const pairs = tokens.map((_, k) => [flat[2 * k], flat[2 * k + 1]]);
    const edge = 34;
    const place = round ? polar(svg, pairs, width, height, edge) : cartesian(svg, pairs, width, height, edge);
    const most = law ? Math.max(...law) || 1 : 1;
    const points = pairs.map((pair, k) => ({ ...place(pair), r: law ? 2.5 + 7 * Math.sqrt(law[k] / most) : 4 }));
    points.forEach((p, k) => {
      const lines = [named(k), [round ? "angle" : "first coordinate", round
        ? numeral(Math.round(180 * Math.atan2(pairs[k][1], pairs[k][0]) / Math.PI)) + "°" : numeral(pairs[k][0])],
      [round ? "size" : "second coordinate", numeral(round ? Math.hypot(...pairs[k]) : pairs[k][1])]];
      if (law) lines.push(["share of the time", numeral(law[k])]);
      over(draw("circle", svg, { cx: p.x, cy: p.y, r: p.r, class: "dot" }), lines);
    });
    const hidden = label(svg, points, width, height);
    note(name, hidden ? hidden + (hidden === 1 ? " name has" : " names have") + " no room; point at a dot to read it." : "");
  }

  function cartesian(svg, pairs, width, height, edge) {
    const ends = [0, 1].map((c) => {
      const values = pairs.map((pair) => pair[c]);
      const [low, high] = [Math.min(...values), Math.max(...values)];
      return high > low ? [low, high] : [low - 1, low + 1];
    });
    draw("path", svg, { d: "M1 0V" + (height - 1) + "H" + width, class: "axis" });
    return (pair) => ({
      x: edge + (width - 2 * edge) * (pair[0] - ends[0][0]) / (ends[0][1] - ends[0][0]),
      y: height - edge - (height - 2 * edge) * (pair[1] - ends[1][0]) / (ends[1][1] - ends[1][0]),
    });
  }

  // One ring is a factor of ten in size: the angle is what is read, also that of small ones.
  function polar(svg, pairs, width, height, edge) {
    const most = Math.max(...pairs.map((pair) => Math.hypot(...pair))) || 1, decades = 3;
    const radius = Math.min(width, height) / 2 - edge, [cx, cy] = [width / 2, height / 2];
    for (let ring = 1; ring <= decades; ring += 1) draw("circle", svg, { cx, cy, r: ring * radius / decades, class: "ring" });
    draw("path", svg, { d: "M" + (cx - radius) + " " + cy + "H" + (cx + radius) + "M" + cx + " " + (cy - radius) + "V" + (cy + radius), class: "ring" });
    return (pair) => {
      const size = Math.hypot(...pair);
      const far = size ? radius * Math.max(1 + Math.log10(size / most) / decades, 0) / size : 0;
      return { x: cx + far * pair[0], y: cy - far * pair[1] };
    };
  }

  function show(k) {
    const [layer, number] = maps.at[k], label = maps.words[maps.label[k]];
    find("layer").value = layer;
    find("number").value = number;
    find("title").textContent = "Layer " + layer + ", head " + number + (label ? " · " + label : "");
    document.querySelectorAll("#portrait .drawing").forEach((box) => box.replaceChildren());
    drawFacts(k);
    const head = data.heads[layer + "," + number];
    const because = maps.words[maps.because[k]];
    const lack = head ? because || "this head has none on this sentence"
      : "this page holds the most irreversible heads only; see arrays/portrait.safetensors";
    const part = (name, held, drawing) => (head && head[held] ? drawing() : absent(name, lack));
    part("law", "law", () => drawLaw(head.law));
    part("kernel", "kernel", () => drawKernel(head.kernel));
    part("diffusion", "diffusion", () => drawPoints("diffusion", head.diffusion, head.law, false));
    part("magnetic", "magnetic", () => drawPoints("magnetic", head.magnetic, head.law, true));
    if (head && head.flows) drawFlows(head);
    else absent("flows", head && data.currents_because ? data.currents_because : lack);
  }

  maps.layers.forEach((layer) => { make("option", find("layer"), layer).value = layer; });
  maps.heads.forEach((head) => { make("option", find("number"), head).value = head; });
  const pick = () => {
    const k = heads.index(Number(find("layer").value), Number(find("number").value));
    if (k >= 0) heads.choose(k);
    else show(heads.chosen); // no such head in this layer: stay
  };
  find("layer").addEventListener("change", pick);
  find("number").addEventListener("change", pick);
  find("first").addEventListener("click", () => heads.choose(maps.first));
  heads.listen(show);
  let width = 0;
  new ResizeObserver(() => {
    const now = find("kernel").clientWidth;
    if (now !== width) { width = now; show(heads.chosen); }
  }).observe(find("kernel"));
}());
