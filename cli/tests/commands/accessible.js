// What is wrong with a page for people who read it with a keyboard, a magnifier or a screen reader: a line for each.
const wrong = [];
const name = (element) => `<${element.tagName.toLowerCase()}> "${(element.textContent || element.name || "").trim().slice(0, 40)}"`;
const shown = (element) => element.checkVisibility({ visibilityProperty: true }) && element.getClientRects().length > 0;

if (!document.documentElement.lang) wrong.push("the page has no language");
// A component may have the main part.
const trees = [document, ...[...document.querySelectorAll("*")].flatMap((element) => element.shadowRoot ?? [])];
if (trees.flatMap((tree) => [...tree.querySelectorAll("main")]).length !== 1) wrong.push("there is not one main part");
for (const field of document.querySelectorAll("input, select, textarea")) {
  if (shown(field) && !field.labels.length && !field.ariaLabel) wrong.push(`${name(field)} has no label`);
}
for (const control of document.querySelectorAll("a, button")) {
  if (!(control.textContent.trim() || control.ariaLabel)) wrong.push(`${name(control)} says nothing`);
}
for (const picture of document.querySelectorAll("svg, img")) {
  const said = picture.ariaLabel || picture.alt || picture.ariaHidden === "true" || picture.closest("[aria-hidden=true]");
  if (!said) wrong.push(`${name(picture)} has no words and is not hidden`);
}
let level = 0;
for (const heading of [...document.querySelectorAll("h1, h2, h3, h4")].filter(shown)) {
  const own = Number(heading.tagName[1]);
  if (own > level + 1) wrong.push(`${name(heading)} comes after a heading of level ${level}`);
  level = own;
}

// Contrast, WCAG 2.2, 1.4.3: 4.5, or 3 for large letters. A canvas turns whatever colour a style sheet makes into numbers.
const canvas = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
const over = (colours) => {
  canvas.clearRect(0, 0, 1, 1);
  for (const colour of colours) {
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
  }
  return [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3);
};
const light = (rgb) => {
  const [r, g, b] = rgb.map((part) => part / 255).map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
let seen = 0;
while (texts.nextNode()) {
  const element = texts.currentNode.parentElement;
  if (!texts.currentNode.data.trim() || element.closest("script, noscript, option, .hidden, .skip") || !shown(element)) continue;
  seen += 1;
  const behind = [];
  for (let at = element; at; at = at.parentElement) behind.unshift(getComputedStyle(at).backgroundColor);
  const style = getComputedStyle(element);
  const [back, front] = [over(["white", ...behind]), over(["white", ...behind, style.color])].map(light);
  const ratio = (Math.max(back, front) + 0.05) / (Math.min(back, front) + 0.05);
  const size = parseFloat(style.fontSize);
  const large = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
  if (ratio < (large ? 3 : 4.5)) wrong.push(`${name(element)} has a contrast of ${ratio.toFixed(2)}`);
}
if (seen === 0) wrong.push("no text was found");
return wrong;
