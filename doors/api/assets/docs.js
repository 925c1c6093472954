// The viewer in dark colours where they were chosen on the pages or, without a choice, are the
// system's. And what the viewer leaves unsaid to people who hear the page: what its large field is for,
// and how its headings follow one another.
"use strict";

const root = document.documentElement;
const system = matchMedia("(prefers-color-scheme: dark)");
const paint = () => {
  const { theme } = root.dataset;
  root.classList.toggle("dark-mode", theme === "dark" || (theme === "auto" && system.matches));
};
paint();
system.addEventListener("change", paint);

new MutationObserver(() => {
  for (const field of document.querySelectorAll("textarea.body-param__text:not([aria-label])")) {
    field.setAttribute("aria-label", "Request body");
  }
  for (const heading of document.querySelectorAll("#swagger-ui :is(h3, h4, h5, h6):not([aria-level])")) {
    heading.setAttribute("aria-level", Number(heading.tagName[1]) - 1);
  }
}).observe(root, { childList: true, subtree: true });
