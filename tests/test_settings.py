"""Flags and variables: what they may hold, which one wins, and what becomes of a bad one."""

from collections.abc import Mapping
from dataclasses import FrozenInstanceError, fields, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import agent_web_search as aws

SETTING_NAMES = tuple(row.name for row in fields(aws.Settings))


def load(environ: Mapping[str, str] | None = None, **flags: str) -> aws.Settings:
    settings, bad_settings = aws.load_settings(flags, environ or {})
    assert bad_settings == []
    return settings


def load_bad(**flags: str) -> aws.BadSetting:
    """The one bad setting among `flags`; every setting keeps its default."""
    settings, bad_settings = aws.load_settings(flags, {})
    assert settings == aws.Settings()
    (bad,) = bad_settings
    return bad


def test_an_empty_environment_gives_the_defaults() -> None:
    assert load() == aws.Settings()


def test_the_defaults_leave_everything_open_but_private_addresses() -> None:
    assert aws.Settings() == aws.Settings(
        engines=("duckduckgo", "brave", "mojeek", "startpage", "yahoo"),
        allow_domains=(),
        deny_domains=(),
        region="",
        proxy="",
        ca_file="",
        allow_private=False,
        answer_bytes=0,
        log_level="warning",
        log_queries=False,
    )


def test_settings_cannot_be_changed_by_a_call() -> None:
    settings = aws.Settings()
    with pytest.raises(FrozenInstanceError):
        settings.region = "de-de"  # type: ignore[misc]


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        pytest.param("engines", "duckduckgo", ("duckduckgo",), id="one engine"),
        pytest.param("engines", "Mojeek, brave,mojeek", ("mojeek", "brave"), id="engines in order, each once"),
        pytest.param(
            "allow_domains",
            "https://www.a.example/x/, *.gov",
            (aws.Site("a.example", "/x"), aws.Site("gov")),
            id="allow-list",
        ),
        pytest.param(
            "deny_domains", "a.example b.example", (aws.Site("a.example"), aws.Site("b.example")), id="deny-list"
        ),
        pytest.param("region", " DE-de ", "de-de", id="region"),
        pytest.param("region", "hk-tzh", "hk-tzh", id="region with a script"),
        pytest.param("proxy", "http://proxy.example:8080", "http://proxy.example:8080", id="http proxy"),
        pytest.param("proxy", " https://u:p%40@proxy.example ", "https://u:p%40@proxy.example", id="proxy with user"),
        pytest.param("proxy", "socks5://127.0.0.1:1080", "socks5://127.0.0.1:1080", id="socks5 proxy"),
        pytest.param("proxy", "socks5h://[::1]:1080", "socks5h://[::1]:1080", id="socks5h proxy at an IPv6 address"),
        *(pytest.param("allow_private", word, True, id=word) for word in ("1", "true", "YES", " on ")),
        *(pytest.param("log_queries", word, False, id=word) for word in ("0", "False", "no", "off")),
        pytest.param("answer_bytes", "16000", 16_000, id="smallest answer"),
        pytest.param("answer_bytes", " 1000000 ", 1_000_000, id="largest answer"),
        *(pytest.param("log_level", level.upper(), level, id=level) for level in ("debug", "info", "warning", "error")),
    ],
)
@pytest.mark.parametrize("source", ["flag", "variable"])
def test_a_setting_is_read_from_its_flag_and_its_variable(source: str, name: str, text: str, value: Any) -> None:
    settings = load(**{name: text}) if source == "flag" else load({f"AGENT_WEB_SEARCH_{name.upper()}": text})
    assert settings == replace(aws.Settings(), **{name: value})


