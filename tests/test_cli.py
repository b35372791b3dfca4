"""The command line, called as a function."""

import argparse
import io
import json
import os
import sys
from dataclasses import fields

import pytest

import agent_web_search as aws
from tests.fakes import FakeFetch, FakeSearch, found, make_hits, page_text, pages_of


class Seams:
    """What the command line reaches instead of the web, and what it asked for."""

    def __init__(self) -> None:
        self.search = FakeSearch(found())
        self.fetch = FakeFetch(pages_of(make_hits(10)))
        self.settings: list[aws.Settings] = []


@pytest.fixture
def seams(monkeypatch: pytest.MonkeyPatch) -> Seams:
    seams = Seams()

    def make_search(settings: aws.Settings) -> FakeSearch:
        seams.settings.append(settings)
        return seams.search

    for row in fields(aws.Settings):
        monkeypatch.delenv(aws.setting_variable(row.name), raising=False)
    monkeypatch.setattr(aws, "EngineSearch", make_search)
    monkeypatch.setattr(aws, "HttpPageFetcher", lambda settings: seams.fetch)
    return seams


Captured = pytest.CaptureFixture[str]


def exit_status(*argv: str) -> int:
    """What the process would end with; argparse ends it by itself."""
    try:
        return aws.main(argv)
    except SystemExit as ending:
        return int(ending.code or 0)


def every_parser() -> list[argparse.ArgumentParser]:
    parser = aws.build_parser()
    commands = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    return [parser, *(command for action in commands for command in action.choices.values())]


# About itself


def test_the_version_is_the_modules(capsys: Captured) -> None:
    assert exit_status("--version") == 0
    assert capsys.readouterr().out == f"agent-web-search {aws.__version__}\n"


@pytest.mark.parametrize("command", [(), *((name,) for name in aws.COMMANDS)], ids=lambda command: " ".join(command))
def test_help_is_shown_for_the_program_and_each_command(command: tuple[str, ...], capsys: Captured) -> None:
    assert exit_status(*command, "--help") == 0
    shown = capsys.readouterr()
    assert shown.out.startswith(" ".join(["usage: agent-web-search", *command]))
    assert shown.err == ""


def test_each_option_of_each_command_has_help() -> None:
    actions = [action for parser in every_parser() for action in parser._actions]
    assert len(actions) > 30
    assert [action.dest for action in actions if not action.help and action.dest != "command"] == []


def test_each_setting_is_an_option_whose_help_names_its_variable_and_what_it_accepts() -> None:
    for parser in every_parser():
        options = {action.dest: action for action in parser._actions}
        for row in fields(aws.Settings):
            assert options[row.name].option_strings == [aws.setting_flag(row.name)]
            assert f"({aws.setting_variable(row.name)})" in str(options[row.name].help)
            assert row.metadata["accepts"] in str(options[row.name].help)


def test_each_parameter_but_the_query_is_an_option_of_search() -> None:
    assert {"search_query", *aws.OPTION_BY_PARAMETER} == set(aws.INPUT_SCHEMA["properties"])


# Searching


def test_search_prints_results_for_a_person_and_progress_beside_them(seams: Seams, capsys: Captured) -> None:
    assert exit_status("search", "python", "asyncio") == 0
    shown = capsys.readouterr()
    blocks = shown.out.split("\n\n")
    assert blocks[0] == "1. Title 1\n   https://site1.example/page"
    assert blocks[1] == f"   {page_text(1)}"
    assert [line for line in shown.out.splitlines() if line.startswith("10. ")] == ["10. Title 10"]
    assert shown.err.splitlines()[0] == "Searching ..."
    assert len(shown.err.splitlines()) == 4
    assert seams.search.queries == [aws.EngineQuery("python asyncio", "us-en")]


def test_search_prints_the_json_of_the_tool_for_a_script(seams: Seams, capsys: Captured) -> None:
    assert exit_status("search", "python asyncio", "--json") == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["title"] for row in rows] == [hit.title for hit in make_hits(10)]
    assert [row["summary"] for row in rows[:4]] == [*map(page_text, (1, 2, 3)), "Snippet 4 of the engine"]


