// What does a reader of this page see? Run inside the page; the answer, a JSON text, is its title, and told to the page
// around it if there is one.
//
// Found are faults: what stands beside the page, tables that are cut off, texts of a chart that lie on each other or outside of it, letters that are
// hard to read, and anything that was fetched.
(() => {
  const faults = [];
  const fault = (text) => { if (faults.length < 20) faults.push(text); };
  const width = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth > width) {
    fault(`the page is ${document.documentElement.scrollWidth} wide on a screen of ${width}`);
  }
  document.querySelectorAll("details").forEach((part) => { part.open = true; });
  if (document.documentElement.scrollWidth > width) fault("with its numbers open the page is too wide");
  document.querySelectorAll("details").forEach((part) => { part.open = false; });

  // Luminance and contrast as in WCAG 2.
  const channels = (colour) => (colour.match(/[\d.]+/g) || []).map(Number);
  const luminance = ([r, g, b]) => {
    const part = (c) => { c /= 255; return c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4; };
    return 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b);
  };
  const contrast = (one, other) => {
    const [a, b] = [luminance(channels(one)), luminance(channels(other))].sort((x, y) => y - x);
    return (a + 0.05) / (b + 0.05);
  };
  const page = getComputedStyle(document.body).backgroundColor;
  for (const part of document.querySelectorAll("h1, h2, p, li, td, th, dt, dd, small, summary, figcaption, .verdict, svg text")) {
    const style = getComputedStyle(part);
    const colour = part.namespaceURI.endsWith("svg") ? style.fill : style.color;
    const found = contrast(colour, page);
    if (found < 4.5) fault(`contrast ${found.toFixed(1)} of ${part.tagName} "${part.textContent.slice(0, 30)}"`);
  }
  for (const part of document.querySelectorAll("figure rect[class^=f], figure .line")) {
    const style = getComputedStyle(part);
    const found = contrast(part.tagName === "rect" ? style.fill : style.stroke, page);
    if (found < 3) fault(`contrast ${found.toFixed(1)} of ${part.tagName}.${part.getAttribute("class")}`);
  }

  // A table that is wider than the page's column scrolls in a box of its own, or is cut off; its cards fold.
  const column = document.querySelector("main").getBoundingClientRect();
  const scrolls = (part) => ["auto", "scroll"].includes(getComputedStyle(part).overflowX);
  let tables = 0;
  document.querySelectorAll("details").forEach((part) => { part.open = true; });
  for (const table of document.querySelectorAll("table")) {
    let box = table;
    while (box.tagName !== "MAIN" && !scrolls(box)) box = box.parentElement;
    const held = box.tagName === "MAIN" ? table : box;
    const { left, right } = held.getBoundingClientRect();
    const name = (table.caption || table.rows[0]).textContent.slice(0, 40);
    if (left < column.left - 1 || right > column.right + 1) fault(`a table is wider than the page: "${name}"`);
    for (const cell of table.querySelectorAll("td, th")) {
      if (cell.scrollWidth > cell.clientWidth + 1 && cell.clientWidth > 0) {
        fault(`a cell is cut off: "${cell.textContent.slice(0, 40)}" of "${name}"`);
      }
    }
    tables += 1;
  }
  document.querySelectorAll("details").forEach((part) => { part.open = false; });

  let texts = 0;
  for (const chart of document.querySelectorAll("figure > svg")) {
    const name = chart.querySelector("title").textContent;
    const labels = [...chart.querySelectorAll("text")].filter((text) => text.textContent.trim());
    const boxes = labels.map((text) => text.getBoundingClientRect());
    texts += boxes.length;
    boxes.forEach((box, at) => {
      const text = labels[at].textContent;
      if (box.left < -1 || box.right > width + 1) fault(`"${text}" of "${name}" stands beside the page`);
      for (let next = at + 1; next < boxes.length; next += 1) {
        const other = boxes[next];
        const across = Math.min(box.right, other.right) - Math.max(box.left, other.left);
        const down = Math.min(box.bottom, other.bottom) - Math.max(box.top, other.top);
        if (across > 1 && down > 3) fault(`"${text}" and "${labels[next].textContent}" of "${name}" lie on each other`);
      }
    });
  }
  // What cannot be fetched is not among the resources, so elements that fetch are named as well.
  document.querySelectorAll("[src], [href], [srcset], [data], link, object, iframe").forEach((part) => {
    fault(`fetched by <${part.tagName}>`);
  });
  for (const style of document.querySelectorAll("style")) {
    if (/url\(|@import/.test(style.textContent)) fault("fetched by the style sheet");
  }
  const fetched = performance.getEntriesByType("resource").map((entry) => entry.name);
  fetched.forEach((name) => fault(`fetched ${name}`));
  const seen = {
    faults, width, texts, tables,
    dark: luminance(channels(page)) < 0.2,
    charts: document.querySelectorAll("figure > svg").length,
    verdicts: document.querySelectorAll(".verdict").length,
  };
  document.title = JSON.stringify(seen);
  if (parent !== window) parent.postMessage(document.title, "*");
})();
