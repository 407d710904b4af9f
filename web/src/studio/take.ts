import { element } from "../shared/element";
import type { Step } from "./api";

/** How to get the same without the studio: a command line, Python, a study file, and a link. */
export function take(place: HTMLElement) {
  const show = (step: Step) => {
    const files = Object.entries(step.files);
    const first = files.length ? `${files.map(([name, text]) => heredoc(name, text)).join("\n")}\n` : "";
    const config = !step.prediction.memory
      ? `# The files that were dropped lie ${/ --pytorch traces\b/.test(step.command) ? "in the folder traces" : "in this folder"}.\n`
      : step.command.includes(" ./") ? "# The config.json that was dropped lies in this folder.\n" : "";
    place.replaceChildren(
      block("Command line", "command", `${config}${first}${step.command}`),
      block("Python", "python", `${files.length ? "# The files are those of the command line.\n" : ""}${step.python}`),
      block("Study file", "study", step.study, "study.yaml"),
      block(step.prediction.memory ? "Link to this state, without the token" : "Link to this state, as long as this studio runs; without the token", "link", location.href),
    );
  };
  return { show, leave: () => undefined };
}

function heredoc(name: string, text: string): string {
  return `cat > ${name} <<'END'\n${text.trimEnd()}\nEND`;
}

function block(title: string, id: string, text: string, file?: string): HTMLElement {
  const copy = element("button", { type: "button", "aria-label": `Copy: ${title}` }, "Copy");
  copy.addEventListener("click", () => {
    void navigator.clipboard.writeText(text).then(() => (copy.textContent = "Copied"), () => (copy.textContent = "Select and copy it"));
  });
  const save = file ? element("button", { type: "button" }, `Save ${file}`) : null;
  save?.addEventListener("click", () => {
    const link = element("a", { href: URL.createObjectURL(new Blob([text], { type: "text/plain" })), download: file! });
    link.click();
    URL.revokeObjectURL(link.href);
  });
  return element("section", {}, element("h2", {}, title, " ", copy, save ? " " : null, save), element("pre", { id, tabindex: "0" }, text));
}
