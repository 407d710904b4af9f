import "../shared/shared.css";
import "./report.css";
import { element, pageData } from "../shared/element";
import { themeButton } from "../shared/theme";
import { draw, type Block } from "./blocks";

const data = pageData<{ title: string; blocks: Block[] }>();
const page = document.getElementById("page");
if (data && page) {
  page.append(element("header", {}, element("h1", {}, data.title), themeButton()));
  // Drawn one after the other: a chart measures its element, so this must be in the page.
  const sections = data.blocks.map((block) => page.appendChild(draw(block)));
  const links = sections.flatMap((section, index) => {
    const title = section.querySelector("h2")?.textContent;
    if (!title) return [];
    section.id = `part-${index}`;
    return [element("a", { href: `#part-${index}` }, title)];
  });
  sections[0]?.after(element("nav", { "aria-label": "Parts of this page" }, ...links));
}
