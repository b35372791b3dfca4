"""The search engines of the simulated web: each in the shape that its real results page has, and their faults.

Shapes follow what ddgs 9.16 sends and reads (form fields, xpaths). Pure: a request and a fault in, a `Response` out.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from urllib.parse import quote, urlsplit

from tests.simulated_pages import Hit, Response, page

# -- Faults ------------------------------------------------------------------------------------------------------------

FAULTS = {
    "ok": "ten results",
    "no-hits": "200 and the engine's own page for a query that matches nothing",
    "no-hits-202": "the same page with status 202",
    "202": "the challenge page (about 14 KB, no rows) with status 202",
    "200-challenge": "the challenge page with status 200",
    "403": "refused; `403:30` adds Retry-After: 30",
    "429": "too many requests; `429:30` adds Retry-After: 30",
    "500": "internal error (502 and 503 work too)",
    "garbage": "200 and bytes that are no page",
    "empty": "200 and no body at all",
    "slow": "`slow:4` answers after 4 seconds",
    "hang": "no answer until the web is released or closed",
    "drip": "starts a page and never ends it",
    "reset": "the connection is reset after the request",
    "limit": "`limit:8/10/60` answers 202 for 60 s once 8 requests came within 10 s",
    "dns": "the name does not resolve (the proxy answers 502)",
    "refused": "the host refuses connections (the proxy answers 503)",
    "certificate": "the certificate is signed by an unknown authority",
    "misnamed": "the certificate is for another host",
    "connect-hang": "the proxy never answers for this host",
}
"""Name -> what happens. Arguments follow a colon. The last five concern the host as a whole, not one answer."""

HOST_FAULTS = ("dns", "refused", "certificate", "misnamed", "connect-hang")


@dataclass(frozen=True)
class Fault:
    """A fault with its argument; `Fault.parse("429:30")`."""

    kind: str
    argument: str = ""

    @classmethod
    def parse(cls, text: str) -> "Fault":
        """Raises ValueError, naming what is known, for an unknown fault or a bad argument."""
        kind, _, argument = text.partition(":")
        if kind not in FAULTS and kind not in ("502", "503"):
            raise ValueError(f"unknown fault {text!r}; known are {', '.join(FAULTS)}")
        fault = cls(kind, argument)
        if kind == "slow":
            float(argument)
        if kind == "limit":
            RateLimit.parse(argument)
        return fault


@dataclass(frozen=True)
class RateLimit:
    """Blocks for `block_seconds` once `requests` came within `window_seconds`."""

    requests: int
    window_seconds: float
    block_seconds: float

    @classmethod
    def parse(cls, text: str) -> "RateLimit":
        requests, window, block = text.split("/")
        return cls(int(requests), float(window), float(block))


# -- Result pages ------------------------------------------------------------------------------------------------------

Params = Mapping[str, str]
Cookies = Mapping[str, str]


def duckduckgo_link(hit: Hit) -> str:
    if hit.form == "ad":
        return "https://duckduckgo.com/y.js?ad_domain=ads.example.com&ad_provider=x&u3=" + quote(hit.url, safe="")
    if hit.form == "redirect":
        return f"//duckduckgo.com/l/?uddg={quote(hit.url, safe='')}&rut=0123456789abcdef"
    return hit.url


def duckduckgo_results(hits: Sequence[Hit], query: str) -> str:
    rows = []
    for hit in hits:
        link = escape(duckduckgo_link(hit))
        kind = "result--ad" if hit.form == "ad" else "web-result"
        rows.append(
            f'<div class="result results_links results_links_deep {kind}">\n'
            f'<div class="links_main links_deep result__body">\n<h2 class="result__title">\n'
            f'<a rel="nofollow" class="result__a" href="{link}">{escape(hit.title)}</a>\n</h2>\n'
            f'<div class="result__extras"><div class="result__extras__url"><span class="result__icon"><a href="{link}">'
            f'<img class="result__icon__img" src="//external-content.duckduckgo.com/ip3/x.ico"/></a></span>'
            f'<a class="result__url" href="{link}">{escape(hit.url)}</a></div></div>\n'
            f'<a class="result__snippet" href="{link}">{escape(hit.snippet)}</a>\n<div class="clear"></div>\n'
            f"</div>\n</div>"
        )
    return duckduckgo_frame("\n".join(rows), query)


def duckduckgo_frame(rows: str, query: str) -> str:
    return (
        f'<!DOCTYPE html><html lang="en"><head><meta http-equiv="content-type" content="text/html; charset=UTF-8"/>'
        f'<title>{escape(query)} at DuckDuckGo</title></head><body class="body--html">'
        f'<form id="search_form" class="header__form" action="/html/" method="post"><input class="search__input" '
        f'name="q" value="{escape(query)}"/></form>\n<div><div class="serp__results"><div id="links" class="results">\n'
        f"{rows}\n</div></div></div></body></html>"
    )


def duckduckgo_no_hits(query: str) -> str:
    """The real page holds one result block without a link, which ddgs reads as a result of empty fields."""
    return duckduckgo_frame(
        '<div class="result results_links results_links_deep result--no-result">\n<div class="links_main links_deep '
        'result__body">\n<div class="no-results">No results found for your search.</div>\n</div>\n</div>',
        query,
    )


def brave_results(hits: Sequence[Hit], query: str) -> str:
    rows = "\n".join(
        f'<div class="snippet" data-type="{"ad" if hit.form == "ad" else "web"}" data-pos="{position}">'
        f'<div class="result-content"><a href="{escape(hit.url)}" class="l1"><div class="site-name-wrapper">'
        f'<div class="site-url">{escape(urlsplit(hit.url).netloc)}</div></div>'
        f'<div class="title search-snippet-title">{escape(hit.title)}</div></a>'
        f'<div class="generic-snippet snippet-body"><div class="content">{escape(hit.snippet)}</div></div></div></div>'
        for position, hit in enumerate(hits)
    )
    return (
        f"<!doctype html><html><head><title>{escape(query)} - Brave Search</title></head><body><main>{rows}</main>"
        f"</body></html>"
    )


def brave_no_hits(query: str) -> str:
    return brave_results((), query).replace(
        "<main>", '<main><div class="noresults"><h2>Not many great matches came back for your search</h2></div>'
    )


def mojeek_results(hits: Sequence[Hit], query: str) -> str:
    rows = "\n".join(
        f'<li class="r{position}"><a class="ob" href="{escape(hit.url)}"><p class="i">{escape(hit.url)}</p></a>'
        f'<h2><a class="title" href="{escape(hit.url)}">{escape(hit.title)}</a></h2>'
        f'<p class="s">{escape(hit.snippet)}</p></li>'
        for position, hit in enumerate(hits, start=1)
        if hit.form != "ad"
    )
    return (
        f"<!DOCTYPE html><html><head><title>{escape(query)} - Mojeek Search</title></head><body><div class='results'>"
        f'<ul class="results-standard">{rows}</ul></div></body></html>'
    )


def mojeek_no_hits(query: str) -> str:
    return (
        "<!DOCTYPE html><html><head><title>Mojeek Search</title></head><body><div class='results'>"
        f"<p class='top-info'>No pages found matching: {escape(query)}</p></div></body></html>"
    )


def startpage_results(hits: Sequence[Hit], query: str) -> str:
    rows = "\n".join(
        f'<div class="result css-{position}"><a class="result-title result-link" '
        f'href="{escape("https://www.google.com/aclk?u=" + hit.url if hit.form == "ad" else hit.url)}">'
        f'<h2 class="wgl-title">{escape(hit.title)}</h2></a><p class="description">{escape(hit.snippet)}</p></div>'
        for position, hit in enumerate(hits)
    )
    return (
        f"<!DOCTYPE html><html><head><title>Startpage Search Results</title></head><body>"
        f'<section class="w-gl" data-query="{escape(query)}">{rows}</section></body></html>'
    )


def startpage_no_hits(query: str) -> str:
    return startpage_results((), query).replace(
        "</section>", "<h3>Sorry, there are no results for this search.</h3></section>"
    )


STARTPAGE_TOKEN = "Xq3vT0kEn17"
STARTPAGE_HOME = (
    "<!DOCTYPE html><html><head><title>Startpage</title></head><body><form id='search' action='/sp/search' "
    f"method='post'><input name='query'><input type='hidden' name='sc' value='{STARTPAGE_TOKEN}'></form></body></html>"
)


def yahoo_link(hit: Hit) -> str:
    if hit.form == "ad":
        return "https://www.bing.com/aclick?ld=x&u=" + quote(hit.url, safe="")
    return f"https://r.search.yahoo.com/_ylt=Awr/RV=2/RE=1/RO=10/RU={quote(hit.url, safe='')}/RK=2/RS=abc-"


def yahoo_results(hits: Sequence[Hit], query: str) -> str:
    rows = "\n".join(
        f'<li><div class="dd algo algo-sr relsrch Sr"><div class="compTitle options-toggle"><a href="'
        f'{escape(yahoo_link(hit))}"><span>{escape(urlsplit(hit.url).netloc)}</span><h3 class="title">'
        f'<span>{escape(hit.title)}</span></h3></a></div><div class="compText aAbs"><p>{escape(hit.snippet)}</p></div>'
        f"</div></li>"
        for hit in hits
    )
    return (
        f"<!DOCTYPE html><html><head><title>{escape(query)} - Yahoo Search Results</title></head><body>"
        f'<ol class="reg searchCenterMiddle">{rows}</ol></body></html>'
    )


def yahoo_no_hits(query: str) -> str:
    return yahoo_results((), query).replace(
        "</ol>", f"<li><p>We did not find results for: <b>{escape(query)}</b>.</p></li></ol>"
    )


def challenge_page(query: str) -> str:
    """DuckDuckGo's "select all squares containing a duck", about 14 KB; rows of results are not in it."""
    squares = "\n".join(
        f'<div class="anomaly-modal__box"><input type="checkbox" id="image-check_{number}" name="image-check_{number}">'
        f'<label for="image-check_{number}"><img class="anomaly-modal__image" src="../assets/anomaly/images/challenge/'
        f'{"0123456789abcdef" * 4}{number}.jpg" alt=""/></label></div>'
        for number in range(9)
    )
    filler = "\n".join(
        f".anomaly-modal__box:nth-child({number}) {{ margin: {number}px auto; }}" for number in range(200)
    )
    return (
        f"<!DOCTYPE html><html lang='en'><head><title>DuckDuckGo</title><style>{filler}</style></head>"
        f'<body class="anomaly"><form id="challenge-form" action="//duckduckgo.com/anomaly.js?sv=html&amp;cc=sre&amp;'
        f'q={escape(quote(query))}" method="POST"><div class="anomaly-modal__mask"><div class="anomaly-modal__modal">'
        f'<div class="anomaly-modal__title">Unfortunately, bots use DuckDuckGo too.</div>'
        f'<div class="anomaly-modal__description">Please complete the following challenge to confirm this search was '
        f'made by a human.</div><div class="anomaly-modal__instructions">Select all squares containing a duck:</div>'
        f'<div class="anomaly-modal__puzzle">{squares}</div><button type="submit">Submit</button></div></div></form>'
        f"</body></html>"
    )


