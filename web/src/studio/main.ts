import "../shared/shared.css";
import { chart } from "../shared/charts";
import { element } from "../shared/element";

chart(document.body.appendChild(element("div", { style: "height: 10rem" })), () => ({}));
