"""Cleaning, counting and cutting text."""

import re
import sys
import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import agent_web_search as aws

# Shown by a font in front of the number they enclose or sum up, though Unicode files them under "format".
VISIBLE_FORMAT_CHARACTERS = {0x600, 0x601, 0x602, 0x603, 0x604, 0x605, 0x6DD, 0x70F, 0x890, 0x891, 0x8E2} | {
    0x110BD,
    0x110CD,
}
ANY_TEXT = st.text(st.one_of(st.characters(), st.sampled_from("ab 1\n`~中文字。、한é…\x1b\u200b")), max_size=300)
FENCED_TEXT = st.lists(
    st.sampled_from(["```", "````", "~~~", "```python", "    x = 1", "word", "中文", "", "# not code", "`" * 20]),
    max_size=30,
).map("\n".join)


def open_fence(text: str) -> str:
    """The fence that a reader of Markdown would still see open at the end of `text`."""
    fence = ""
    for line in text.split("\n"):
        mark = re.match(r" {0,3}(`{3,}|~{3,})(.*)", line)
        if mark and not fence and not (mark[1][0] == "`" and "`" in mark[2]):
            fence = mark[1]
        elif mark and fence and mark[1].startswith(fence) and not mark[2].strip():
            fence = ""
    return fence


# Cleaning


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        pytest.param("plain text", "plain text", id="nothing to do"),
        pytest.param("a\tb\nc", "a\tb\nc", id="tabs and line breaks stay"),
        pytest.param("a\r\nb\rc", "a\nb\nc", id="carriage returns"),
        pytest.param("a\u2028b\u2029c\x85d", "a\nb\nc\nd", id="Unicode line separators"),
        pytest.param("a\x0bb\x0cc", "a\nb\nc", id="vertical tab and form feed separate"),
        pytest.param("a\x00b\x08c\x7fd\x9fe", "abcde", id="controls"),
        pytest.param("\x1b[1;31mred\x1b[0m", "red", id="ANSI colour"),
        pytest.param("\x1b]0;title\x07text", "text", id="ANSI title"),
        pytest.param("\x1b]8;;http://evil.example\x1b\\link\x1b]8;;\x1b\\", "link", id="ANSI link"),
        pytest.param("\x1b]never ended\nall the rest", "]never ended\nall the rest", id="ANSI string without an end"),
        pytest.param("\x1b\x1b[0m\x1b", "", id="lone escapes"),
        pytest.param("pass\u200bword", "password", id="zero-width space"),
        pytest.param("a\u202eb\u2066c\u2069", "abc", id="bidi controls"),
        pytest.param("ig\U000e0069\U000e0067nore", "ignore", id="Unicode tags"),
        pytest.param("a\ufe0fb\U000e0100c", "abc", id="variation selectors"),
        pytest.param("a\u3164b\u115fc\uffa0d", "abcd", id="Hangul fillers"),
        pytest.param("a\ud800b\udfffc", "abc", id="lone surrogates"),
        pytest.param("a\ufdd0b\uffffc\U0001fffed", "abcd", id="noncharacters"),
        pytest.param("a\ue000b\U000f0000c", "abc", id="private use"),
        pytest.param("e\u0301 é 中文 한국어 עברית 😀", "e\u0301 é 中文 한국어 עברית 😀", id="every script stays"),
    ],
)
def test_clean_text_takes_away_what_a_reader_cannot_see(text: str, cleaned: str) -> None:
    assert aws.clean_text(text) == cleaned


def test_no_invisible_character_of_unicode_gets_through() -> None:
    invisible = (
        code for code in range(sys.maxunicode + 1) if unicodedata.category(chr(code)) in ("Cc", "Cf", "Cs", "Co")
    )
    kept = {code for code in invisible if aws.clean_text(chr(code)) not in ("", "\n", "\t")}
    assert kept <= VISIBLE_FORMAT_CHARACTERS


def test_every_letter_digit_and_symbol_of_unicode_gets_through() -> None:
    lost = [
        hex(code)
        for code in range(sys.maxunicode + 1)
        if unicodedata.category(chr(code))[0] in "LNPS" and aws.clean_text(chr(code)) != chr(code)
    ]
    assert lost == ["0x115f", "0x1160", "0x3164", "0xffa0"]  # the Hangul fillers: letters by name, blank by nature


def test_clean_line_folds_blanks_and_line_breaks() -> None:
    assert aws.clean_line("  a \u200b\n\n b\t\u00a0\u3000c\x0cd ") == "a b c d"


@given(st.text(st.characters(exclude_categories=()), max_size=300))
def test_cleaned_text_can_be_sent_and_is_clean(text: str) -> None:
    cleaned = aws.clean_text(text)
    cleaned.encode()
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u200b-\u200f\ud800-\udfff]", cleaned)
    assert aws.clean_text(cleaned) == cleaned


# Counting


@pytest.mark.parametrize(
    ("text", "count"),
    [
        pytest.param("", 0, id="nothing"),
        pytest.param("  \n ", 0, id="blanks"),
        pytest.param("one two\nthree", 3, id="words"),
        pytest.param("don't state-of-the-art foo.bar()", 3, id="what holds together is one"),
        pytest.param("=> -- + * …", 0, id="signs are none"),
        pytest.param("(see) [1] $x C++", 4, id="signs beside letters"),
        pytest.param("中文搜索", 4, id="Chinese"),
        pytest.param("中文，搜索。", 4, id="Chinese punctuation is none"),
        pytest.param("こんにちは カナ", 7, id="Japanese"),
        pytest.param("한국어", 3, id="Korean"),
        pytest.param("用Python写code吧", 5, id="Chinese and Latin glued"),
        pytest.param("\U00020000\U0002a700", 2, id="rare Chinese"),
        pytest.param("naïve été Ελλάδα привет", 4, id="other alphabets"),
        pytest.param("हिन्दी शब्द", 2, id="Devanagari with its marks"),
        pytest.param("3.14 1,000", 2, id="numbers"),
    ],
)
def test_count_words_counts_as_a_person_does(text: str, count: int) -> None:
    assert aws.count_words(text) == count