# -- Engines -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Engine:
    """One engine: where it is asked, how it is read, how it answers."""

    host: str
    path: str
    query: str
    timelimit: str
    region: Callable[[Params, Cookies], str]
    results: Callable[[Sequence[Hit], str], str]
    no_hits: Callable[[str], str]


def cookie_country(params: Params, cookies: Cookies) -> str:
    """Brave is told the country by a cookie `us=us`."""
    return next((name for name, value in cookies.items() if name == value), "")


ENGINES = {
    "duckduckgo": Engine(
        "html.duckduckgo.com", "/html/", "q", "df", lambda params, _: params.get("l", ""),
        duckduckgo_results, duckduckgo_no_hits,
    ),
    "brave": Engine("search.brave.com", "/search", "q", "tf", cookie_country, brave_results, brave_no_hits),
    "mojeek": Engine(
        "www.mojeek.com", "/search", "q", "", lambda _, cookies: f"{cookies.get('arc', '')}-{cookies.get('lb', '')}",
        mojeek_results, mojeek_no_hits,
    ),
    "startpage": Engine(
        "www.startpage.com", "/sp/search", "query", "with_date", lambda params, _: params.get("qsr", ""),
        startpage_results, startpage_no_hits,
    ),
    "yahoo": Engine("search.yahoo.com", "/search", "p", "btf", lambda *_: "", yahoo_results, yahoo_no_hits),
}  # fmt: skip
ENGINE_BY_HOST = {engine.host: name for name, engine in ENGINES.items()}


