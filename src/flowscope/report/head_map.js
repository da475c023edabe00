"use strict";
// The maps over layers and heads: one picks a statistic to colour them by, and a head to look at.
(function () {
  const { island, make, numeral, ramp, wordOn } = window.flowscope;
  const data = island("geometry");
  const space = "http://www.w3.org/2000/svg";
  const draw = (tag, parent, settings, text) => {
    const element = document.createElementNS(space, tag);
    for (const [name, value] of Object.entries(settings)) element.setAttribute(name, value);
    if (text !== undefined) element.textContent = text; // never markup: the words are not ours
    parent.appendChild(element);
    return element;
  };

  const tip = make("div", document.body);
  tip.id = "tip";
  tip.hidden = true;
  function hint(event, lines) {
    tip.replaceChildren();
    for (const line of lines) {
      if (!Array.isArray(line)) { make("p", tip, line, tip.childElementCount ? "" : "word"); continue; }
      const row = make("p", tip, undefined, "row");
      line.forEach((part) => make("span", row, part));
    }
    tip.hidden = false;
    const size = tip.getBoundingClientRect();
    const below = event.clientY + 18 + size.height < window.innerHeight;
    tip.style.top = (below ? event.clientY + 18 : Math.max(4, event.clientY - size.height - 12)) + "px";
    tip.style.left = Math.max(4, Math.min(event.clientX + 12, window.innerWidth - size.width - 8)) + "px";
  }
  const unhint = () => { tip.hidden = true; };

  const listeners = [];
  const heads = {
    data, draw, hint, unhint, space,
    chosen: data ? data.first : 0,
    listen: (listener) => listeners.push(listener),
    choose: (k) => {
      heads.chosen = k;
      listeners.forEach((listener) => listener(k));
    },
    name: (k) => "layer " + data.at[k][0] + ", head " + data.at[k][1],
    index: (layer, head) => data.at.findIndex((pair) => pair[0] === layer && pair[1] === head),
    span: (statistic, k) => {
      const [low, high] = [statistic.lows[k], statistic.highs[k]];
      return statistic.values[k] === null || low === null || high === null ? "" : "[" + numeral(low) + ", " + numeral(high) + "]";
    },
    reason: (statistic, k) => {
      const weights = statistic.name === "weight_ratio";
      return data.words[(weights ? data.weight_because : data.because)[k]];
    },
  };
  window.flowscope.heads = heads;
  if (!data) return;

  const find = (name) => document.getElementById("maps-" + name);
  const colour = ramp(data.scale);
  let statistic = data.statistics[data.shown];
  data.statistics.forEach((each, k) => { make("option", find("statistic"), each.label).value = k; });
  find("statistic").value = data.shown;
  find("ramp").style.background = "linear-gradient(to right, " + data.scale.join(",") + ")";

  function share(value) {
    const { low, high, log } = statistic;
    if (!log) return (value - low) / (high - low);
    return value <= low ? 0 : Math.log(value / low) / Math.log(high / low);
  }

  function shade(value) {
    return value === null ? null : colour(share(value));
  }

  function facts(k, random) {
    const lines = [heads.name(k)];
    lines.push([statistic.label, numeral(statistic.values[k]) + " " + heads.span(statistic, k)]);
    if (statistic.random[k] !== null) lines.push(["random weights", numeral(statistic.random[k])]);
    if (random) return lines;
    const reason = heads.reason(statistic, k) || data.words[data.because[k]];
    return lines.concat([data.words[data.label[k]], reason].filter(Boolean));
  }

  // Sizes: one column per head, one row per layer; marks only where a cell has room for them.
  function frame(box) {
    const left = 46, top = 4, bottom = 36;
    const width = Math.max(box.clientWidth, 120);
    const across = Math.min((width - left - 4) / data.heads.length, 44);
    const down = Math.max(7, Math.min(18, 640 / data.layers.length, Math.max(across, 9)));
    return { left, top, width, across, down, height: top + down * data.layers.length + bottom };
  }

  function axes(svg, size) {
    const floor = size.top + size.down * data.layers.length;
    const middle = (k) => size.left + (k + 0.5) * size.across;
    const every = (room, count) => [1, 2, 5, 10, 20, 50].find((step) => step * room >= count) || 100;
    const step = every(size.across, 20), jump = every(size.down, 13);
    data.heads.forEach((head, k) => {
      if (head % step === 0) draw("text", svg, { x: middle(k), y: floor + 15, "text-anchor": "middle" }, head);
    });
    data.layers.forEach((layer, k) => {
      const shown = layer === data.layers[0] || layer % jump === 0;
      const crowded = layer % jump === 0 && k > 0 && k * size.down < 13;
      if (shown && !crowded) {
        draw("text", svg, { x: size.left - 6, y: size.top + (k + 0.5) * size.down + 4, "text-anchor": "end" }, layer);
      }
    });
    const centre = size.left + size.across * data.heads.length / 2;
    draw("text", svg, { x: centre, y: floor + 31, "text-anchor": "middle", class: "title" }, "head");
    const half = size.top + size.down * data.layers.length / 2;
    draw("text", svg, { x: 0, y: 0, "text-anchor": "middle", class: "title",
      transform: "translate(11," + half + ") rotate(-90)" }, "layer");
  }

  function mark(svg, k, x, y, size, stroke) {
    const r = Math.min(size.across, size.down) / 2 - (size.across < 9 ? 1 : 2);
    const tiny = Math.min(size.across, size.down) < 9; // then only crosses can be told apart
    const [cx, cy] = [x + size.across / 2, y + size.down / 2];
    if (data.crossed[k]) {
      draw("path", svg, { d: "M" + (cx - r) + " " + (cy - r) + "l" + 2 * r + " " + 2 * r + "m0 " + -2 * r +
        "l" + -2 * r + " " + 2 * r, class: "crossed" });
    } else if (!tiny && data.words[data.label[k]] === "equilibrium") {
      draw("circle", svg, { cx, cy, r: Math.max(r - 1, 1.5), class: "marked", stroke });
    } else if (!tiny && data.words[data.label[k]] === "undecided") {
      draw("path", svg, { d: "M" + (cx - r) + " " + cy + "h" + 2 * r, class: "marked", stroke });
    }
  }

  function paint(box, values, random) {
    box.replaceChildren();
    if (values.every((value) => value === null)) {
      const reason = random ? "no head has this number with random weights" : statistic.missing;
      make("p", box, "Not shown: " + (reason || "no head has this number") + ".", "missing");
      if (random) return;
    }
    const size = frame(box);
    const svg = draw("svg", box, { width: size.width, height: size.height, viewBox: "0 0 " + size.width + " " + size.height });
    axes(svg, size);
    find("model").closest("figure").classList.toggle("small", Math.min(size.across, size.down) < 9);
    data.at.forEach(([layer, head], k) => {
      const x = size.left + data.heads.indexOf(head) * size.across;
      const y = size.top + data.layers.indexOf(layer) * size.down;
      const ground = shade(values[k]);
      const cell = draw("rect", svg, { x: x + 0.5, y: y + 0.5, width: Math.max(size.across - 1, 1),
        height: Math.max(size.down - 1, 1), fill: ground ? "rgb(" + ground.join(",") + ")" : "var(--void)", class: "cell", "data-k": k });
      if (!random) mark(svg, k, x, y, size, ground ? wordOn(ground) : "var(--ink)");
      if (k === heads.chosen) {
        draw("rect", svg, { x: x - 0.5, y: y - 0.5, width: size.across + 1, height: size.down + 1, class: "choice" });
      }
      cell.addEventListener("mousemove", (event) => hint(event, facts(k, random)));
    });
    svg.appendChild(svg.querySelector(".choice") || svg.lastChild); // above its neighbours
  }

  function paintAll() {
    paint(find("model"), statistic.values, false);
    paint(find("random"), statistic.random, true);
    const below = statistic.log && statistic.values.some((value) => value !== null && value < statistic.low);
    find("ramp").parentElement.hidden = statistic.missing && statistic.random.every((value) => value === null);
    find("low").textContent = (below ? "≤ " : "") + numeral(statistic.low);
    find("high").textContent = numeral(statistic.high) + (statistic.log ? " (logarithmic)" : "");
    find("about").textContent = statistic.label[0].toUpperCase() + statistic.label.slice(1) + ": " + statistic.about;
    const k = heads.chosen, label = data.words[data.label[k]];
    const parts = [statistic.label + " " + numeral(statistic.values[k]) + " " + heads.span(statistic, k), label];
    find("chosen").textContent = "Chosen: " + heads.name(k) + " · " + parts.filter((part) => part.trim()).join(" · ") + ". ";
    const link = document.getElementById("portrait") && make("a", find("chosen"), "Look at it");
    if (link) link.href = "#head";
  }

  for (const name of ["model", "random"]) {
    find(name).addEventListener("click", (event) => {
      if (event.target.dataset.k !== undefined) heads.choose(Number(event.target.dataset.k));
    });
    find(name).addEventListener("mouseleave", unhint);
  }
  find("model").addEventListener("keydown", (event) => {
    const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    if (event.key === "Escape") unhint();
    if (!step) return;
    event.preventDefault();
    const [layer, head] = data.at[heads.chosen];
    const next = heads.index(data.layers[data.layers.indexOf(layer) + step[0]], data.heads[data.heads.indexOf(head) + step[1]]);
    if (next >= 0) heads.choose(next);
  });
  find("statistic").addEventListener("change", () => {
    statistic = data.statistics[Number(find("statistic").value)];
    paintAll();
  });
  document.querySelectorAll("button.look").forEach((button) => {
    button.addEventListener("click", () => {
      heads.choose(heads.index(...button.dataset.head.split(",").map(Number)));
      const target = document.getElementById(document.getElementById("portrait") ? "head" : "irreversibility");
      target.scrollIntoView();
    });
  });
  let width = 0;
  new ResizeObserver(() => {
    const now = find("model").clientWidth;
    if (now !== width) { width = now; paintAll(); }
  }).observe(find("model"));
  heads.listen(paintAll);
  paintAll();
}());
