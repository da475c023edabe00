"use strict";
(function () {
  // A list above a figure, or above several of one kind, chooses which of its pictures is drawn.
  // A choice holds what it has beyond the picture that is shown first, or all of it.
  const laid = (base, more) => Object.assign({}, base, more);
  document.querySelectorAll("select[data-plots]").forEach((select) => {
    const names = select.dataset.plots.split(" ");
    const draw = () => names.forEach((name) => {
      const box = document.getElementById("plot-" + name);
      const base = window.flowscope.island(name);
      const choice = window.flowscope.island("choices-" + name)[select.selectedIndex];
      const data = choice.whole ? choice.data : base.data.map((trace, k) => laid(trace, choice.data[k]));
      const layout = choice.whole ? choice.layout : laid(base.layout, choice.layout);
      Plot.draw(box, { data, layout });
    });
    select.addEventListener("change", draw);
    if (!select.options[select.selectedIndex].defaultSelected) draw(); // a choice kept by the browser
  });
}());
