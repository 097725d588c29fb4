// The search of the reference: hides what does not match. The page works without it.
'use strict';

const box = document.getElementById('search');
const none = document.getElementById('none');
const places = [...document.querySelectorAll('[data-words]')];

function search() {
  const words = box.value.toLowerCase().split(/\s+/).filter(Boolean);
  let shown = 0;
  for (const place of places) {
    const fits = words.every((word) => place.dataset.words.includes(word));
    place.hidden = !fits;
    if (fits) shown += 1;
  }
  for (const group of document.querySelectorAll('[data-group]')) {
    group.hidden = words.length > 0 && !group.querySelector('[data-words]:not([hidden])');
  }
  none.hidden = shown > 0;
}

box.closest('form').addEventListener('submit', (event) => event.preventDefault());
box.addEventListener('input', search);
document.addEventListener('keydown', (event) => {
  if (event.key === '/' && document.activeElement !== box) {
    event.preventDefault();
    box.focus();
  } else if (event.key === 'Escape' && document.activeElement === box) {
    box.value = '';
    search();
  }
});
document.querySelector('.menu').addEventListener('click', (event) => {
  if (event.target.closest('a')) document.getElementById('open').checked = false;
});
search();
