"""Whatever a text holds, it is shown as text."""

import base64
import hashlib
import html
import json
import re
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.instruments.audit.synthetic import NASTY

from flowscope.report.escaping import (
    hover,
    html_text,
    json_island,
    plotly_text,
    script_hash,
    shortened,
    visible,
)

# What plotly.js (src/lib/svg_text_utils.js, src/lib/index.js) looks for in a label.
TAGS, TEMPLATES = re.compile(r"<[^<>]*>"), re.compile(r"%\{[^}]*\}")
ENTITIES = re.compile(r"&(#\d+|#x[\da-fA-F]+|[a-z]+);")
CHARACTERS = st.characters(exclude_categories=("Cs",))
TEXTS = st.one_of(st.sampled_from(NASTY), st.text(CHARACTERS), st.text("<>&%{}$\"'#;x3c/!-b\\"))


def as_plotly_shows_it(label):
    assert not TAGS.search(label)
    assert not TEMPLATES.search(label)
    return ENTITIES.sub(lambda match: html.unescape(match[0]), label)


@given(TEXTS)
def test_html_holds_the_text_and_no_tag(text):
    class Reader(HTMLParser):
        found, tags = "", 0

        def handle_data(self, data):
            self.found += data

        def handle_starttag(self, tag, attributes):
            self.tags += 1
            self.title = dict(attributes)["title"]

    reader = Reader()
    reader.feed(f'<p title="{html_text(text)}">{html_text(text)}</p>')
    reader.close()
    assert reader.tags == 1
    assert reader.found == reader.title == visible(text)


@given(TEXTS)
def test_plotly_shows_the_text_and_no_markup(text):
    assert as_plotly_shows_it(plotly_text(text)) == visible(text)


@given(TEXTS)
def test_a_formula_or_a_backslash_means_nothing_to_plotly(text):
    assert not set(plotly_text(text)) & set("$\\\"'")


@given(st.lists(TEXTS))
def test_json_comes_back_and_cannot_leave_its_element(texts):
    island = json_island({"words": texts})
    assert json.loads(island) == {"words": texts}
    assert island.isascii()
    assert not set(island) & set("<>&")


def test_undefined_floats_become_null():
    assert json_island([float("nan"), float("inf"), 1.5]) == "[null,null,1.5]"


@pytest.mark.parametrize("mark", ["\u202e", "\u2066", "\u2028", "\u2029", "\x00", "\x1b", "\ufeff"])
def test_marks_that_hide_or_turn_text_are_seen(mark):
    assert visible(f"a{mark}b") == f"a\\u{ord(mark):04x}b"


def test_joined_emoji_stay_whole():
    family = "\U0001f468\u200d\U0001f469"
    assert visible(family) == family


def test_a_cut_is_seen_and_never_inside_an_escape():
    assert shortened("abcdef", 4) == "abc…"
    assert html_text(shortened("<" * 9, 3)) == "&lt;&lt;…"


def test_hover_breaks_lines_only_between_lines():
    assert hover(["a<br>b", "c"]).split("<br>") == ["a&#60;br&#62;b", "c"]


def test_script_hash_is_the_one_a_browser_forms():
    digest = hashlib.sha256("alert(é)".encode()).digest()
    assert script_hash("alert(é)") == f"'sha256-{base64.b64encode(digest).decode()}'"
