"use strict";
(function () {
  const island = (name) => {
    const element = document.getElementById("data-" + name);
    return element ? JSON.parse(element.textContent) : null;
  };
  const make = (tag, parent, text, classes) => {
    const element = document.createElement(tag);
    if (text !== undefined) element.textContent = text; // never markup: the words are not ours
    if (classes) element.className = classes;
    if (parent) parent.appendChild(element);
    return element;
  };
  const numeral = (value) => {
    if (value === null || value === undefined) return "–";
    if (value !== 0 && (Math.abs(value) < 1e-3 || Math.abs(value) >= 1e4)) {
      const [mantissa, exponent] = value.toExponential(2).split("e");
      const raised = exponent.replace("+", "").replace(/[-0-9]/g, (c) => "⁰¹²³⁴⁵⁶⁷⁸⁹"[c] || "⁻");
      return mantissa + "×10" + raised;
    }
    return String(Number(value.toPrecision(4))).replace("-", "−");
  };

  function drawPlots() {
    const boxes = Array.from(document.querySelectorAll(".plot"));
    for (const box of boxes) Plot.draw(box, island(box.id.slice(5)));
    let folded = [];
    window.addEventListener("beforeprint", () => {
      folded = Array.from(document.querySelectorAll("#manifest details:not([open]), .verdict details:not([open])"));
      folded.forEach((part) => { part.open = true; });
      boxes.forEach((box) => Plot.setWidth(box, box.closest(".pair") ? 320 : 660));
    });
    window.addEventListener("afterprint", () => {
      folded.forEach((part) => { part.open = false; });
      boxes.forEach((box) => Plot.setWidth(box, 0));
    });
  }

  function ramp(scale) {
    const stops = scale.map((c) => [1, 3, 5].map((k) => parseInt(c.slice(k, k + 2), 16)));
    return (share) => {
      const at = Math.min(Math.max(share, 0), 1) * (stops.length - 1);
      const k = Math.min(Math.floor(at), stops.length - 2);
      return stops[k].map((low, c) => Math.round(low + (at - k) * (stops[k + 1][c] - low)));
    };
  }

  // Black or white, whichever has the higher contrast (WCAG 2) to this ground.
  function wordOn(shade) {
    const [r, g, b] = shade.map((c) => (c / 255 <= 0.04045 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b > Math.sqrt(1.05 * 0.05) - 0.05 ? "#000" : "#fff";
  }

  // The theme of the system, until the button is pressed; the choice lasts as long as the page is open.
  function offerThemes() {
    const button = document.getElementById("theme"), root = document.documentElement;
    const system = window.matchMedia("(prefers-color-scheme: dark)");
    const dark = () => (root.dataset.theme ? root.dataset.theme === "dark" : system.matches);
    const name = () => { button.textContent = dark() ? "Light theme" : "Dark theme"; };
    button.addEventListener("click", () => { root.dataset.theme = dark() ? "light" : "dark"; name(); });
    system.addEventListener("change", name);
    button.hidden = false;
    name();
  }

  function drawMap(data) {
    const find = (name) => document.getElementById("map-" + name);
    const scroll = find("scroll");
    const colour = ramp(data.scale);
    const tip = make("div", document.body, undefined, "");
    tip.id = "tip";
    tip.setAttribute("role", "status");
    tip.hidden = true;
    data.prompts.forEach((prompt, k) => { make("option", find("prompt"), prompt.title).value = k; });
    data.quantities.forEach((quantity, k) => { make("option", find("quantity"), quantity.label).value = k; });
    find("ramp").style.background = "linear-gradient(to right, " + data.scale.join(",") + ")";
    let prompt = null;
    let shown = null;

    function build() {
      prompt = data.prompts[Number(find("prompt").value)];
      tip.hidden = true;
      scroll.replaceChildren();
      const table = make("table", scroll, undefined, "map");
      const head = make("tr", make("thead", table));
      make("th", head, "layer").scope = "col";
      for (const token of prompt.tokens) {
        const cell = make("th", head, token);
        cell.scope = "col";
        cell.title = token;
      }
      const body = make("tbody", table);
      prompt.layers.forEach((layer, i) => {
        const row = make("tr", body);
        row.classList.toggle("abstained", data.abstained.includes(layer));
        make("th", row, layer === 0 ? "embed" : String(layer)).scope = "row";
        prompt.tokens.forEach((_, j) => {
          const index = prompt.top[i][j];
          const cell = make("td", row, index === null ? "" : data.words[index]);
          cell.tabIndex = i + j === 0 ? 0 : -1;
          cell.dataset.at = i + "," + j;
        });
      });
      paint();
    }

    function paint() {
      const quantity = data.quantities[Number(find("quantity").value)];
      const values = prompt.values[quantity.name];
      find("low").textContent = "0";
      find("high").textContent = numeral(quantity.top);
      scroll.firstChild.classList.toggle("bare", !find("words").checked);
      scroll.querySelectorAll("td").forEach((cell) => {
        const [i, j] = cell.dataset.at.split(",").map(Number);
        const value = values[i][j];
        const shade = value === null ? null : colour(value / quantity.top);
        cell.style.backgroundColor = shade ? "rgb(" + shade.join(",") + ")" : "";
        cell.classList.toggle("void", !shade);
        cell.classList.toggle("dark", shade !== null && wordOn(shade) === "#fff");
      });
    }

    function show(cell) {
      const [i, j] = cell.dataset.at.split(",").map(Number);
      const layer = prompt.layers[i];
      tip.replaceChildren();
      make("p", tip, "“" + prompt.tokens[j] + "” · position " + prompt.positions[j] + ", " +
        (layer === 0 ? "embedding" : "layer " + layer));
      make("p", tip, "predicts “" + cell.textContent + "”", "word");
      const labels = Object.fromEntries(data.quantities.map((q) => [q.name, q.label]));
      labels.p_max = "largest probability";
      for (const [name, values] of Object.entries(prompt.values)) {
        const row = make("p", tip, undefined, "row");
        make("span", row, labels[name]);
        make("span", row, numeral(values[i][j]));
      }
      if (data.abstained.includes(layer)) make("p", tip, "inside an abstained stretch");
      tip.hidden = false;
      shown = cell;
      place();
    }

    function place() {
      const box = shown.getBoundingClientRect(), size = tip.getBoundingClientRect();
      const below = box.bottom + 8 + size.height < window.innerHeight;
      tip.style.top = (below ? box.bottom + 8 : Math.max(4, box.top - size.height - 8)) + "px";
      tip.style.left = Math.max(4, Math.min(box.left, window.innerWidth - size.width - 8)) + "px";
    }

    const over = (event) => { if (event.target.tagName === "TD") show(event.target); };
    scroll.addEventListener("mouseover", over);
    scroll.addEventListener("focusin", over);
    scroll.addEventListener("mouseleave", () => { tip.hidden = true; });
    scroll.addEventListener("focusout", () => { tip.hidden = true; });
    const follow = () => { if (!tip.hidden) place(); };
    window.addEventListener("scroll", follow, { passive: true });
    scroll.addEventListener("scroll", follow, { passive: true });
    scroll.addEventListener("keydown", (event) => {
      const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
      if (event.key === "Escape") tip.hidden = true;
      if (!step || event.target.tagName !== "TD") return;
      const [i, j] = event.target.dataset.at.split(",").map(Number);
      const next = scroll.querySelector('td[data-at="' + (i + step[0]) + "," + (j + step[1]) + '"]');
      if (next) { event.target.tabIndex = -1; next.tabIndex = 0; next.focus(); }
      event.preventDefault();
    });
    find("prompt").addEventListener("change", build);
    find("quantity").addEventListener("change", paint);
    find("words").addEventListener("change", paint);
    let words = true;
    window.addEventListener("beforeprint", () => { words = find("words").checked; find("words").checked = false; paint(); });
    window.addEventListener("afterprint", () => { find("words").checked = words; paint(); });
    build();
  }

  // A table of the page becomes a file: a link to the run folder leads nowhere when the page was sent.
  document.querySelectorAll("a[data-table]").forEach((link) => {
    link.addEventListener("click", (event) => {
      const held = document.getElementById("table-" + link.dataset.table);
      const address = URL.createObjectURL(new Blob([JSON.parse(held.textContent)], { type: "text/csv" }));
      const offer = make("a", document.body);
      Object.assign(offer, { href: address, download: link.dataset.table + ".csv", hidden: true });
      offer.click();
      offer.remove();
      setTimeout(() => URL.revokeObjectURL(address), 1000);
      event.preventDefault();
    });
  });

  const tokens = island("tokens");
  if (tokens) drawMap(tokens);
  offerThemes();
  drawPlots();
  window.flowscope = { island, make, numeral, ramp, wordOn };
}());
