// Tables that a spreadsheet opens: a text that it would take for a formula begins with an apostrophe.

/** Lines of cells as CSV. */
export function csvText(lines: readonly (readonly (string | number)[])[]): string {
  return lines.map((line) => `${line.map(cell).join(",")}\n`).join("");
}

function cell(value: string | number): string {
  let text = String(value);
  const formula = /^\s*([=@＝＠]|[+\-＋－](?!$))|^[\t\r\n]/.test(text);
  if (formula && !(text.trim() && Number.isFinite(Number(text)))) text = `'${text}`;
  // Programs that split cells at other separators find the formula behind them.
  text = text.replace(/([;,\t\n][\s"]*)(?=[=@＝＠]|[+\-＋－](?!\s*[\d.]+\s*([,;)\]}]|$)))/g, "$1'");
  return /[",;\t\r\n]|^\s|\s$/.test(text) ? `"${text.replace(/"/g, '""')}"` : text;
}
