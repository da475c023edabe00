"use strict";
// Axes of a figure: their ranges, their ticks, and the position in pixels of a value.
// A figure is plotly data; the names of its settings are plotly's.
(function () {
  const DIGITS = "⁰¹²³⁴⁵⁶⁷⁸⁹";
  const raised = (power) => String(power).replace(/[-0-9]/g, (c) => DIGITS[c] || "⁻");
  const finite = (value) => typeof value === "number" && Number.isFinite(value);

  // Labels hold entities and line breaks, nothing else; they are shown as text, never as markup.
  const NAMED = { lt: "<", gt: ">", amp: "&", quot: '"', nbsp: "\u00a0" };
  const decode = (text) => String(text).replace(/&(?:#(\d+)|(lt|gt|amp|quot|nbsp));/g,
    (whole, code, name) => (name ? NAMED[name] : String.fromCodePoint(Math.min(Number(code), 0x10ffff))));
  const lines = (text) => String(text === undefined || text === null ? "" : text).split(/<br\s*\/?>/).map(decode);

  // The width of a text is estimated: a figure in a folded part of the page cannot be measured.
  const wide = (text, size) => Array.from(text).reduce((sum, c) =>
    sum + (/[.,:;'|il\s()[\]⁻¹]/.test(c) ? 0.3 : /[mwMW—…%]/.test(c) ? 0.92 : c > "\u2e80" ? 1 : 0.62), 0) * size;

  // Lines no wider than the room, broken at spaces.
  function wrap(text, room, size) {
    return lines(text).flatMap((line) => {
      const rows = [];
      for (const word of line.split(" ")) {
        const longer = rows.length ? rows[rows.length - 1] + " " + word : word;
        if (rows.length && wide(longer, size) <= room) rows[rows.length - 1] = longer;
        else rows.push(word);
      }
      return rows;
    });
  }

  // A number by d3's format, of which .Ng, .Nf, .Ne and .N% are known.
  function format(value, pattern) {
    const parts = /^\.(\d+)([gfe%])$/.exec(pattern || "");
    const signed = (text) => text.replace("-", "−");
    if (!finite(value)) return String(value === null || value === undefined ? "–" : decode(value));
    if (!parts) return signed(plain(value));
    const digits = Number(parts[1]);
    if (parts[2] === "%") return signed((100 * value).toFixed(digits)) + "%";
    if (parts[2] === "f") return signed(value.toFixed(digits));
    if (parts[2] === "e") return signed(value.toExponential(digits));
    return signed(plain(Number(value.toPrecision(digits || 1))));
  }

  function plain(value) {
    if (value !== 0 && (Math.abs(value) < 1e-3 || Math.abs(value) >= 1e5)) {
      const [mantissa, power] = value.toExponential(3).split("e");
      const factor = String(Number(mantissa));
      return (factor === "1" ? "" : factor === "-1" ? "-" : factor + "×") + "10" + raised(Number(power));
    }
    return String(Number(value.toPrecision(6)));
  }

  const stepOf = (rough) => {
    const power = 10 ** Math.floor(Math.log10(rough));
    return [1, 2, 5, 10].find((digit) => digit * power >= rough * 0.999) * power;
  };

  class Axis {
    constructor(name, settings) {
      this.letter = name[0];
      this.id = name[0] + name.slice(5);
      this.settings = settings;
      this.log = settings.type === "log";
      this.hidden = settings.visible === false;
      this.extent = [Infinity, -Infinity];
      this.soft = []; // ends that get no margin: the edges of cells, the foot of bars
      this.padded = false;
    }

    // Value on a linear scale: the logarithm where the axis is logarithmic.
    linear(value) {
      if (!finite(value)) return NaN;
      return this.log ? (value > 0 ? Math.log10(value) : NaN) : value;
    }

    include(value, hard) {
      const at = this.linear(value);
      if (!Number.isFinite(at)) return;
      this.extent = [Math.min(this.extent[0], at), Math.max(this.extent[1], at)];
      if (hard) this.soft.push(at);
    }

    fit(zoomed) {
      const { range, rangemode, autorange } = this.settings;
      let [low, high] = this.extent;
      if (!(low <= high)) [low, high] = this.log ? [-1, 1] : [0, 1];
      const free = (end) => !this.soft.includes(end);
      const pad = this.padded || this.letter === "y" ? 0.05 * (high - low) : 0;
      const spread = high > low ? 0 : this.log ? 0.5 : Math.abs(low) * 0.5 || 1;
      let ends = [low - (free(low) ? pad : 0) - spread, high + (free(high) ? pad : 0) + spread];
      if (rangemode === "tozero" && !this.log) ends = [low >= 0 ? 0 : ends[0], high <= 0 ? 0 : ends[1]];
      if (autorange === "reversed") ends.reverse();
      this.whole = Array.isArray(range) && range.every(finite) ? range.slice() : ends;
      this.range = zoomed || this.whole;
    }

    place(from, to) {
      [this.from, this.to] = [from, to];
      this.length = Math.abs(to - from);
    }

    pixelOf(at) { return this.from + (at - this.range[0]) / (this.range[1] - this.range[0]) * (this.to - this.from); }

    pixel(value) { return this.pixelOf(this.linear(value)); }

    linearAt(pixel) { return this.range[0] + (pixel - this.from) / (this.to - this.from) * (this.range[1] - this.range[0]); }

    within(at) {
      const slack = 1e-6 * Math.abs(this.range[1] - this.range[0]);
      return at >= Math.min(...this.range) - slack && at <= Math.max(...this.range) + slack;
    }

    // Ticks as pairs: position on the linear scale, label.
    ticks() {
      if (this.hidden) return [];
      const { tickvals, ticktext, dtick, tickformat } = this.settings;
      let ticks;
      if (Array.isArray(tickvals)) {
        ticks = tickvals.map((value, k) => [this.linear(value), ticktext ? decode(ticktext[k] === undefined ? "" : ticktext[k]) : format(value, tickformat)]);
      } else if (this.log) {
        ticks = this.decades(finite(dtick) ? dtick : 0);
      } else {
        ticks = this.steps(finite(dtick) && dtick > 0 ? dtick : 0);
      }
      return ticks.filter((tick) => this.within(tick[0]));
    }

    count() {
      const most = this.settings.nticks, across = this.letter === "x";
      if (finite(most) && most > 0) return Math.max(2, Math.min(most, this.length / (across ? 26 : 16)));
      return Math.max(2, Math.min(9, this.length / (across ? 80 : 40)) + 1);
    }

    steps(given) {
      const [low, high] = [Math.min(...this.range), Math.max(...this.range)];
      let step = given || stepOf((high - low) / this.count());
      while ((high - low) / step > 60) step = stepOf(step * 1.5);
      const decimals = Math.max(0, Math.min(12, -Math.floor(Math.log10(step) + 1e-9)));
      const ticks = [];
      for (let k = Math.ceil(low / step - 1e-6); k * step <= high + 1e-6 * step; k += 1) {
        const value = Number((k * step).toPrecision(12));
        const large = Math.max(Math.abs(low), Math.abs(high)) >= 1e5 || step < 1e-3;
        const text = value === 0 && !this.settings.tickformat ? "0" : this.settings.tickformat || large ? format(value, this.settings.tickformat) : value.toFixed(decimals).replace("-", "−");
        ticks.push([value, text]);
      }
      return ticks;
    }

    decades(given) {
      const [low, high] = [Math.min(...this.range), Math.max(...this.range)];
      const power = this.settings.exponentformat === "power";
      const label = (value, k) => (this.settings.tickformat ? format(value, this.settings.tickformat)
        : power && (k < -2 || k > 3) ? "10" + raised(k) : format(value));
      const every = Math.max(1, Math.round(given) || 1, Math.ceil((high - low) / Math.max(this.count(), 3)));
      const ticks = [];
      for (let k = Math.floor(low); k <= Math.ceil(high); k += 1) {
        if (k % every === 0) ticks.push([k, label(10 ** k, k)]);
      }
      if (given || ticks.filter((tick) => this.within(tick[0])).length > 2) return ticks;
      for (let k = Math.floor(low); k <= Math.ceil(high); k += 1) {
        for (const digit of [2, 5]) ticks.push([k + Math.log10(digit), format(Number((digit * 10 ** k).toPrecision(3)))]);
      }
      return ticks.sort((a, b) => a[0] - b[0]);
    }
  }

  window.PlotAxes = { Axis, decode, finite, format, lines, wide, wrap };
}());
