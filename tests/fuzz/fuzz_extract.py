"""Coverage-guided fuzzing of the way from a body to text: charset, wall signs, main text, word limit.

By hand, in an environment of its own (Linux; atheris needs no other package of the tests):

    python3.11 -m venv .venv-fuzz
    .venv-fuzz/bin/pip install atheris -e .
    .venv-fuzz/bin/python tests/fuzz/fuzz_extract.py -max_total_time=600 -max_len=20000 tests/fuzz/corpus

The corpus folder (made by `--seed`, ignored by git) starts with the pages of the simulated web and of `tests/pages`.
What is found becomes a test: the bytes in `tests/test_fetch.py` or `tests/test_extract.py`, whose code is at fault.
"""

import sys
from pathlib import Path
from typing import get_args

import atheris  # type: ignore[import-not-found,unused-ignore]

TESTS = Path(__file__).parent.parent
CORPUS = Path(__file__).parent / "corpus"
MAX_SEED_BYTES = 20_000
CONTENT_TYPES = ("", "text/html", "text/html; charset=utf-8", "text/html; charset=gbk", "text/html; charset=shift_jis")
URLS = ("https://example.com/", "https://example.com/questions/1#answer", "https://docs.example.org/guide/#part-2")

sys.path.insert(0, str(TESTS.parent))
with atheris.instrument_imports(include=["agent_web_search"]):
    import agent_web_search as program


def fuzz_one(data: bytes) -> None:
    """The first two bytes choose header and URL, the rest is the body."""
    if len(data) < 2:
        return
    text = program.decode_body(data[2:], CONTENT_TYPES[data[0] % len(CONTENT_TYPES)])
    text.encode()
    url = URLS[data[1] % len(URLS)]
    program.is_wall(text, url)
    try:
        extract = program.extract_page(program.Page(url, "text/html", text))
    except program.PageError as error:
        if error.reason not in get_args(program.PageReason):
            raise
        return
    assert extract == program.clean_text(extract)
    for limit in (1, 20):
        cut = program.truncate_words(extract, limit)
        assert program.count_words(cut.replace(program.ELLIPSIS, "")) <= limit
        assert len(cut.encode()) <= limit * program.MAX_BYTES_PER_WORD + 16


def write_seeds() -> None:
    sys.path.insert(0, str(TESTS.parent))
    from tests.simulated_pages import default_pages

    CORPUS.mkdir(exist_ok=True)
    bodies = [page.body for page in default_pages().values() if isinstance(page.body, bytes)]
    bodies += [path.read_bytes() for path in (TESTS / "pages").rglob("*.html")]
    for number, body in enumerate(bodies):
        (CORPUS / f"seed-{number}").write_bytes(b"\0\0" + body[:MAX_SEED_BYTES])


if __name__ == "__main__":
    if sys.argv[1:] == ["--seed"]:
        write_seeds()
    else:
        CORPUS.mkdir(exist_ok=True)
        atheris.Setup(sys.argv, fuzz_one)
        atheris.Fuzz()
