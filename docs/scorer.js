// A reader who searches wants to do something: guides come before the reference, and entries of the API come last.
// Only the whole name of a class, such as SqliteJournal, leads to its entry first.
var Scorer = {
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: {0: 0, 1: 0, 2: -4},
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
  score: ([page, name, , , score, , kind]) => {
    if (kind === "object") return /[a-z][A-Z]/.test(name) && score >= 11 ? 100 : score - 11;
    return score + (page.startsWith("how-to/") ? 5 : 0) - (page.startsWith("reference/api/") ? 5 : 0);
  },
};