@pytest.mark.parametrize("text", ["-" * 400_000, "=" * 200_000 + "a", "`" * 400_000, "\x1b]" * 200_000, "😀" * 200_000])
def test_a_page_of_signs_takes_one_pass(text: str) -> None:
    """A pattern that starts over at each sign would need minutes here."""
    assert aws.count_words(aws.clean_text(text)) <= 1
    assert len(aws.truncate_words(text, 500).encode()) <= 500 * aws.MAX_BYTES_PER_WORD


# Cutting


@pytest.mark.parametrize(
    ("text", "limit", "cut"),
    [
        pytest.param("one two three", 3, "one two three", id="inside the limit"),
        pytest.param("one two three", 2, "one two …", id="over it"),
        pytest.param("one two, three", 2, "one two, …", id="punctuation stays with its word"),
        pytest.param("one two --", 2, "one two --", id="signs behind the last word are no word"),
        pytest.param("one\n\ntwo\n\nthree", 2, "one\n\ntwo …", id="line breaks"),
        pytest.param("中文搜索引擎", 4, "中文搜索 …", id="Chinese"),
        pytest.param("学习Python语言", 3, "学习Python …", id="a Latin word between Chinese ones stays whole"),
        pytest.param("```\na b c\n```\nd", 2, "```\na b\n```\n…", id="an open fence is closed"),
        pytest.param("````\n```\na b c\n````", 2, "````\n```\na b\n````\n…", id="by a fence of its own length"),
        pytest.param("~~~\na b\n~~~", 1, "~~~\na\n~~~\n…", id="by a fence of its own sign"),
        pytest.param("```\na\n```\nb c", 2, "```\na\n```\nb …", id="a closed fence is left alone"),
        pytest.param("```py\n```js\na b", 3, "```py\n```js\na\n```\n…", id="a fence with a language closes none"),
        pytest.param("```inline``` a b", 2, "```inline``` a …", id="backticks inside a line are no fence"),
    ],
)
def test_truncate_words_cuts_behind_a_word(text: str, limit: int, cut: str) -> None:
    assert aws.truncate_words(text, limit) == cut


def test_an_endless_word_is_cut_by_bytes() -> None:
    cut = aws.truncate_words("x" * 100_000, 500)
    assert 0.99 < len(cut) / (500 * aws.MAX_BYTES_PER_WORD) <= 1
    assert cut.endswith("x …")


@pytest.mark.parametrize("limit", aws.WORD_LIMIT_BY_CONTENT_SIZE.values())
@pytest.mark.parametrize("words", ["documentation, ", "中", "搜索，", "한국어 ", "    return value\n"])
def test_ordinary_text_meets_the_word_limit_exactly(words: str, limit: int) -> None:
    assert aws.count_words(aws.truncate_words(words * (limit + 1), limit)) == limit


@pytest.mark.parametrize(
    ("text", "max_bytes", "cut"),
    [
        pytest.param("short", 5, "short", id="fits"),
        pytest.param("alpha beta gamma delta", 21, "alpha beta …", id="at a word"),
        pytest.param("中文搜索引擎很好用", 20, "中文搜索引 …", id="Chinese at a character"),
        pytest.param("a " + "中" * 50, 60, "a " + "中" * 17 + " …", id="a blank far back does not cost what follows"),
        pytest.param("a " + "x" * 300, 200, "a " + "x" * 193 + " …", id="nor does one before an endless word"),
        pytest.param("😀" * 10, 20, "😀😀😀 …", id="no half character"),
        pytest.param("x" * 100, 3, "", id="no room"),
        pytest.param("x" * 100, 0, "", id="no room at all"),
        pytest.param("x" * 100, -5, "", id="less than none"),
    ],
)
def test_truncate_bytes_cuts_where_a_word_ends(text: str, max_bytes: int, cut: str) -> None:
    assert aws.truncate_bytes(text, max_bytes) == cut


@given(st.one_of(ANY_TEXT, FENCED_TEXT), st.integers(-1, 400))
@example("`" * 400, 60)
@example("```" * 5 + "\ncode " * 30, 60)
@example("```\na\n```\n" + "`" * 20 + "\n" + "code " * 30, 80)
def test_truncate_bytes_keeps_its_promises(text: str, max_bytes: int) -> None:
    text = aws.clean_text(text)
    cut = aws.truncate_bytes(text, max_bytes)
    assert len(cut.encode()) <= max(0, max_bytes)
    check_cut(text, cut)


@given(st.one_of(ANY_TEXT, FENCED_TEXT), st.integers(1, 40))
def test_truncate_words_keeps_its_promises(text: str, limit: int) -> None:
    text = aws.clean_text(text)
    cut = aws.truncate_words(text, limit)
    assert aws.count_words(cut) <= limit
    assert len(cut.encode()) <= limit * aws.MAX_BYTES_PER_WORD
    check_cut(text, cut)


def check_cut(text: str, cut: str) -> None:
    """A cut text is a beginning of the text and its mark: nothing glued to the …, no fence left open."""
    if cut in (text, ""):
        return
    assert re.search(r"\s…\Z", cut)
    assert not open_fence(cut.removesuffix("…"))
    kept = cut.removesuffix("…").rstrip()
    without_fence = re.sub(r"\n(`{3,}|~{3,})\Z", "", kept)
    assert text.startswith(kept) or text.startswith(without_fence)
