"""Settings: every one described, misspelt names corrected, values checked."""

import re

import pytest

from flowscope.errors import InvalidInputError
from flowscope.lab.config import Config, default_words, description_of, marks, setting
from flowscope.lab.registry import instruments
from flowscope.models.config import DoctorConfig

CONFIGS = [*(one.config for one in instruments()), DoctorConfig]
FIELDS = [
    pytest.param(field, id=f"{config.__name__}.{name}")
    for config in CONFIGS
    for name, field in config.model_fields.items()
]


class Inner(Config):
    """Inner settings."""

    seed: int = setting(0, "Seed")


class Outer(Config):
    """Settings with a group."""

    steps: int = setting(4, "Steps", ge=1)
    group: Inner = Inner.model_validate({})


@pytest.mark.parametrize("field", FIELDS)
def test_every_setting_is_described_in_one_line(field):
    assert field.description
    assert "\n" not in field.description
    assert field.description[0].isupper()
    assert not field.description.endswith(".")
    assert len(field.description) <= 96


@pytest.mark.parametrize("field", FIELDS)
def test_every_default_has_words(field):
    assert default_words(field)
    if not field.is_required() and field.default is None:
        assert marks(field)["unset"], "a None needs words for what happens then"


@pytest.mark.parametrize("config", CONFIGS)
def test_every_command_has_a_help_and_one_argument(config):
    assert config.__doc__
    assert config.__doc__ != Config.__doc__
    arguments = [
        name for name, field in config.model_fields.items() if marks(field).get("argument")
    ]
    assert arguments == ["model"]


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (True, "true"),
        (1.0, "1"),
        (0.05, "0.05"),
        ((), "[]"),
        ((0.1, 1.0), "[0.1, 1]"),
        (((0.0, 1.0), (0.0, 0.0)), "[[0, 1], [0, 0]]"),
        ("out", "out"),
    ],
)
def test_a_default_is_written_as_an_override_takes_it(value, words):
    assert default_words(setting(value, "Something")) == words


def test_choices_are_part_of_the_description():
    (field,) = (f for c in CONFIGS for n, f in c.model_fields.items() if n == "chain")
    assert description_of(field).endswith(": unmasked, damped or quasi-stationary")


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["stesp=3"], "No setting is named 'stesp'. Did you mean 'steps'?"),
        (["nothing_like_it=3"], "Known names: steps, group"),
        (["group.sede=3"], "No setting is named 'group.sede'. Did you mean 'seed'?"),
        (["steps=0"], "'steps' must be at least 1; got 0. Steps (default: 4)."),
        (["steps=true"], "'steps' must be a number; got True"),
        (["steps=1e26x"], "'steps' must be a whole number; got '1e26x'"),
        (["steps=" + 5000 * "9"], "not valid YAML"),
        (["steps=" + 3000 * "["], "not valid YAML"),
        (["steps"], "--set takes name=value"),
        (["steps.more=1", "steps.more.still=1"], "holds a value, not a group"),
        (["steps=[1"], "not valid YAML"),
    ],
)
def test_a_wrong_override_raises_with_a_hint(overrides, words):
    with pytest.raises(InvalidInputError, match=re.escape(words)):
        Outer.resolved({}, overrides)


def test_overrides_win_over_given_values_and_these_over_the_file(tmp_path):
    file = tmp_path / "settings.yaml"
    file.write_text("steps: 5\ngroup: {seed: 1}\n")
    assert Outer.resolved({}, (), file).steps == 5
    assert Outer.resolved({"steps": 6}, (), file).steps == 6
    chosen = Outer.resolved({"steps": 6}, ["steps=7", "group.seed=2"], file)
    assert (chosen.steps, chosen.group.seed) == (7, 2)
    assert Outer.resolved({"steps": None}, (), file).steps == 5


def test_a_file_that_is_no_mapping_is_refused(tmp_path):
    file = tmp_path / "settings.yaml"
    for content, words in (("- 1", "must hold a mapping"), ("a: [", "not valid YAML")):
        file.write_text(content)
        with pytest.raises(InvalidInputError, match=words):
            Outer.resolved({}, (), file)
    file.write_text("")
    assert Outer.resolved({}, (), file) == Outer.model_validate({})
    with pytest.raises(InvalidInputError, match="could not be read"):
        Outer.resolved({}, (), tmp_path / "missing.yaml")
