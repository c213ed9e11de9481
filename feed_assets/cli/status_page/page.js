"use strict";
(() => {
  const form = document.querySelector(".filter");
  if (!form) return;
  const rows = [...document.querySelectorAll("tr[data-name]")];
  const boxes = [...form.querySelectorAll("[name=state]")];

  const matches = (row, words, states) =>
    words.every((word) => row.dataset.name.includes(word)) &&
    (states.length === 0 || states.some((state) => row.dataset.states.split(" ").includes(state)));

  const filter = () => {
    const words = form.elements.name.value.toLowerCase().split(/\s+/).filter(Boolean);
    const states = boxes.filter((box) => box.checked).map((box) => box.value);
    for (const row of rows) row.hidden = !matches(row, words, states);
    for (const section of document.querySelectorAll("section")) {
      const own = [...section.querySelectorAll("tr[data-name]")];
      section.hidden = own.length > 0 && own.every((row) => row.hidden);
    }
    for (const more of document.querySelectorAll("details")) more.open ||= words.length + states.length > 0;
    document.querySelector(".no-match").hidden = rows.length === 0 || rows.some((row) => !row.hidden);
    keep(form.elements.name.value, states);
  };

  // Keep the filter in the address, so that it survives the reload a minute later, and a colleague can open it.
  const keep = (name, states) => {
    const query = new URLSearchParams(location.search);
    query.delete("name");
    query.delete("state");
    if (name) query.set("name", name);
    for (const state of states) query.append("state", state);
    const address = `${location.pathname}${query.size ? `?${query}` : ""}${location.hash}`;
    if (location.protocol !== "file:") history.replaceState(null, "", address);
  };

  const query = new URLSearchParams(location.search);
  form.elements.name.value = query.get("name") ?? "";
  for (const box of boxes) box.checked = query.getAll("state").includes(box.value);
  form.addEventListener("input", filter);
  form.addEventListener("submit", (event) => event.preventDefault());
  document.documentElement.classList.add("can-filter");
  filter();
})();
