// Guides come before the entries of the API: a match in the title of a page counts more than one in the name of an object.
var Scorer = {
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: {0: 0, 1: -6, 2: -10},
  objPrioDefault: -6,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
