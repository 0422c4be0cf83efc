"""What is measured of a page in a browser: contrast of every text, what sticks out, what is drawn."""

from __future__ import annotations

# The contrast by WCAG 2 of each visible text against what lies behind its middle, the smallest first. An SVG shape
# counts by its fill.
CONTRASTS = """
(() => {
  const canvas = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
  const rgba = colour => {
    canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data; return [r, g, b, a / 255];
  };
  const over = (front, back) => [0, 1, 2].map(i => front[i] * front[3] + back[i] * (1 - front[3])).concat(1);
  const luminance = colour => {
    const [r, g, b] = colour.slice(0, 3).map(c => c / 255).map(
      c => c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const isText = e => e.localName === 'text';
  const solid = (x, y) => {
    for (const e of document.elementsFromPoint(x, y)) {
      if (isText(e)) continue;
      const style = getComputedStyle(e), svg = e instanceof SVGGeometryElement;
      if (svg && (style.fill === 'none' || e.localName === 'line')) continue;
      const colour = rgba(svg ? style.fill : style.backgroundColor);
      if (colour[3] > 0.99) return colour;
    }
    return rgba(getComputedStyle(document.body).backgroundColor);
  };
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode, parent = node.parentElement;
    if (!node.data.trim() || ['title', 'desc', 'style'].includes(parent.localName)) continue;
    const range = document.createRange(); range.selectNodeContents(node);
    const box = range.getClientRects()[0];
    if (!box || !box.width) continue;
    const style = getComputedStyle(parent);
    const front = rgba(isText(parent) ? style.fill : style.color);
    const back = solid(box.x + box.width / 2, box.y + box.height / 2);
    const [light, dark] = [luminance(over(front, back)), luminance(back)].sort((a, b) => b - a);
    found.push([(light + 0.05) / (dark + 0.05), node.data.trim().slice(0, 40)]);
  }
  return found.sort((a, b) => a[0] - b[0]);
})()
"""
# The page's own width, and all of it that reaches beyond a width in pixels without a box that moves within itself.
STICKING_OUT = """
(limit => {
  const inBox = e => { for (; e; e = e.parentElement) if (e.matches('.box')) return true; return false; };
  const out = [...document.querySelectorAll('body *')].filter(
    e => e.getBoundingClientRect().right > limit + 0.5 && !inBox(e)).map(e => e.outerHTML.slice(0, 80));
  return {width: document.documentElement.scrollWidth, out};
})(%d)
"""
# Number of pictures and tables that have a size, and of all.
DRAWN = """
(() => Object.fromEntries(['svg', 'table', '.token', 'section'].map(name => {
  document.querySelectorAll('details').forEach(e => e.open = true);
  const all = [...document.querySelectorAll(name)];
  const seen = all.filter(e => e.getBoundingClientRect().width > 5 && e.getBoundingClientRect().height > 5);
  return [name, [seen.length, all.length]];
})))()
"""
