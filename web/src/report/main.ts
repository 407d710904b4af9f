import "../shared/shared.css";
import { chart } from "../shared/charts";
import { element, pageData } from "../shared/element";

const data = pageData<{ title: string }>();
if (data) {
  document.body.append(element("h1", {}, data.title));
  chart(document.body.appendChild(element("div", { style: "height: 10rem" })), () => ({}));
}
