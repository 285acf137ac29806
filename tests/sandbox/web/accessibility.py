"""Checks of accessibility that run in the page itself."""

from typing import Final

from playwright.async_api import Page

_LOOK: Final = """
(touch) => {
  const found = [];
  for (const folded of document.querySelectorAll('details')) folded.open = true;
  const shown = (element) => element.checkVisibility({visibilityProperty: true})
    && !element.closest('.hidden') && element.getClientRects().length > 0;
  const name = (element) => `${element.localName}${element.id && '#' + element.id}.${element.className} `
    + `"${(element.textContent || '').trim().slice(0, 40)}"`;
  const all = (selector) => [...document.querySelectorAll(selector)].filter(shown);

  if (document.documentElement.lang !== 'en') found.push('no language');
  if (!document.title) found.push('no title');
  if (all('main').length !== 1) found.push('not one main');
  if (document.documentElement.scrollWidth > window.innerWidth) found.push('stands out sideways');

  const levels = all('h1, h2, h3').map((heading) => Number(heading.localName[1]));
  if (levels.filter((level) => level === 1).length !== 1) found.push('not one h1');
  levels.reduce((before, level) => (level > before + 1 && found.push(`h${before} then h${level}`), level), 0);

  for (const field of all('input, select')) if (!field.labels.length) found.push(`no label: ${name(field)}`);
  for (const one of all('button, a')) if (!one.innerText.trim()) found.push(`no name: ${name(one)}`);
  for (const one of document.querySelectorAll('[tabindex]')) if (one.tabIndex > 0) found.push(`order: ${name(one)}`);
  for (const id of new Set([...document.querySelectorAll('[id]')].map((one) => one.id))) {
    if (document.querySelectorAll(`#${CSS.escape(id)}`).length > 1) found.push(`id twice: ${id}`);
  }
  for (const one of document.querySelectorAll('[aria-labelledby]')) {
    if (!document.getElementById(one.getAttribute('aria-labelledby'))) found.push(`labelled by nothing: ${name(one)}`);
  }

  const edge = (element) => {
    for (let one = element; one; one = one.parentElement) {
      const style = getComputedStyle(one);
      if (style.textOverflow === 'ellipsis' || style.overflowX === 'auto' || style.clipPath !== 'none') return Infinity;
      if (style.overflowX === 'clip') return one.getBoundingClientRect().right;
    }
    return window.innerWidth;
  };
  for (const one of all('body *')) {
    if (one.getBoundingClientRect().right > edge(one) + 0.5) found.push(`cut: ${name(one)}`);
  }

  if (touch) for (const one of all('button, input:not([type=hidden]), select, summary, a')) {
    const box = one.getBoundingClientRect();
    const inText = one.localName === 'a' && one.closest('p, .lines div');
    if (!inText && (box.height < 43.5 || box.width < 24)) found.push(`${box.width}x${box.height}: ${name(one)}`);
  }

  const parsed = (text) => text.match(/[\\d.]+/g).map(Number);
  const over = ([r, g, b, a = 1], under) => [r, g, b].map((part, i) => part * a + under[i] * (1 - a));
  const behind = (element) => {
    if (!element) return [255, 255, 255];
    const [r, g, b, a = 1] = parsed(getComputedStyle(element).backgroundColor);
    return a === 1 ? [r, g, b] : over([r, g, b, a], behind(element.parentElement));
  };
  const light = (colour) => {
    const [r, g, b] = colour.map((part) => part / 255)
      .map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const contrast = (one, other) => {
    const [low, high] = [light(one), light(other)].sort((a, b) => a - b);
    return (high + 0.05) / (low + 0.05);
  };
  for (const element of all('body *')) {
    const own = [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
    if (!own || element.localName === 'option' || element.localName === 'script') continue;
    const ground = behind(element);
    const ratio = contrast(over(parsed(getComputedStyle(element).color), ground), ground);
    if (ratio < 4.5) found.push(`contrast ${ratio.toFixed(2)}: ${name(element)}`);
  }
  for (const field of all('input[placeholder]')) {
    const said = parsed(getComputedStyle(field, '::placeholder').color).slice(0, 3);
    if (contrast(said, behind(field)) < 4.5) found.push(`pale placeholder: ${name(field)}`);
  }
  for (const field of all('input, select, button')) {
    const style = getComputedStyle(field);
    const [, , , seen = 1] = parsed(style.borderTopColor);
    if (seen === 0) continue;
    const ratio = contrast(parsed(style.borderTopColor).slice(0, 3), behind(field.parentElement));
    if (ratio < 3) found.push(`edge ${ratio.toFixed(2)}: ${name(field)}`);
  }
  return found;
}
"""

_FOCUS: Final = """
() => {
  const hidden = [];
  for (const one of document.querySelectorAll('button, a, input:not([type=hidden]), select, summary, pre')) {
    if (!one.checkVisibility()) continue;
    one.focus({focusVisible: true});
    if (document.activeElement !== one) { hidden.push(`not reached: ${one.outerHTML.slice(0, 80)}`); continue; }
    const style = getComputedStyle(one);
    if (style.outlineStyle === 'none' || parseFloat(style.outlineWidth) < 2) {
      hidden.push(`focus not seen: ${one.outerHTML.slice(0, 80)}`);
    }
  }
  document.activeElement.blur();
  return hidden;
}
"""


async def violations(page: Page, *, touch: bool) -> list[str]:
    """Return the accessibility violations of a page.

    Args:
        page: The page in its current state.
        touch: Whether the page is used by finger, so that targets must be 44 pixels high.
    """
    return [*await page.evaluate(_LOOK, touch), *await page.evaluate(_FOCUS)]
