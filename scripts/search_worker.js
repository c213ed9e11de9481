// The search of the documentation site, in the place of Material's worker: one hit is one passage, best answers first.
// Messages: {type: 0, data: {docs}} is answered by {type: 1}, {type: 2, data: query} by {type: 3, data: {items, suggest}}.
(() => {
  const SYNONYMS = {}, SECTIONS = {};  // site_hooks.py puts the tables of search_words.toml here
  const STOP = new Set(("a about am an and any are at be because been but by can could did do does for from get gets had has have how i if "
    + "in into is it its me my no not of on once only or our out own should so some than that the their them then there these they this "
    + "those to under up us was we were what when where which while who whom why will with would you your use using make").split(" "));
  const WEIGHTS = {heading: 2.2, subject: 1.5, title: 1.6, tags: 1.4};
  const SYNONYM = 0.7, PREFIX = 0.8, PAGE = 0.3, LENGTH = 60, TEASER = 30;
  let passages = [], pages = new Map(), places = new Map(), vocabulary = [], titleWords = [];

  const SUFFIXES = [[/ies$/, "y"], [/(ss|us|is)$/, "$1"], [/(x|ch|sh|ss)es$/, "$1"], [/s$/, ""], [/(ation|ator|ating|ated|ate)$/, "at"],
    [/(?<=...)(ing|ed|er|ment|al|ly|e)$/, ""], [/([bdgklmnprt])\1$/, "$1"]];
  function stem(word) {
    if (word.length < 4 || /[\d_]/.test(word)) return word;
    let end = word;
    for (const [pattern, by] of SUFFIXES.slice(0, 4)) if (pattern.test(end)) { end = end.replace(pattern, by); break; }
    for (const [pattern, by] of SUFFIXES.slice(4)) if (end.length > 4) end = end.replace(pattern, by);
    return end.replace(/y$/, "i");
  }

  const WORD = /[a-z0-9]+(?:[_.][a-z0-9]+)*/g;
  function words(text) {
    const all = [];
    for (const [word] of text.toLowerCase().replace(/[’']s?\b/g, "").matchAll(WORD)) {
      all.push(stem(word));
      if (/[_.]/.test(word)) for (const part of word.split(/[_.]/)) if (part) all.push(stem(part));
    }
    return all;
  }
  const plain = html => html.replace(/<[^>]+>/g, " ").replace(/&lt;/g, "<").replace(/&gt;/g, ">").replace(/&amp;/g, "&");

  function load(docs) {
    passages = docs.map((doc, at) => {
      const path = doc.location.split("#")[0];
      if (!pages.has(path)) {
        pages.set(path, {doc, title: new Set(words(plain(doc.title))), tags: new Set(words((doc.tags || []).join(" "))), all: new Set()});
      }
      const page = pages.get(path), list = words(plain(doc.text)), text = new Map();
      for (const word of list) text.set(word, (text.get(word) || 0) + 1);
      const section = doc.location.replace(".html", "").replace(/-passage-\d+$/, "");
      const isFirst = !/-passage-\d+$/.test(doc.location);
      const heading = new Set(words(plain(doc.title))), subjects = new Set(words(SECTIONS[section] || ""));
      for (const word of new Set([...text.keys(), ...heading, ...subjects, ...page.title, ...page.tags])) {
        page.all.add(word);
        if (!places.has(word)) places.set(word, []);
        places.get(word).push(at);
      }
      const name = words(plain(doc.title).split(/\s+/).filter(word => !STOP.has(word.toLowerCase())).join(" "));
      return {doc, page, text, heading, subjects, isFirst, name, length: list.length};
    });
    vocabulary = [...places.keys()].sort();
    titleWords = [...new Set(docs.flatMap(doc => plain(doc.title).toLowerCase().match(/[a-z]{3,}/g) || []))].sort();
  }

  // One alternative of a query's word is a stem with a weight. Unknown words stand for the words that begin like them.
  function alternatives(word, isLast) {
    const own = stem(word), list = new Map([[own, 1]]);
    for (const other of (SYNONYMS[word] || SYNONYMS[own] || "").split(" ")) if (other) list.set(stem(other), SYNONYM);
    if (isLast || !places.has(own)) {
      for (const other of vocabulary) if (own.length > 2 && other.startsWith(own) && !list.has(other)) list.set(other, PREFIX);
    }
    return list;
  }
  const rarity = word => Math.log(1 + (passages.length + 0.5) / ((places.get(word) || []).length + 0.5));

  function weigh(passage, terms) {
    let score = 0, matched = 0, total = 0;
    for (const term of terms) {
      let best = 0, here = 0;
      total += term.rarity;
      for (const [word, weight] of term.words) {
        const times = passage.text.get(word) || 0;
        let value = times * 2.2 / (times + 1.2 * (0.4 + 0.6 * passage.length / LENGTH));
        if (passage.heading.has(word)) value += WEIGHTS.heading;
        if (passage.subjects.has(word)) value += passage.isFirst ? WEIGHTS.subject : WEIGHTS.subject / 2;
        if (passage.page.title.has(word)) value += WEIGHTS.title;
        if (passage.page.tags.has(word)) value += WEIGHTS.tags;
        if (value > 0) here = Math.max(here, weight);
        else if (passage.page.all.has(word)) value = PAGE, here = Math.max(here, PAGE * weight);
        best = Math.max(best, value * weight * Math.min(term.rarity, rarity(word)));
      }
      score += best;
      matched += here * term.rarity;
    }
    const isNamed = passage.isFirst && passage.name.length && passage.name.every(word => terms.some(term => term.words.has(word)));
    return score * (matched / total) ** 1.5 * (passage.doc.boost || 1) * (isNamed ? 2 : 1);
  }

  function marked(html, stems) {
    return html.split(/(<[^>]+>|&\w+;)/).map((part, at) => at % 2 ? part
      : part.replace(/[A-Za-z0-9]+/g, word => stems.has(stem(word.toLowerCase())) ? `<mark>${word}</mark>` : word)).join("");
  }

  // A teaser has no code, and begins with the first sentence that has most of the query's words.
  function teaser(html, stems) {
    const sentences = plain(html.replace(/<pre>.*?<\/pre>/gs, " ")).trim().split(/(?<=[.!?:;])\s+/);
    const matches = sentences.map(sentence => new Set(words(sentence).filter(word => stems.has(word))).size);
    const most = matches.indexOf(Math.max(...matches)), isLate = !matches[0] && !matches[1] && !/^See /.test(sentences[most]);
    const start = isLate && sentences.length > 4 ? most : 0;
    const all = sentences.slice(start).join(" ").split(/\s+/), text = all.slice(0, TEASER).join(" ");
    const escaped = text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
    return `<p>${start ? "… " : ""}${marked(escaped, stems)}${all.length > TEASER ? " …" : ""}</p>`;
  }

  function search(query) {
    const typed = query.toLowerCase().match(WORD) || [];
    const kept = typed.filter(word => !STOP.has(word)), used = kept.length ? kept : typed;
    const parts = used.flatMap(word => /[_.]/.test(word) && !places.has(word) ? word.split(/[_.]/) : [word]);
    const terms = parts.map((word, at) => {
      const list = alternatives(word, at === parts.length - 1 && !/\s$/.test(query));
      return {word, words: list, rarity: places.has(stem(word)) ? rarity(stem(word)) : Math.min(...[...list.keys()].map(rarity))};
    });
    if (!terms.length) return {items: []};
    const stems = new Set(terms.flatMap(term => [...term.words.keys()])), groups = new Map();
    const matches = new Set(terms.flatMap(term => [...term.words.keys()].flatMap(word => places.get(word) || [])));
    for (const at of matches) {
      const passage = passages[at];
      const score = weigh(passage, terms);
      if (score <= 0) continue;
      const group = passage.doc.location.startsWith("questions/") ? passage : passage.page;  // each question is a hit of its own
      if (!groups.has(group)) groups.set(group, []);
      groups.get(group).push({passage, score});
    }
    for (const hits of groups.values()) hits.sort((one, other) => other.score - one.score);
    const best = [...groups].sort(([, one], [, other]) => other[0].score - one[0].score).slice(0, 20);
    const items = best.map(([, hits]) => {
      const page = hits[0].passage.page;
      const shown = hits.slice(0, 3).map(({passage, score}, at) => {
        const known = new Set([...passage.text.keys(), ...passage.heading, ...passage.subjects, ...page.title, ...page.tags]);
        return {...passage.doc, tags: undefined, title: marked(passage.doc.title, stems), text: teaser(passage.doc.text, stems),
          score: score - at / 1e6,  // of several with one score Material would show all
          terms: Object.fromEntries(terms.map(term => [term.word, [...term.words.keys()].some(word => known.has(word))]))};
      });
      if (!shown.some(hit => hit.location === page.doc.location)) shown.push({...page.doc, tags: undefined, text: "", score: 0, terms: {}});
      return shown;
    });
    const last = typed[typed.length - 1], whole = titleWords.find(word => word.startsWith(last));
    return {items, suggest: whole ? [whole] : []};
  }

  addEventListener("message", ({data: message}) => {
    if (message.type === 0) { load(message.data.docs); postMessage({type: 1}); }
    if (message.type === 2) postMessage({type: 3, data: search(message.data)});
  });
})();
