// A choice among the manuals of versions: the same page of another one, or its first page where there is none.
document.addEventListener("DOMContentLoaded", () => {
  const place = document.getElementById("versions");
  if (!place || window.VERSIONS.length < 2) return;
  const { page } = place.dataset;
  const root = new URL(`${document.documentElement.dataset.content_root ?? "./"}`, location.href);
  const own = root.pathname.split("/").filter(Boolean).at(-1);
  const choice = document.createElement("select");
  for (const { name } of window.VERSIONS) choice.add(new Option(name, name, false, name === own));
  choice.addEventListener("change", () => {
    const { name, pages } = window.VERSIONS[choice.selectedIndex];
    location.href = new URL(`../${name}/${pages.includes(page) ? page : "index"}.html`, root).href;
  });
  const label = document.createElement("label");
  label.append("Version ", choice);
  place.append(label);
});