def test_the_options_of_search_are_the_parameters_of_the_tool(seams: Seams) -> None:
    options = ("--domain", "site1.example", "--recency", "one-week", "--size", "high", "--location", "CN")
    seams.fetch = FakeFetch({make_hits(1)[0].url: page_text(1, words=2_000)})
    assert exit_status("search", "q", *options, "--json") == 0
    assert seams.search.queries == [aws.EngineQuery("q site:site1.example", "cn-zh", "w")]


def test_settings_are_taken_before_and_behind_the_command_and_from_the_environment(
    seams: Seams, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENT_WEB_SEARCH_DENY_DOMAINS", "a.example")
    monkeypatch.setenv("AGENT_WEB_SEARCH_REGION", "fr-fr")
    assert exit_status("--engines", "brave", "search", "q", "--region", "de-de") == 0
    assert seams.settings == [
        aws.Settings(engines=("brave",), region="de-de", deny_domains=aws.parse_sites("a.example"))
    ]


@pytest.mark.parametrize(("options", "out"), [((), ""), (("--json",), "[]")], ids=["for a person", "for a script"])
def test_nothing_found_is_a_success_and_told_on_stderr(
    options: tuple[str, ...], out: str, seams: Seams, capsys: Captured
) -> None:
    seams.search = FakeSearch(found(0))
    assert exit_status("search", "q", *options) == 0
    shown = capsys.readouterr()
    assert shown.out.strip() == out
    assert shown.err.splitlines() == ["Searching ...", aws.NO_RESULTS_HINT]


@pytest.mark.parametrize(
    ("failure", "text"),
    [
        (aws.SearchError("unreachable", "Search failed: no network."), "Search failed: no network."),
        (ValueError("secret"), aws.INTERNAL_ERROR_TEXT),
    ],
)
def test_a_failed_search_is_one_line_on_stderr_and_exit_1(
    failure: Exception, text: str, seams: Seams, capsys: Captured
) -> None:
    seams.search = FakeSearch(failure)
    assert exit_status("search", "q") == 1
    shown = capsys.readouterr()
    assert shown.out == ""
    assert text in shown.err.splitlines()


def test_an_interrupted_search_ends_in_silence(seams: Seams, capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(aws, "parse_request", interrupt)
    assert exit_status("search", "q") == 130
    assert capsys.readouterr() == ("", "")


# Bad values


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        (
            ("search", "q", "--recency", "mars"),
            'bad --recency: got "mars"; accepted: oneDay, oneWeek, oneMonth, oneYear, noLimit.',
        ),
        (("search", "q", "--size", "huge"), 'bad --size: got "huge"; accepted: medium, high.'),
        (("search", "q", "--location", "mars"), 'bad --location: got "mars"; accepted: cn, us.'),
        (
            ("search", "q", "--domain", "intranet"),
            'bad --domain: got "intranet"; accepted: '
            "sites such as docs.python.org or github.com/encode/httpx, at most 1000 characters.",
        ),
        (("search", " "), 'bad QUERY: got " "; accepted: text of 1 to 500 characters.'),
        (("search", "x" * 501), "bad QUERY: got 501 characters; accepted: text of 1 to 500 characters."),
        (
            ("search", "q", "--region", "mars"),
            'Bad setting --region: got "mars"; accepted: a region such as de-de.',
        ),
        (
            ("--proxy", "htp://user:secret@proxy", "search", "q"),
            "Bad setting --proxy: got a value that it cannot use; accepted: an http, https, socks5 or socks5h URL.",
        ),
    ],
)
def test_a_bad_value_is_one_sentence_on_stderr_and_exit_2(
    argv: tuple[str, ...], sentence: str, seams: Seams, capsys: Captured
) -> None:
    assert exit_status(*argv) == 2
    assert capsys.readouterr() == ("", f"agent-web-search: {sentence}\n")
    assert seams.search.queries == []


