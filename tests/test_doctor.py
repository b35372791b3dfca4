"""`agent-web-search doctor`: a line for each thing a search rests on, the cure of what is wrong, a telling status."""

import asyncio

import pytest

import agent_web_search as aws
from tests.direct_sockets import DirectSockets
from tests.simulated_web import SimulatedWeb

SUBJECTS = ["names", "proxy", "certificates", *aws.ENGINES, "page"]


def run_doctor(capsys: pytest.CaptureFixture[str], *options: str) -> tuple[int, dict[str, str], str]:
    """The exit status, each subject's line, and the verdict."""
    status = aws.main(["doctor", *options])
    *lines, verdict = capsys.readouterr().out.splitlines()
    return status, {line.partition(" ")[2].strip().split(":")[0]: line for line in lines}, verdict


def test_every_subject_has_one_line_in_the_order_in_which_one_needs_the_other(
    through_web: SimulatedWeb, capsys: pytest.CaptureFixture[str]
) -> None:
    status, lines, verdict = run_doctor(capsys)
    assert list(lines) == SUBJECTS
    assert all(line.startswith("ok    ") for line in lines.values())
    assert (status, verdict) == (0, "A search would be answered.")


def test_engines_and_page_are_really_asked(through_web: SimulatedWeb, capsys: pytest.CaptureFixture[str]) -> None:
    run_doctor(capsys)
    assert {search.engine for search in through_web.searches} == set(aws.ENGINES)
    assert aws.DOCTOR_PAGE in {request.url for request in through_web.requests}


@pytest.mark.parametrize(
    ("fault", "finding", "cure"),
    [
        ("202", "refuses to search for now", aws.CURE_BY_OUTCOME["rate limited"]),
        ("429:30", "refuses to search for now (HTTP 429)", aws.CURE_BY_OUTCOME["rate limited"]),
        ("500", "answered HTTP 500", aws.CURE_BY_OUTCOME["engine error"]),
        ("certificate", "is signed by an unknown authority", aws.CURE_BY_OUTCOME["certificate refused"]),
        ("no-hits", "0 results", aws.CURE_BY_OUTCOME["no match"]),
        ("refused", "cannot reach html.duckduckgo.com", aws.CURE_BY_OUTCOME["unreachable"]),
    ],
)
def test_an_engine_that_fails_has_its_cure_and_the_others_still_answer(
    fault: str, finding: str, cure: str, through_web: SimulatedWeb, capsys: pytest.CaptureFixture[str]
) -> None:
    through_web.set_engine("duckduckgo", fault)
    status, lines, _ = run_doctor(capsys)
    assert lines["duckduckgo"].startswith("wrong ")
    assert finding in lines["duckduckgo"]
    assert lines["duckduckgo"].endswith(f"; {cure}")
    assert status == 0


def test_it_fails_where_a_search_would_fail(through_web: SimulatedWeb, capsys: pytest.CaptureFixture[str]) -> None:
    through_web.set_engine("duckduckgo", "403")
    status, lines, verdict = run_doctor(capsys, "--engines", "duckduckgo")
    assert list(lines) == ["names", "proxy", "certificates", "duckduckgo", "page"]
    assert (status, verdict) == (1, "A search would fail: no engine answers.")


def test_a_hanging_engine_ends_within_its_clock(
    through_web: SimulatedWeb, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(aws, "ENGINE_TIMEOUT_SECONDS", 0.5)
    through_web.set_engine("duckduckgo", "hang")
    status, lines, _ = run_doctor(capsys, "--engines", "duckduckgo")
    assert lines["duckduckgo"].startswith("wrong ")
    assert lines["duckduckgo"].endswith(aws.CURE_BY_OUTCOME["timed out"])
    assert status == 1


def test_a_proxy_that_does_not_answer_is_named_without_its_password(capsys: pytest.CaptureFixture[str]) -> None:
    status, lines, _ = run_doctor(capsys, "--engines", "duckduckgo", "--proxy", "http://user:secret@127.0.0.1:9")
    assert lines["proxy"].startswith("wrong  proxy: 127.0.0.1:9 does not answer; ")
    assert "secret" not in "".join(lines.values())
    assert status == 1


@pytest.mark.parametrize(
    ("proxy", "port"),
    [("http://127.0.0.1", 80), ("https://127.0.0.1", 443), ("socks5://127.0.0.1", 1080), ("http://127.0.0.1:81", 81)],
)
def test_a_proxy_without_a_port_is_sought_at_that_of_its_scheme(
    proxy: str, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Writer:
        def close(self) -> None:
            pass

    async def open_connection(host: str, asked_port: int) -> tuple[None, Writer]:
        assert (host, asked_port) == ("127.0.0.1", port)
        return None, Writer()

    monkeypatch.setattr(aws.asyncio, "open_connection", open_connection)
    check = asyncio.run(aws.check_proxy(aws.Settings(proxy=proxy)))
    assert check.cure == ""
    assert check.finding.endswith(" takes connections")


def test_the_proxy_of_ddgs_alone_is_the_one_that_is_sought(
    direct_sockets: DirectSockets, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DDGS_PROXY", "http://user:secret@127.0.0.1:9")
    _, lines, _ = run_doctor(capsys, "--engines", "duckduckgo")
    assert lines["proxy"] == "ok     proxy: 127.0.0.1:9 takes connections"


def test_a_name_that_does_not_resolve_is_told(
    direct_sockets: DirectSockets, capsys: pytest.CaptureFixture[str]
) -> None:
    direct_sockets.addresses["html.duckduckgo.com"] = []
    _, lines, _ = run_doctor(capsys, "--engines", "duckduckgo")
    assert lines["names"].startswith("wrong  names: html.duckduckgo.com does not resolve; ")
    assert lines["page"].startswith("ok     page: ")


def test_no_trusted_certificate_is_told(
    through_web: SimulatedWeb, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(aws, "_load_certificates", lambda settings: (None, []))
    _, lines, _ = run_doctor(capsys, "--engines", "duckduckgo")
    assert lines["certificates"].startswith("wrong  certificates: no authority is trusted; ")


def test_names_that_the_proxy_of_engines_looks_up_need_not_resolve_here(
    direct_sockets: DirectSockets, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    direct_sockets.addresses["html.duckduckgo.com"] = []
    monkeypatch.setenv("DDGS_PROXY", "http://127.0.0.1:9")
    _, lines, _ = run_doctor(capsys, "--engines", "duckduckgo")
    assert lines["names"] == "ok     names: the proxy looks them up"
