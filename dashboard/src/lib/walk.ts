// j and k in plain tables: from one row's first link to the next one's, so that Enter opens it.

const links = (node: HTMLElement): HTMLAnchorElement[] =>
  [...node.querySelectorAll('table.plain tbody tr')].flatMap((row) => {
    // What is not shown cannot be reached, such as a column that a phone leaves out.
    const link = [...row.querySelectorAll<HTMLAnchorElement>('a[href]')].find((one) => one.offsetParent !== null);
    return link ? [link] : [];
  });

/** Walks the tables within the node, also where they change. A list with keys of its own keeps them. */
export function walk(node: HTMLElement) {
  const key = (event: KeyboardEvent) => {
    const target = event.target as HTMLElement;
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || (event.key !== 'j' && event.key !== 'k')) return;
    if (target.closest('input, textarea, select, dialog, [contenteditable]') || node.querySelector('.rows')) return;
    const all = links(node);
    const row = target.closest('tr');
    const at = all.findIndex((link) => link.closest('tr') === row);
    const next = all[at < 0 ? 0 : Math.max(0, Math.min(all.length - 1, at + (event.key === 'j' ? 1 : -1)))];
    if (!next) return;
    event.preventDefault();
    next.focus();
  };
  addEventListener('keydown', key);
  return { destroy: () => removeEventListener('keydown', key) };
}