def test_each_bad_setting_is_told(capsys: Captured) -> None:
    assert exit_status("search", "q", "--region", "mars", "--log-level", "loud") == 2
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith("agent-web-search: Bad setting --region: ")
    assert second.startswith("agent-web-search: Bad setting --log-level: ")


def test_a_bad_variable_stops_the_command_line_too(
    seams: Seams, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENT_WEB_SEARCH_ENGINES", "google")
    assert exit_status("search", "q") == 2
    assert "Bad setting AGENT_WEB_SEARCH_ENGINES: " in capsys.readouterr().err


@pytest.mark.parametrize("argv", [("find", "x"), ("search",), ("search", "q", "--max", "3"), ("--region",)])
def test_what_is_no_command_is_refused_with_the_usage(argv: tuple[str, ...], capsys: Captured) -> None:
    assert exit_status(*argv) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("usage: agent-web-search")


# Serving


class ServedError(Exception):
    pass


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[tuple[aws.Settings, list[aws.BadSetting]]]:
    """What `serve` was called with; the process does not live on to tell."""
    calls: list[tuple[aws.Settings, list[aws.BadSetting]]] = []

    def serve(settings: aws.Settings, bad_settings: list[aws.BadSetting]) -> None:
        calls.append((settings, bad_settings))
        raise ServedError

    monkeypatch.setattr(aws, "serve", serve)
    monkeypatch.setattr(aws, "leave_on_signals", lambda: None)
    return calls


def test_without_a_command_it_serves_with_the_settings_given(
    served: list[tuple[aws.Settings, list[aws.BadSetting]]], seams: Seams, capsys: Captured
) -> None:
    with pytest.raises(ServedError):
        aws.main(["--region", "de-de"])
    assert served == [(aws.Settings(region="de-de"), [])]
    assert capsys.readouterr() == ("", "")


def test_a_server_with_a_bad_setting_serves_all_the_same_and_says_so(
    served: list[tuple[aws.Settings, list[aws.BadSetting]]],
    seams: Seams,
    capsys: Captured,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with pytest.raises(ServedError):
        aws.main(["--region", "mars"])
    ((settings, (bad,)),) = served
    assert settings == aws.Settings()
    assert caplog.messages == [bad.sentence]
    assert capsys.readouterr().out == ""


def test_a_server_with_a_flag_that_does_not_exist_serves_and_fails_each_call(
    served: list[tuple[aws.Settings, list[aws.BadSetting]]], seams: Seams, caplog: pytest.LogCaptureFixture
) -> None:
    """It may have been meant as a pin, so it must not be passed over."""
    with pytest.raises(ServedError):
        aws.main(["--alow-domains", "--region", "de-de"])
    ((settings, (bad,)),) = served
    assert settings == aws.Settings(region="de-de")
    assert bad == aws.BadSetting("Bad setting --alow-domains: there is none of this name.", guards=True)
    assert caplog.messages == [bad.sentence]


def test_a_person_at_a_terminal_is_told_that_it_serves(
    served: list[tuple[aws.Settings, list[aws.BadSetting]]],
    seams: Seams,
    capsys: Captured,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(sys, "stdin", Terminal())
    with pytest.raises(ServedError):
        aws.main([])
    assert capsys.readouterr() == ("", aws.SERVING_NOTE + "\n")


@pytest.mark.parametrize("name", ["stdin", "stderr"])
def test_a_closed_stream_does_not_stop_the_server(
    name: str,
    served: list[tuple[aws.Settings, list[aws.BadSetting]]],
    seams: Seams,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, name, None)
    with pytest.raises(ServedError):
        aws.main([])
    assert len(served) == 1


# Streams


def test_progress_stays_off_stdout_when_stderr_is_closed(
    seams: Seams, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    assert exit_status("search", "q", "--json") == 0
    assert len(json.loads(capsys.readouterr().out)) == 10


@pytest.mark.parametrize("options", [(), ("--json",)], ids=["for a person", "for a script"])
@pytest.mark.parametrize("encoding", ["ascii", "cp1252", "gbk"])
def test_output_is_utf_8_whatever_the_locale(
    options: tuple[str, ...], encoding: str, seams: Seams, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = io.BytesIO()
    hit = aws.SearchHit("中文标题 café 😀", "https://a.example/", "摘要")
    seams.search = FakeSearch(aws.SearchOutcome((hit,)))
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(sink, encoding=encoding))
    assert exit_status("search", "q", *options) == 0
    assert hit.title in sink.getvalue().decode()


def test_a_reader_that_has_enough_ends_the_output_in_silence(
    seams: Seams, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w", encoding="utf-8") as pipe:
        monkeypatch.setattr(sys, "stdout", pipe)
        assert exit_status("search", "q") == 0
    assert "Broken" not in capfd.readouterr().err


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no full device")
@pytest.mark.parametrize("argv", [("search", "q"), ("config", "codex")])
def test_output_that_cannot_be_written_is_one_sentence_and_exit_1(
    argv: tuple[str, ...], seams: Seams, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with open("/dev/full", "w", encoding="utf-8") as full:
        monkeypatch.setattr(sys, "stdout", full)
        assert exit_status(*argv) == 1
    assert capfd.readouterr().err.endswith("agent-web-search: the output cannot be written.\n")


def test_a_closed_stdout_is_no_fault(seams: Seams, capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    assert exit_status("config", "codex") == 0
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize("text", ["\x1b[31mred\x1b[0m", "\x1b]0;title\x07", "\u202eright to left"])
def test_what_a_page_says_cannot_command_the_terminal(text: str, seams: Seams, capsys: Captured) -> None:
    (hit,) = aws.parse_hits([(f"Title {text}", "https://a.example/" + text, text)])
    seams.search = FakeSearch(aws.SearchOutcome((hit,)))
    seams.fetch = FakeFetch({hit.url: f"page text {text} " * 20})
    assert exit_status("search", "q") == 0
    shown = capsys.readouterr()
    assert "page text" in shown.out
    assert not set("\x1b\x07\u202e") & set(shown.out + shown.err)


# The doctor


@pytest.mark.parametrize(
    ("checks", "status", "verdict"),
    [
        pytest.param([aws.Check("brave", "10 results")], 0, "A search would be answered.", id="one engine answers"),
        pytest.param(
            [aws.Check("duckduckgo", "refused", "wait"), aws.Check("brave", "10 results")],
            0,
            "A search would be answered.",
            id="another engine stands in",
        ),
        pytest.param(
            [aws.Check("names", "fine"), aws.Check("duckduckgo", "refused", "wait")],
            1,
            "A search would fail: no engine answers.",
            id="no engine answers",
        ),
    ],
)
def test_the_doctor_tells_each_check_with_its_cure_and_whether_a_search_would_fail(
    checks: list[aws.Check], status: int, verdict: str, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def diagnose(settings: aws.Settings) -> list[aws.Check]:
        return checks

    monkeypatch.setattr(aws, "diagnose", diagnose)
    assert exit_status("doctor") == status
    *lines, last = capsys.readouterr().out.splitlines()
    assert last == verdict
    assert len(lines) == len(checks)
    for line, check in zip(lines, checks, strict=True):
        assert line.startswith("wrong " if check.cure else "ok ")
        assert f"{check.subject}: {check.finding}" in line
        assert line.endswith(check.cure)


# Host entries


def test_each_hosts_entry_goes_to_stdout_and_where_it_belongs_to_stderr(capsys: Captured) -> None:
    for name, host in aws.HOST_CONFIGS.items():
        assert exit_status("config", name) == 0
        shown = capsys.readouterr()
        assert "web-search-prime" in shown.out
        assert host.file in shown.err


def test_an_entry_carries_the_settings_given(capsys: Captured) -> None:
    assert exit_status("config", "cursor", "--deny-domains", "a.example", "--answer-bytes", "50000") == 0
    entry = json.loads(capsys.readouterr().out)["mcpServers"]["web-search-prime"]
    assert entry["args"][-4:] == ["--deny-domains", "a.example", "--answer-bytes", "50000"]
