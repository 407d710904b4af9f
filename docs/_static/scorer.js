// Order of search results: tutorials and how-to pages before the reference, names of the API last unless they are what was typed.
var Scorer = {
  score: ([page, title, anchor, description, score]) => {
    if (page.startsWith("how-to/") || page.startsWith("tutorial") || page === "glossary") return score + 20;
    if (page.startsWith("reference/api") || page === "reference/cli") return score - 5;
    return score;
  },
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
