// The page of validations: a line per table and part, and then each table with its cloud and its rows.
import "../shared/shared.css";
import "./validation.css";
import { element, pageData, type Child } from "../shared/element";
import { themeButton } from "../shared/theme";
import { percent, plural, type Content, type Part } from "./data";
import { tableOf, View } from "./view";

const VERDICTS = ["met", "missed", "shown"] as const;
const ABOUT =
  "errors are |predicted ÷ measured − 1|; blind: no constant has seen the rows, held out: constants were fitted to other rows of the set";

function summaryLine(one: Part, part: boolean): [string, Child[]] {
  const errors = one.errors;
  const name = part ? element("span", { title: one.title }, one.name) : element("a", { href: `#${encodeURIComponent(one.name)}`, title: one.title }, one.name);
  const known = errors.rows.toLocaleString("en");
  return [part ? "part" : "", [
    name, one.relation, errors.refused ? `${known} of ${one.n.toLocaleString("en")}` : known, percent(errors.mean), percent(errors.worst), percent(errors.median),
    errors.rank === null ? "–" : errors.rank.toFixed(3), percent(errors.bias, true), percent(errors.within), percent(errors.held), one.bars.join(", ") || "–",
    element("span", { class: one.verdict }, one.verdict),
  ]];
}

function start(page: HTMLElement, data: Content): void {
  const all = data.tables.flatMap((table): Part[] => [table, ...table.parts]);
  const counts = VERDICTS.map((word) => `${all.filter((one) => one.verdict === word).length} ${word}`).join(", ");
  page.before(element("header", {}, element("h1", {}, "Predicted and measured"),
    element("span", { class: "dim" }, `${plural(data.tables.length, "table")}: ${counts} with their parts`), element("span", { class: "space" }), themeButton()));
  const header = ["table", "relation", "rows", "mean", "worst", "median", "rank", "bias", `within ${100 * data.near} %`, "in interval", "bar", "verdict"];
  const lines = data.tables.flatMap((table) => [summaryLine(table, false), ...table.parts.map((part) => summaryLine(part, true))]);
  page.append(element("section", {}, element("h2", {}, "All tables", element("small", {}, ABOUT)),
    element("div", { id: "summary", class: "scroll", tabindex: "0", role: "region", "aria-label": "All tables" }, tableOf(header, lines, 2)),
    ...data.skipped.map((text) => element("p", { class: "dim" }, `skipped ${text}`))));
  const views = new Map<Element, View>();
  // Charts are made as they come near the window: a page of many opens at once.
  const seen = new IntersectionObserver((entries) => {
    for (const { target } of entries.filter((entry) => entry.isIntersecting)) {
      seen.unobserve(target);
      views.get(target)!.open();
    }
  }, { rootMargin: "800px" });
  for (const table of data.tables) {
    const view = new View(table, data.near);
    page.append(view.section);
    views.set(view.place, view);
    seen.observe(view.place);
  }
}

const content = pageData<Content>();
const root = document.getElementById("page");
if (content && root) start(root, content);
