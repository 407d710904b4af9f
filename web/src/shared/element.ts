// Elements of a page. A string among the children is text, never markup.
export type Child = Node | string | null | undefined | false;

/** Make an element: `element("p", { class: "dim" }, "text", element("b", {}, "bold"))`. */
export function element<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  attributes: Record<string, string> = {},
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children.filter((child): child is Node | string => child != null && child !== false));
  return made;
}

/** The value of the JSON that base/page.py writes into a page, or null without one. */
export function pageData<T>(): T | null {
  const holder = document.getElementById("page-data");
  return holder?.textContent ? (JSON.parse(holder.textContent) as T) : null;
}
