// The button that turns a page from light to dark, whatever the system says.
import { dark } from "./colours";
import { element } from "./element";

/** A button that chooses between light and dark. */
export function themeButton(): HTMLButtonElement {
  const button = element("button", { type: "button", class: "theme" }, "light or dark");
  button.addEventListener("click", () => {
    document.documentElement.dataset.theme = dark() ? "light" : "dark";
  });
  return button;
}