def test_the_certificate_file_is_one_that_holds_certificates(tmp_path: Path) -> None:
    path = tmp_path / "extra ca.pem"
    path.write_text("")
    assert load_bad(ca_file=str(path)).guards
    path.write_text("# ours\n-----BEGIN CERTIFICATE-----\n")
    assert load(ca_file=str(path)).ca_file == str(path)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        pytest.param("engines", "google", id="engine that is none"),
        pytest.param("engines", "duckduckgo,bing", id="one engine of two is none"),
        pytest.param("engines", ",", id="no engine"),
        pytest.param("allow_domains", "intranet", id="bare word on the allow-list"),
        pytest.param("allow_domains", ",", id="an allow-list of nothing"),
        pytest.param("allow_domains", "${ALLOWED}", id="a variable the host did not fill in"),
        pytest.param("deny_domains", "a.example, -", id="one of two on the deny-list is none"),
        pytest.param("region", "de", id="region without a dash"),
        pytest.param("region", "de-de-de", id="region with two dashes"),
        pytest.param("region", "germany", id="region as a word"),
        pytest.param("proxy", "proxy.example:8080", id="proxy without a scheme"),
        pytest.param("proxy", "ftp://proxy.example", id="proxy with another scheme"),
        pytest.param("proxy", "http://", id="proxy without a host"),
        pytest.param("proxy", "http://proxy.example:99999", id="proxy port out of range"),
        pytest.param("proxy", "http://proxy.example:0", id="proxy port zero"),
        pytest.param("proxy", "http://proxy.example:http", id="proxy port as a word"),
        pytest.param("proxy", "http://[::1", id="half an address as the proxy"),
        pytest.param("proxy", "http://proxy.example\r\nX: y", id="line break in the proxy"),
        pytest.param("proxy", "http://proxy example", id="blank in the proxy"),
        pytest.param("ca_file", "/no/such/file.pem", id="no such certificate file"),
        pytest.param("ca_file", "/", id="a folder as the certificate file"),
        pytest.param("ca_file", "a\x00b", id="NUL in the certificate file"),
        pytest.param("allow_private", "maybe", id="neither yes nor no"),
        pytest.param("allow_private", "2", id="a number that is no switch"),
        pytest.param("answer_bytes", "15999", id="answer too small"),
        pytest.param("answer_bytes", "1000001", id="answer too large"),
        pytest.param("answer_bytes", "40 KB", id="answer with a unit"),
        pytest.param("answer_bytes", "9" * 5000, id="answer of thousands of digits"),
        pytest.param("log_level", "loud", id="log level that is none"),
        pytest.param("log_queries", "ja", id="yes in another language"),
    ],
)
def test_a_bad_setting_keeps_its_default_and_is_reported_in_one_sentence(name: str, text: str) -> None:
    sentence = load_bad(**{name: text}).sentence
    row = next(row for row in fields(aws.Settings) if row.name == name)
    assert sentence.startswith(f"Bad setting --{name.replace('_', '-')}: got ")
    assert sentence.endswith(f"; accepted: {row.metadata['accepts']}.")
    assert sentence == aws.clean_line(sentence)
    assert len(sentence) < 300


@pytest.mark.parametrize(
    ("name", "guards"),
    [
        ("engines", False),
        ("allow_domains", True),
        ("deny_domains", True),
        ("region", False),
        ("proxy", True),
        ("ca_file", True),
        ("allow_private", False),
        ("answer_bytes", False),
        ("log_level", False),
        ("log_queries", False),
    ],
)
def test_a_bad_setting_that_keeps_something_out_or_in_stops_calls(name: str, guards: bool) -> None:
    assert load_bad(**{name: "?"}).guards is guards


@pytest.mark.parametrize(
    ("name", "text"),
    [("proxy", "htp://user:secret@proxy.example:8080"), ("ca_file", "/secret/ca.pem")],
)
def test_a_bad_setting_with_a_secret_or_a_path_is_reported_without_it(name: str, text: str) -> None:
    assert "secret" not in load_bad(**{name: text}).sentence


def test_a_bad_variable_is_reported_by_its_own_name() -> None:
    _, (bad,) = aws.load_settings({}, {"AGENT_WEB_SEARCH_LOG_LEVEL": "loud"})
    assert bad.sentence == (
        'Bad setting AGENT_WEB_SEARCH_LOG_LEVEL: got "loud"; accepted: one of debug, info, warning, error.'
    )


def test_a_flag_wins_over_its_variable() -> None:
    assert load({"AGENT_WEB_SEARCH_REGION": "fr-fr"}, region="de-de").region == "de-de"


def test_a_good_flag_hides_a_bad_variable() -> None:
    assert load({"AGENT_WEB_SEARCH_REGION": "france"}, region="de-de").region == "de-de"


@pytest.mark.parametrize("blank", ["", "  ", "\n"])
@pytest.mark.parametrize("name", SETTING_NAMES)
def test_a_blank_variable_or_flag_counts_as_not_given(name: str, blank: str) -> None:
    assert load({f"AGENT_WEB_SEARCH_{name.upper()}": blank}, **{name: blank}) == aws.Settings()


def test_a_blank_flag_leaves_the_variable_its_say() -> None:
    assert load({"AGENT_WEB_SEARCH_REGION": "de-de"}, region=" ").region == "de-de"


def test_several_bad_settings_are_all_reported() -> None:
    _, bad_settings = aws.load_settings({"region": "x", "engines": "y", "proxy": "z"}, {})
    assert [bad.sentence.split(":")[0] for bad in bad_settings] == [
        "Bad setting --engines",
        "Bad setting --region",
        "Bad setting --proxy",
    ]


@given(st.dictionaries(st.sampled_from(SETTING_NAMES), st.text(st.characters(exclude_categories=())), max_size=10))
def test_whatever_the_settings_hold_they_are_read_or_reported(flags: dict[str, str]) -> None:
    settings, bad_settings = aws.load_settings(flags, {})
    changed = [name for name in SETTING_NAMES if getattr(settings, name) != getattr(aws.Settings(), name)]
    assert len(changed) + len(bad_settings) <= len(flags)
    for bad in bad_settings:
        bad.sentence.encode()
