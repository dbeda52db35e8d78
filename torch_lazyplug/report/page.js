"use strict";
(function () {
  const data = JSON.parse(document.getElementById("data").textContent);
  const COLOURS = {
    sync: "#3b6ea5", wait: "#b9a3cf", compile: "#d98c2b", run: "#4c9f70", fallback: "#c0392b", op: "#9fd0b4",
  };
  const NAMES = { sync: "recording", wait: "waiting", compile: "compiling", run: "running", fallback: "fallback", op: "op" };
  const WIDTH = 1060, LEFT = 120, LANE = 34;

  function make(parent, name, attributes, text) {
    const svg = parent.namespaceURI === "http://www.w3.org/2000/svg" || name === "svg";
    const element = svg ? document.createElementNS("http://www.w3.org/2000/svg", name) : document.createElement(name);
    for (const key in attributes || {}) element.setAttribute(key, attributes[key]);
    if (text !== undefined) element.textContent = text;
    return parent.appendChild(element);
  }

  // Clicks, and the keys that stand for them.
  function onChoice(element, choose) {
    element.addEventListener("click", choose);
    element.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      choose();
    });
  }

  function time(microseconds) {
    return (microseconds / 1000).toFixed(3) + " ms";
  }

  function legend(parent, kinds) {
    const line = make(parent, "p", { class: "legend" });
    for (const kind of kinds) {
      const entry = make(line, "span");
      make(entry, "i", { style: "background:" + COLOURS[kind] });
      entry.append(NAMES[kind]);
    }
  }

  // The timeline -------------------------------------------------------------------------------------------------

  const end = data.spans.reduce((latest, s) => Math.max(latest, s[2] + s[3]), 0);
  const begin = data.spans.reduce((first, s) => Math.min(first, s[2]), end);
  const view = { from: begin, to: end };
  let title, chart, facts;

  function describe(kind, name, cause, detail, line, start, duration, trace) {
    const graph = trace ? "graph " + trace : "";
    const parts = [name, cause === name ? "" : cause, detail, line, "at " + time(start) + ", for " + time(duration), graph];
    return parts.filter((part) => part).join("\n");
  }

  function box(x, y, width, height, kind, about, label) {
    const left = Math.max(x, LEFT), right = Math.min(x + width, WIDTH);
    const span = make(chart, "rect", {
      class: "span " + kind, x: left, y: y, width: Math.max(1, right - left), height: height, fill: COLOURS[kind],
    });
    make(span, "title", {}, about);
    span.addEventListener("click", () => { facts.textContent = about; });
    if (right - left > 7 * label.length) {
      make(chart, "text", { x: left + 3, y: y + height - 2, "pointer-events": "none" }, label);
    }
  }

  function drawSpan(entry, scale) {
    const [kind, row, start, duration, name, cause, detail, line, trace, ops] = entry;
    const text = (number) => data.texts[number];
    const y = row * LANE + 24;
    const about = describe(kind, text(name), text(cause), text(detail), text(line), start, duration, trace);
    // What is within a wait leaves its edge to be seen.
    box(LEFT + (start - view.from) * scale, y + (kind === "wait" ? 0 : 4), duration * scale,
        kind === "wait" ? 30 : 12, kind, about, text(name));
    for (const [op, opLine, opStart, opDuration] of ops) {
      if (opDuration * scale < 0.3 || opStart + opDuration < view.from || opStart > view.to) continue;
      const opAbout = describe("op", text(op), "", "", text(opLine), opStart, opDuration, 0);
      box(LEFT + (opStart - view.from) * scale, y + 17, opDuration * scale, 11, "op", opAbout, text(op));
    }
  }

  function draw() {
    chart.replaceChildren();
    const scale = (WIDTH - LEFT) / Math.max(view.to - view.from, 1e-3);
    for (const step of data.steps) {
      const x = LEFT + (step.start - view.from) * scale;
      if (x < LEFT || x > WIDTH) continue;
      make(chart, "line", { class: "row", x1: x, x2: x, y1: 0, y2: 20 + LANE * data.rows.length });
      if (step.total * 1000 * scale > 60) make(chart, "text", { x: x + 3, y: 14 }, "step " + step.number);
    }
    data.rows.forEach((name, row) => {
      make(chart, "line", { class: "row", x1: 0, x2: WIDTH, y1: row * LANE + 21, y2: row * LANE + 21 });
      make(chart, "text", { x: 4, y: row * LANE + 36 }, name.slice(0, 18));
    });
    for (const entry of data.spans) {
      if (entry[2] + entry[3] >= view.from && entry[2] <= view.to) drawSpan(entry, scale);
    }
    title.textContent = time(view.from) + " to " + time(view.to);
  }

  function show(from, to) {
    view.from = from;
    view.to = to;
    draw();
  }

  function zoom(factor, part) {
    const span = view.to - view.from, at = view.from + part * span;
    show(at - part * span * factor, at + (1 - part) * span * factor);
  }

  function move(part) {
    const by = part * (view.to - view.from);
    show(view.from + by, view.to + by);
  }

  function addTimeline(parent) {
    parent.replaceChildren();
    legend(parent, Object.keys(COLOURS));
    const buttons = make(parent, "p");
    const actions = {
      "whole": () => show(begin, end), "+": () => zoom(0.5, 0.5), "\u2212": () => zoom(2, 0.5),
      "\u2190": () => move(-0.3), "\u2192": () => move(0.3),
    };
    for (const label in actions) make(buttons, "button", { type: "button" }, label).addEventListener("click", actions[label]);
    title = make(buttons, "span", { id: "view", "aria-live": "polite" });
    chart = make(parent, "svg", { id: "chart", width: WIDTH, height: LANE * data.rows.length + 24 });
    facts = make(parent, "pre", { id: "facts", "aria-live": "polite" }, "Wheel to zoom, drag to move, click for facts.");
    chart.addEventListener("wheel", (event) => {
      event.preventDefault();
      const part = (event.clientX - chart.getBoundingClientRect().left - LEFT) / (WIDTH - LEFT);
      zoom(event.deltaY > 0 ? 1.25 : 0.8, Math.min(1, Math.max(0, part)));
    }, { passive: false });
    chart.addEventListener("pointermove", (event) => {
      if (event.buttons & 1) move(-event.movementX / (WIDTH - LEFT));
    });
    draw();
  }

  // Steps --------------------------------------------------------------------------------------------------------

  const PARTS = { recording: "sync", waiting: "wait", running: "run" };

  function addStep(chart, step, x, width, most) {
    const group = make(chart, "g", { class: "step", tabindex: 0, role: "button", "data-step": step.number });
    make(group, "rect", { class: "area", x: x, y: 0, width: width, height: 104 });
    Object.keys(PARTS).forEach((name, i) => {
      const height = 100 * step[name] / most, bar = width * 0.9 / 3;
      make(group, "rect", {
        x: x + i * bar, y: 102 - height, width: Math.max(bar, 0.3), height: height, fill: COLOURS[PARTS[name]],
      });
    });
    const times = Object.keys(PARTS).map((name) => name + " " + step[name].toFixed(3) + " ms").join(", ");
    make(group, "title", {}, "step " + step.number + ": " + step.total.toFixed(3) + " ms\n" + times + "\n" + step.line);
    onChoice(group, () => {
      for (const other of chart.querySelectorAll(".chosen")) other.classList.remove("chosen");
      group.classList.add("chosen");
      show(step.start, step.start + step.total * 1000);
    });
  }

  function addSteps(parent) {
    make(parent, "p", {}, "Click a step to see its timeline.");
    legend(parent, Object.values(PARTS));
    const chart = make(parent, "svg", { id: "bars", width: WIDTH, height: 104 });
    const width = Math.min(40, WIDTH / data.steps.length);
    const most = Math.max(1e-6, ...data.steps.map((step) => Math.max(...Object.keys(PARTS).map((name) => step[name]))));
    data.steps.forEach((step, i) => addStep(chart, step, i * width, width, most));
  }

  // The graph ----------------------------------------------------------------------------------------------------

  function addGraph() {
    const find = document.getElementById("find"), about = document.getElementById("node");
    const nodes = [...document.querySelectorAll(".node")];
    for (const node of nodes) onChoice(node, () => { about.textContent = node.dataset.about; });
    if (!find) return;
    find.addEventListener("input", () => {
      const text = find.value.toLowerCase();
      const fits = nodes.filter((node) => node.dataset.about.toLowerCase().includes(text));
      for (const node of nodes) node.classList.toggle("other", !fits.includes(node));
      document.getElementById("found").textContent = text ? fits.length + " of " + nodes.length : "";
      if (text && fits.length) fits[0].scrollIntoView({ block: "nearest" });
    });
  }

  if (data.spans.length) {
    addTimeline(document.getElementById("timeline"));
    addSteps(document.getElementById("steps"));
  }
  addGraph();
})();