@dataclass(frozen=True)
class Search:
    """What an engine was asked, in its own spelling, and the fault that answered."""

    engine: str
    query: str
    region: str
    timelimit: str
    fault: str


def read_search(name: str, params: Params, cookies: Cookies, fault: Fault) -> Search:
    engine = ENGINES[name]
    return Search(
        name, params.get(engine.query, ""), engine.region(params, cookies), params.get(engine.timelimit, ""), fault.kind
    )


def answer_search(search: Search, fault: Fault, hits: Sequence[Hit]) -> Response:
    """The engine's answer to a search under a fault (not one of `HOST_FAULTS`, these act before a request is read)."""
    engine = ENGINES[search.engine]
    found = page(engine.results(hits, search.query))
    retry = (("Retry-After", fault.argument),) if fault.argument else ()
    if fault.kind.isdecimal() and fault.kind != "202":
        return page(f"<html><body><h1>{fault.kind}</h1></body></html>", status=int(fault.kind), headers=retry)
    return {
        "ok": lambda: found,
        "no-hits": lambda: page(engine.no_hits(search.query)),
        "no-hits-202": lambda: page(engine.no_hits(search.query), status=202),
        "202": lambda: page(challenge_page(search.query), status=202, headers=retry),
        "200-challenge": lambda: page(challenge_page(search.query)),
        "garbage": lambda: page(bytes(range(256)) * 16),
        "empty": lambda: page(b""),
        "slow": lambda: replace(found, delay_seconds=float(fault.argument)),
        "hang": lambda: replace(found, held=True),
        "drip": lambda: page(drip_rows, pause_seconds=0.05),
        "reset": lambda: Response(ending="reset", raw=b""),
    }[fault.kind]()


def drip_rows() -> Iterator[bytes]:
    yield b"<!DOCTYPE html><html><body>"
    while True:
        yield b" "


def hits_for_query(hits: Sequence[Hit], query: str) -> list[Hit]:
    """The default hits, with the query in title and snippet as engines have it, honouring `site:`.

    ddgs re-orders rows by the words of the query; with all of them everywhere the order stays as it is here.
    """
    words = query.split()
    sites = [word[len("site:") :].strip("()") for word in words if word.lstrip("(").startswith("site:")]
    text = " ".join(word for word in words if "site:" not in word and word not in ("OR", "|"))
    found = [hit for hit in hits if not sites or any(in_site(hit.url, site) for site in sites)]
    return [replace(hit, title=f"{hit.title} - {text}", snippet=f"{hit.snippet} ({text})") for hit in found]


def in_site(url: str, site: str) -> bool:
    host, _, path = site.partition("/")
    parts = urlsplit(url)
    netloc = parts.hostname or ""
    return (netloc == host or netloc.endswith("." + host)) and parts.path.lstrip("/").startswith(path)
