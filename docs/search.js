// The site's search. It is MkDocs' index and lunr.js, read as scripts and searched in the page itself: opened from a
// disk, a page may neither fetch a file nor start a worker. deploy/site_hooks.py puts this in place of MkDocs' script.
document.addEventListener("DOMContentLoaded", () => {
  const MOST = 30, SHORTEST = 3;
  const input = document.getElementById("mkdocs-search-query");
  const results = document.getElementById("mkdocs-search-results");
  let ready;

  const load = (name) => new Promise((resolve, reject) => {
    const script = document.createElement("script");
    script.src = `${base_url}/search/${name}`;
    script.onload = resolve;
    script.onerror = reject;
    document.head.append(script);
  });

  async function prepare() {
    await load("lunr.js");
    await load("search_index.js");
    const { docs, config } = window.searchIndex;
    lunr.tokenizer.separator = new RegExp(config.separator);
    const index = lunr(function () {
      this.ref("location");
      this.field("title", { boost: 10 });
      this.field("text");
      docs.forEach((each) => this.add(each));
    });
    return { index, documents: new Map(docs.map((each) => [each.location, each])) };
  }

  async function find(words) {
    const { index, documents } = await (ready ??= prepare());
    const found = index.query((query) => {
      for (const word of lunr.tokenizer(words).map(String)) {
        query.term(word, { boost: 10 });
        query.term(word, { usePipeline: false, wildcard: lunr.Query.wildcard.TRAILING }); // not yet typed to its end
      }
    });
    return found.slice(0, MOST).map((each) => documents.get(each.ref));
  }

  function make(name, text, ...children) {
    const made = document.createElement(name);
    made.append(text, ...children);
    return made;
  }

  async function show() {
    const words = input.value.trim();
    const found = words.length < SHORTEST ? [] : await find(words);
    if (words !== input.value.trim()) return; // more was typed meanwhile
    const articles = found.map(({ location, title, text }) => {
      const link = make("a", title);
      link.href = `${base_url}/${location}`;
      return make("article", make("h3", link), make("p", text.slice(0, 200)));
    });
    results.replaceChildren(...(articles.length ? articles : [make("p", results.dataset.noResultsText)]));
  }

  input.addEventListener("input", show);
  input.closest("form")?.addEventListener("submit", (event) => event.preventDefault());
  input.value = new URLSearchParams(window.location.search).get("q") ?? "";
  if (input.value) show();
});
