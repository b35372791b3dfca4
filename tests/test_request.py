"""Arguments as models write them, what becomes of them, and which results a request wants."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import agent_web_search as aws

PARAMETERS = tuple(aws.INPUT_SCHEMA["properties"])
OPTIONAL_PARAMETERS = tuple(p for p in PARAMETERS if p != "search_query")


def parse(**arguments: Any) -> aws.SearchRequest:
    return aws.parse_request({"search_query": "python asyncio", **arguments})


def refusal(**arguments: Any) -> str:
    with pytest.raises(aws.ArgumentError) as caught:
        parse(**arguments)
    return str(caught.value)


def sites(text: Any) -> list[str]:
    return [str(site) for site in parse(search_domain_filter=text).sites]


# The query


@pytest.mark.parametrize(
    ("given_query", "query"),
    [
        pytest.param("python asyncio", "python asyncio", id="plain"),
        pytest.param("  padded  ", "padded", id="trimmed"),
        pytest.param("x" * 500, "x" * 500, id="500 characters"),
        pytest.param(" " + "x" * 500 + "\n", "x" * 500, id="500 after trimming"),
        pytest.param("中" * 500, "中" * 500, id="500 Chinese characters"),
        pytest.param("a\r\nb\nc\td", "a b c d", id="line breaks and tabs"),
        pytest.param("a\x00\x01b\x7fc\x85d", "a b c d", id="controls"),
        pytest.param("a\u2028b\u2029c", "a b c", id="Unicode line breaks"),
        pytest.param("a   b", "a b", id="blanks folded"),
        pytest.param("zero\u200bwidth \U000e0041tags\ud800", "zerowidth tags", id="invisible characters"),
        pytest.param('"exact phrase" -without site:x.org C++ #hash 100% a&b', None, id="signs stay"),
        pytest.param("naïve Ελλάδα 中文 한국어 😀", None, id="every script stays"),
        pytest.param(404, "404", id="integer"),
        pytest.param(3.14, "3.14", id="number"),
        pytest.param(-1, "-1", id="negative number"),
        pytest.param(0, "0", id="zero"),
        pytest.param(10**40, "1" + "0" * 40, id="large integer"),
    ],
)
def test_the_query_is_read_as_it_is_meant(given_query: Any, query: str | None) -> None:
    assert parse(search_query=given_query).query == (query or given_query)


@pytest.mark.parametrize(
    ("given_query", "shown"),
    [
        pytest.param(None, "nothing", id="null"),
        pytest.param("", '""', id="empty"),
        pytest.param(" \n\t ", '" \\n\\t "', id="blanks"),
        pytest.param("\u200b\ufeff", '""', id="nothing to see"),
        pytest.param("x" * 501, "501 characters", id="too long"),
        pytest.param("x" * 1_000_000, "1000000 characters", id="gigantic"),
        pytest.param(True, "true", id="boolean"),
        pytest.param(["a", "b"], '["a", "b"]', id="list"),
        pytest.param({"q": "a"}, '{"q": "a"}', id="object"),
        pytest.param(float("inf"), "Infinity", id="1e400"),
        pytest.param(float("nan"), "NaN", id="not a number"),
        pytest.param(10**5000, "a value of type int", id="thousands of digits"),
    ],
)
def test_a_query_that_makes_no_sense_is_refused(given_query: Any, shown: str) -> None:
    text = refusal(search_query=given_query)
    assert text == f"Bad argument search_query: got {shown}; accepted: text of 1 to 500 characters."


def test_a_missing_query_is_refused_like_an_empty_one() -> None:
    with pytest.raises(aws.ArgumentError, match="search_query: got nothing"):
        aws.parse_request({"query": "unknown argument"})


# The choices


@pytest.mark.parametrize(
    ("spelling", "recency"),
    [
        *(pytest.param(value, value, id=value) for value in aws.TIMELIMIT_BY_RECENCY),
        pytest.param("one_week", "oneWeek", id="underscore"),
        pytest.param("one-day", "oneDay", id="dash"),
        pytest.param("One Month", "oneMonth", id="blank"),
        pytest.param("ONEYEAR", "oneYear", id="upper case"),
        pytest.param("  noLimit ", "noLimit", id="padded"),
        pytest.param("NO_LIMIT", "noLimit", id="shouted"),
    ],
)
def test_recency_takes_each_value_in_each_spelling(spelling: str, recency: aws.Recency) -> None:
    assert parse(search_recency_filter=spelling).recency == recency


@pytest.mark.parametrize(
    ("spelling", "size"), [("medium", "medium"), ("high", "high"), ("HIGH", "high"), (" Medium\n", "medium")]
)
def test_content_size_takes_each_value_in_each_spelling(spelling: str, size: aws.ContentSize) -> None:
    assert parse(content_size=spelling).content_size == size


@pytest.mark.parametrize(("spelling", "location"), [("cn", "cn"), ("us", "us"), ("US", "us"), (" Cn ", "cn")])
def test_location_takes_each_value_in_each_spelling(spelling: str, location: aws.Location) -> None:
    assert parse(location=spelling).location == location


@pytest.mark.parametrize("nothing", [None, "", "   ", "\t\n", "\u200b", "\u3000"])
@pytest.mark.parametrize("parameter", OPTIONAL_PARAMETERS)
def test_null_and_blanks_mean_not_given(parameter: str, nothing: str | None) -> None:
    assert parse(**{parameter: nothing}) == parse()


def test_what_is_not_given_has_the_default_the_schema_tells() -> None:
    assert parse() == aws.SearchRequest("python asyncio", (), "noLimit", "medium", "us")


def test_unknown_arguments_are_ignored() -> None:
    assert parse(max_results=50, nested={"a": [1, {"b": None}]}) == parse()


@pytest.mark.parametrize(
    "value",
    [
        pytest.param("mars", id="another word"),
        pytest.param(1, id="number"),
        pytest.param(0, id="zero"),
        pytest.param(False, id="boolean"),
        pytest.param(["cn"], id="list"),
        pytest.param([], id="empty list"),
        pytest.param({"value": "cn"}, id="object"),
        pytest.param(float("inf"), id="infinite"),
        pytest.param(10**5000, id="thousands of digits"),
        pytest.param("x" * 100_000, id="gigantic"),
        pytest.param("mars\ud800\x00\u2028", id="what cannot be sent"),
    ],
)
@pytest.mark.parametrize(
    ("parameter", "accepted"),
    [
        ("search_recency_filter", "oneDay, oneWeek, oneMonth, oneYear, noLimit"),
        ("content_size", "medium, high"),
        ("location", "cn, us"),
    ],
)
def test_a_choice_that_makes_no_sense_is_refused_by_name(parameter: str, value: Any, accepted: str) -> None:
    text = refusal(**{parameter: value})
    assert text.startswith(f"Bad argument {parameter}: got ")
    assert text.endswith(f"; accepted: {accepted}.")
    check_readable(text)


def test_a_refusal_shows_the_value_given() -> None:
    assert refusal(location="mars") == 'Bad argument location: got "mars"; accepted: cn, us.'


@pytest.mark.parametrize("length", [97, 98, 99, 100, 101, 500])
def test_a_long_value_is_shown_cut_and_marked(length: int) -> None:
    shown = '"' + "x " * length
    assert refusal(location="x " * length + "y") == (
        f"Bad argument location: got {shown[:100].rstrip()} …; accepted: cn, us."
    )


def test_a_value_nested_without_end_is_refused_all_the_same() -> None:
    nested: list[Any] = []
    for _ in range(100_000):
        nested = [nested]
    assert "got a value of type list" in refusal(location=nested)


def check_readable(text: str) -> None:
    """One line, short, nothing that cannot be sent."""
    assert len(text) < 350
    check_sendable(text)


def check_sendable(text: str) -> None:
    assert text == aws.clean_line(text)
    text.encode()


# The domain filter


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("docs.python.org", ["docs.python.org"], id="host"),
        pytest.param("DOCS.Python.ORG", ["docs.python.org"], id="upper case"),
        pytest.param("docs.python.org.", ["docs.python.org"], id="trailing dot"),
        pytest.param("https://docs.python.org/3/", ["docs.python.org/3"], id="URL"),
        pytest.param("http://docs.python.org", ["docs.python.org"], id="URL without a path"),
        pytest.param("//docs.python.org/3", ["docs.python.org/3"], id="URL without a scheme"),
        pytest.param("https://docs.python.org/3/?q=1#top", ["docs.python.org/3"], id="URL with query and fragment"),
        pytest.param("https://a.example/?to=https://b.example/", ["a.example"], id="URL inside a URL"),
        pytest.param("www.example.com", ["example.com"], id="www"),
        pytest.param("https://www.example.com/", ["example.com"], id="www in a URL"),
        pytest.param("www.com", ["www.com"], id="www as the name"),
        pytest.param("www.gov.uk", ["gov.uk"], id="www of a zone"),
        pytest.param("*.example.com", ["example.com"], id="pattern"),
        pytest.param("*.www.example.com", ["example.com"], id="pattern with www"),
        pytest.param("https://*.example.com/*", ["example.com"], id="pattern in a URL"),
        pytest.param("example.com/*", ["example.com"], id="pattern as the path"),
        pytest.param(".gov", ["gov"], id="zone with a dot"),
        pytest.param("*.gov", ["gov"], id="zone as a pattern"),
        pytest.param("github.com/encode/httpx", ["github.com/encode/httpx"], id="path"),
        pytest.param("github.com/encode/httpx/", ["github.com/encode/httpx"], id="path with a slash behind"),
        pytest.param("en.wikipedia.org/wiki/C%2B%2B", ["en.wikipedia.org/wiki/C%2B%2B"], id="encoded path"),
        pytest.param("site:docs.python.org", ["docs.python.org"], id="operator"),
        pytest.param("SITE: docs.python.org", ["docs.python.org"], id="operator and a blank"),
        pytest.param("site:a.com OR site:b.com", ["a.com", "b.com"], id="operators joined by OR"),
        pytest.param("OR.org", ["or.org"], id="OR as a name"),
        pytest.param('"docs.python.org"', ["docs.python.org"], id="quotes"),
        pytest.param("“docs.python.org”", ["docs.python.org"], id="typographic quotes"),
        pytest.param("<https://docs.python.org/3>", ["docs.python.org/3"], id="angle brackets"),
        pytest.param("`docs.python.org`", ["docs.python.org"], id="backticks"),
        pytest.param("a.com,b.com", ["a.com", "b.com"], id="commas"),
        pytest.param("a.com b.com\nc.com", ["a.com", "b.com", "c.com"], id="blanks"),
        pytest.param("a.com, b.com; c.com | d.com", ["a.com", "b.com", "c.com", "d.com"], id="other separators"),
        pytest.param("a.com，b.com、c.com", ["a.com", "b.com", "c.com"], id="Chinese commas"),
        pytest.param(",a.com,,", ["a.com"], id="spare commas"),
        pytest.param("a.com A.com www.a.com", ["a.com"], id="the same one thrice"),
        pytest.param(["a.com", "b.com"], ["a.com", "b.com"], id="list"),
        pytest.param([], [], id="empty list"),
        pytest.param([""], [], id="list of nothing"),
        pytest.param('["a.com", "b.com"]', ["a.com", "b.com"], id="list as text"),
        pytest.param("bücher.example", ["xn--bcher-kva.example"], id="internationalised"),
        pytest.param("BÜCHER.example", ["xn--bcher-kva.example"], id="internationalised in upper case"),
        pytest.param("xn--bcher-kva.example", ["xn--bcher-kva.example"], id="internationalised, encoded"),
        pytest.param("中国政府.中国", ["xn--fiqs8sirgfmh.xn--fiqs8s"], id="Chinese name"),
        pytest.param("docs。python．org｡", ["docs.python.org"], id="dots of other scripts"),
        pytest.param("ｄｏｃｓ.python.org", ["docs.python.org"], id="full-width letters"),
        pytest.param("docs.python.org:443", ["docs.python.org"], id="port"),
        pytest.param("https://docs.python.org:99999/3", ["docs.python.org/3"], id="port out of range"),
        pytest.param("https://user:secret@docs.python.org/", ["docs.python.org"], id="user name"),
        pytest.param("192.0.2.1", ["192.0.2.1"], id="IPv4 address"),
        pytest.param("docs.python.org\\3", ["docs.python.org/3"], id="backslash"),
        pytest.param("docs.\u200bpython.org\ufeff", ["docs.python.org"], id="invisible characters"),
        pytest.param("docs.python.org\x00/3\x1b[0m", ["docs.python.org/3"], id="controls"),
        pytest.param("under_score.example.com", ["under_score.example.com"], id="underscore"),
    ],
)
def test_the_domain_filter_takes_what_people_paste(text: Any, expected: list[str]) -> None:
    assert sites(text) == expected


@pytest.mark.parametrize(
    "value",
    [
        pytest.param("python", id="bare word"),
        pytest.param("localhost:8080", id="bare word with a port"),
        pytest.param("python docs", id="words"),
        pytest.param("docs.python.org and the wiki", id="words around a host"),
        pytest.param(",", id="separators only"),
        pytest.param('""', id="quotes only"),
        pytest.param("site:", id="operator only"),
        pytest.param("-site:example.com", id="excluding operator"),
        pytest.param("https://", id="scheme only"),
        pytest.param("https:///path", id="URL without a host"),
        pytest.param("*", id="asterisk"),
        pytest.param("*.", id="pattern of nothing"),
        pytest.param("example.*", id="pattern at the end"),
        pytest.param("do*.example.com", id="pattern inside a label"),
        pytest.param("-a.example.com", id="dash in front"),
        pytest.param("a..example.com", id="empty label"),
        pytest.param("x" * 64 + ".com", id="label too long"),
        pytest.param(".".join(["abcdefg"] * 40) + ".com", id="host too long"),
        pytest.param("ü" * 400 + ".com", id="internationalised host too long"),
        pytest.param("exa$mple.com", id="sign in a label"),
        pytest.param("http://[::1", id="half an IPv6 address"),
        pytest.param("http://[::1]/", id="IPv6 address"),
        pytest.param("http://example.com]/", id="stray bracket"),
        pytest.param("[docs](https://docs.python.org)", id="Markdown link"),
        pytest.param("℀.example.com", id="a sign that hides a slash"),
        pytest.param("a.example " * 101, id="too long"),
        pytest.param("x" * 1_000_000, id="gigantic"),
        pytest.param(5, id="number"),
        pytest.param(True, id="boolean"),
        pytest.param({"domain": "a.com"}, id="object"),
        pytest.param(["a.com", None], id="list with null"),
        pytest.param([["a.com"]], id="nested list"),
    ],
)
def test_a_domain_filter_that_makes_no_sense_is_refused_by_name(value: Any) -> None:
    text = refusal(search_domain_filter=value)
    assert text.startswith("Bad argument search_domain_filter: got ")
    assert text.endswith(
        "; accepted: sites such as docs.python.org or github.com/encode/httpx, at most 1000 characters."
    )
    check_readable(text)


@pytest.mark.parametrize(
    ("site", "url", "covered"),
    [
        ("python.org", "https://python.org/", True),
        ("python.org", "https://docs.python.org/3/", True),
        ("python.org", "HTTPS://DOCS.PYTHON.ORG:8443/", True),
        ("python.org", "https://python.org./", True),
        ("python.org", "https://user@python.org/", True),
        ("python.org", "https://notpython.org/", False),
        ("python.org", "https://python.org.evil.example/", False),
        ("python.org", "https://evil.example/python.org", False),
        ("python.org", "https://python.org@evil.example/", False),
        ("python.org", "https://evil.example\\@python.org/", False),
        ("python.org", "https://evil.example#@python.org/", False),
        ("python.org", "https://evil.example?@python.org/", False),
        ("docs.python.org", "https://python.org/", False),
        ("www.python.org", "https://python.org/", True),
        ("gov.uk", "https://www.gov.uk/", True),
        (".gov", "https://nasa.gov/", True),
        (".gov", "https://gov.example/", False),
        ("bücher.example", "https://xn--bcher-kva.example/", True),
        ("bücher.example", "https://www.bücher.example/", True),
        ("github.com/encode/httpx", "https://github.com/encode/httpx", True),
        ("github.com/encode/httpx", "https://github.com/Encode/HTTPX/issues?q=1#a", True),
        ("github.com/encode/httpx", "https://gist.github.com/encode/httpx", True),
        ("github.com/encode/httpx", "https://github.com/encode/httpx2", False),
        ("github.com/encode/httpx", "https://github.com/encode", False),
        ("docs.example.org/c++", "https://docs.example.org/c%2B%2B/sort", True),
        ("docs.example.org/c%2b%2b", "https://docs.example.org/c++/sort", True),
        ("zh.example.cn/文档", "https://zh.example.cn/%E6%96%87%E6%A1%A3/a", True),
        ("python.org", "http://[::1", False),
        ("python.org", "http://python.org:99999/", True),
        ("python.org", "", False),
    ],
)
def test_a_site_covers_what_lies_on_it(site: str, url: str, covered: bool) -> None:
    assert aws.parse_site(site).covers(url) is covered


def test_a_domain_filter_may_be_as_long_as_it_says() -> None:
    longest = "a.com".rjust(aws.MAX_FILTER_CHARACTERS)
    assert sites(longest) == ["a.com"]
    assert "1001 characters" in refusal(search_domain_filter=f" {longest}")


LONGEST_NAME = "é." * 126 + "é"


def test_names_are_compared_encoded_up_to_the_length_of_dns_and_longer_ones_as_they_are() -> None:
    assert len(LONGEST_NAME) == 253
    assert aws.ascii_host(LONGEST_NAME) == ".".join(["xn--9ca"] * 127)
    assert aws.ascii_host(f"é{LONGEST_NAME}") == f"é{LONGEST_NAME}"


def test_a_site_has_at_most_the_length_of_a_name_in_dns() -> None:
    longest = "a." * 126 + "a"
    assert sites(longest) == [longest]
    assert refusal(search_domain_filter=f"a{longest}")


# Where a search is made


@pytest.mark.parametrize(
    ("query", "location"),
    [
        ("python asyncio", "us"),
        ("异步编程", "cn"),
        ("学 Python", "cn"),
        ("Python 异步编程", "cn"),
        ("How do I say 你好 in English", "us"),
        ("東京の天気", "us"),
        ("서울 날씨", "us"),
        ("漢字 한자", "us"),
        ("погода в Москве", "us"),
        ("12345", "us"),
        ("\U00020000\U00020001", "cn"),
    ],
)
def test_the_location_is_guessed_from_the_script_of_the_query(query: str, location: str) -> None:
    assert parse(search_query=query).location == location


def test_a_location_that_is_given_is_not_guessed() -> None:
    assert parse(search_query="异步编程", location="us").location == "us"


# The engine query


@pytest.mark.parametrize(("recency", "timelimit"), aws.TIMELIMIT_BY_RECENCY.items())
def test_recency_becomes_the_time_limit(recency: aws.Recency, timelimit: str | None) -> None:
    request = aws.SearchRequest("q", recency=recency)
    assert aws.build_engine_query(request, aws.Settings()).timelimit == timelimit


@pytest.mark.parametrize(("location", "region"), [("cn", "cn-zh"), ("us", "us-en")])
def test_location_becomes_the_region(location: aws.Location, region: str) -> None:
    request = aws.SearchRequest("q", location=location)
    assert aws.build_engine_query(request, aws.Settings()).region == region
    assert aws.build_engine_query(request, aws.Settings(region="de-de")).region == "de-de"


@pytest.mark.parametrize(
    ("asked", "allowed", "text"),
    [
        ((), (), "q"),
        (("a.com",), (), "q site:a.com"),
        (("a.com", "b.com/x"), (), "q site:a.com OR site:b.com/x"),
        ((), ("c.com",), "q site:c.com"),
        (("a.c.com",), ("c.com",), "q site:a.c.com"),
    ],
)
def test_sites_become_operators(asked: tuple[str, ...], allowed: tuple[str, ...], text: str) -> None:
    request = aws.SearchRequest("q", sites=tuple(map(aws.parse_site, asked)))
    settings = aws.Settings(allow_domains=tuple(map(aws.parse_site, allowed)))
    assert aws.build_engine_query(request, settings).text == text


def test_the_engines_are_those_of_the_settings() -> None:
    settings = aws.Settings(engines=("mojeek", "duckduckgo"))
    assert aws.build_engine_query(aws.SearchRequest("q"), settings).engines == ("mojeek", "duckduckgo")


@pytest.mark.parametrize(
    ("asked", "allowed", "denied", "wanted"),
    [
        pytest.param("", "", "", True, id="nothing set"),
        pytest.param("a.example", "", "", True, id="asked for"),
        pytest.param("b.example", "", "", False, id="another asked for"),
        pytest.param("", "a.example", "", True, id="allowed"),
        pytest.param("", "b.example", "", False, id="another allowed"),
        pytest.param("a.example", "b.example", "", False, id="asking does not widen what is allowed"),
        pytest.param("", "", "a.example", False, id="denied"),
        pytest.param("a.example", "", "a.example", False, id="asking does not lift what is denied"),
        pytest.param("", "a.example", "a.example/private", False, id="denied within allowed"),
    ],
)
def test_the_hosts_pins_rule_over_what_is_asked(asked: str, allowed: str, denied: str, wanted: bool) -> None:
    def parsed(text: str) -> tuple[aws.Site, ...]:
        return aws.parse_sites(text) if text else ()

    request = aws.SearchRequest("q", sites=parsed(asked))
    settings = aws.Settings(allow_domains=parsed(allowed), deny_domains=parsed(denied))
    assert aws.is_wanted("https://www.a.example/private/page", request, settings) is wanted


# Anything at all

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(exclude_categories=())),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from(PARAMETERS) | st.text(max_size=10), json_values, max_size=7))
def test_any_arguments_are_read_or_refused_in_one_readable_line(arguments: dict[str, Any]) -> None:
    try:
        request = aws.parse_request(arguments)
    except aws.ArgumentError as error:
        check_readable(str(error))
    else:
        assert 1 <= len(request.query) <= aws.MAX_QUERY_CHARACTERS
        check_sendable(aws.build_engine_query(request, aws.Settings()).text)


site_text = st.text(st.sampled_from("ab.-_*/:@[]()%\\?#=, 。中ü\"'|\x00\ud800") | st.characters(), max_size=40)


@given(site_text | site_text.map("https://".__add__) | site_text.map("a.example".__add__))
def test_any_domain_filter_gives_sites_that_are_named_as_they_are_read(text: str) -> None:
    try:
        parsed = aws.parse_sites(text)
    except ValueError:
        return
    for site in parsed:
        assert site.host == aws.ascii_host(site.host)
        assert site.covers(f"https://{site}/more")
        assert "/" not in site.host


@given(site_text.map("https://".__add__) | st.text())
def test_no_address_however_odd_stops_a_filter(url: str) -> None:
    assert not aws.is_wanted(url, aws.SearchRequest("q", sites=aws.parse_sites("wanted.invalid")), aws.Settings())
