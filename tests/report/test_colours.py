"""Colours of both themes: enough contrast for words and for marks, one counterpart for each."""

import re
from importlib.resources import files

import pytest

from flowscope.report import theme
from flowscope.report.drawing import marks
from flowscope.report.drawing.colours import (
    DARK,
    GROUNDS,
    NAMES,
    contrast,
    css_colour,
    theme_css,
    word_on,
)

MARKS = [theme.BLUE, theme.VERMILION, theme.GREEN, theme.ORANGE, theme.INK, theme.MUTED]
SERIES = [marks.spread(place, 7) for place in range(7)]
STYLE = (files("flowscope.report") / "page.css").read_text(encoding="utf-8")


def between(low, high, share):
    """Colour between two others, rounded as a browser gets it."""
    ends = zip(*([int(c[k : k + 2], 16) for k in (1, 3, 5)] for c in (low, high)), strict=True)
    return "#" + "".join(f"{round(a + share * (b - a)):02x}" for a, b in ends)


def in_theme(colour, dark):
    return DARK[colour] if dark else colour


def test_contrast_is_that_of_the_standard():
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)
    assert contrast("#ffffff", "#777777") == contrast("#777777", "#ffffff")


def test_a_word_can_be_read_on_every_colour_of_the_scale():
    stops = list(zip(theme.SCALE, theme.SCALE[1:], strict=False))
    grounds = [between(a, b, k / 100) for a, b in stops for k in range(101)]
    assert min(contrast(word_on(ground), ground) for ground in grounds) >= 4.5
    assert {word_on(ground) for ground in grounds} == {"#000000", "#ffffff"}


@pytest.mark.parametrize("dark", [False, True])
def test_words_can_be_read_on_both_grounds(dark):
    for ground in ("ground", "wash"):
        behind = in_theme(NAMES[ground], dark)
        for ink in ("ink", "soft", "muted", "blue"):
            assert contrast(in_theme(NAMES[ink], dark), behind) >= 4.5, (ink, ground)
    assert contrast(in_theme(NAMES["ink"], dark), in_theme(NAMES["void"], dark)) >= 4.5


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("colour", [*MARKS, *SERIES])
def test_marks_can_be_seen_on_both_grounds(colour, dark):
    assert contrast(in_theme(colour, dark), GROUNDS[dark]) >= 3


def test_every_colour_of_the_theme_has_a_counterpart():
    named = [theme.INK, theme.MUTED, theme.RULE, theme.PASSING, theme.ABSTAINED, *MARKS, *SERIES]
    assert set(named) <= set(DARK)
    assert set(NAMES.values()) <= set(DARK)


def test_every_variable_of_the_style_sheet_is_defined():
    used = set(re.findall(r"var\(--([a-z-]+)\)", STYLE))
    assert used <= set(NAMES)
    assert {"ink", "ground", "blue"} <= used


def test_both_themes_are_in_the_style_sheet_of_the_page():
    sheet = theme_css()
    assert sheet.count("--c-0072b2:#0072b2;") == 1
    assert sheet.count(f"--c-0072b2:{DARK['#0072b2']};") == 2  # system, button
    assert css_colour("#0072B2") == "var(--c-0072b2, #0072B2)"
