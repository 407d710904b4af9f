"use strict";
// Texts from files: `safe` for HTML and for the markup that Plotly reads in most texts, `csvText` for a table.
// Plotly knows few entities by name, and a quotation mark by its number only.
const safe = (text) => String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;").replace(/"/g, "&#34;");
function csvText(lines) {
  const cell = (value) => {
    let text = String(value);
    if (/^\s*([=@＝＠]|[+\-＋－](?!$))|^[\t\r\n]/.test(text) && !(text.trim() && Number.isFinite(Number(text)))) text = `'${text}`;
    text = text.replace(/([;,\t\n][\s"]*)(?=[=@＝＠]|[+\-＋－](?!\s*[\d.]+\s*([,;)\]}]|$)))/g, "$1'");
    return /[",;\t\r\n]|^\s|\s$/.test(text) ? `"${text.replace(/"/g, '""')}"` : text;
  };
  return lines.map((line) => line.map(cell).join(",") + "\n").join("");
}
