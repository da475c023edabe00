"""``flowscope.INSTRUMENT``: signature, docstring, pickling, stub, and what a call passes on."""

import copy
import inspect
import pickle
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

import flowscope
from flowscope.errors import InvalidInputError
from flowscope.lab import engine
from flowscope.lab.api.faces import function_of, keyword_settings, result_name
from flowscope.lab.api.stub import stub_text
from flowscope.lab.registry import instrument, instrument_names

NAMES = instrument_names()


@pytest.mark.parametrize("name", NAMES)
def test_a_function_is_the_same_object_at_each_access(name):
    function = getattr(flowscope, name)
    assert function is getattr(flowscope, name)
    assert function is function_of(instrument(name))
    assert pickle.loads(pickle.dumps(function)) is function
    assert copy.deepcopy(function) is function
    assert (function.__module__, function.__qualname__) == ("flowscope", name)


@pytest.mark.parametrize("name", NAMES)
def test_the_signature_and_the_docstring_hold_every_setting(name):
    declared = instrument(name)
    function = getattr(flowscope, name)
    parameters = inspect.signature(function).parameters
    names = [argument.name for argument in declared.arguments]
    recorded = {argument.setting for argument in declared.arguments} - {""}
    assert set(parameters) == {*names, *declared.config.model_fields, "progress", "only"} - (
        recorded - set(names)
    )
    for field_name, field in keyword_settings(declared).items():
        assert parameters[field_name].default == field.default
        assert f"\n{field_name}\n    {field.description[:60]}" in function.__doc__
    positional = [n for n, p in parameters.items() if p.kind is p.POSITIONAL_OR_KEYWORD]
    assert positional == [a.name for a in declared.arguments if a.positional]
    assert max(map(len, function.__doc__.splitlines())) <= 100


@pytest.mark.parametrize("name", NAMES)
def test_results_and_functions_are_listed(name):
    declared = instrument(name)
    result = declared.resolve(declared.result)
    assert result.__name__ == result_name(declared)
    assert getattr(flowscope, result.__name__) is result
    assert {name, result.__name__} <= set(dir(flowscope))


def test_every_public_name_can_be_imported():
    for name in flowscope.__all__:
        assert getattr(flowscope, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        flowscope.nothing  # noqa: B018 - the access is the test


def test_the_stub_is_current():
    stub = Path(flowscope.__file__).with_suffix(".pyi")
    assert stub.read_text() == stub_text(), "run python -m flowscope.lab.api.stub"


@pytest.mark.parametrize("name", NAMES)
def test_an_unknown_setting_suggests_the_nearest(name):
    with pytest.raises(InvalidInputError, match="Did you mean 'seed'"):
        getattr(flowscope, name)(sede=1)


@pytest.fixture
def passed(monkeypatch, tmp_path):
    """What a function hands to the engine; temporary folders are made below ``tmp_path``."""
    calls = []
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def run(declared, config, **more):
        calls.append((declared, config, more))

    monkeypatch.setattr(engine, "run", run)
    return calls


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", [str, Path])
def test_a_name_is_a_setting_and_an_object_is_given(name, kind, passed, tmp_path):
    function, model = getattr(flowscope, name), object()
    function(kind("some/model"), out=tmp_path, seed=3)
    function(model, progress=print)
    function(model="some/model")
    (_, first, named), (declared, second, given), (_, third, _) = passed
    assert declared is instrument(name)
    assert (first.model, first.seed, named["given"], named["folder"]) == (
        "some/model", 3, {}, tmp_path,
    )  # fmt: skip
    assert first.model_fields_set == {"model", "seed"}
    assert (second.model, given["given"], given["progress"]) == (None, {"source": model}, print)
    assert given["folder"].name == name
    assert given["folder"].parent.name.startswith("flowscope-")
    assert third.model == "some/model"


def test_a_setting_of_none_takes_its_default(passed):
    flowscope.audit(prompts=None, text=None)
    ((_, config, _),) = passed
    assert config.model_fields_set == set()


def test_a_recorded_argument_is_given_once(passed):
    with pytest.raises(InvalidInputError, match="source and model mean the same"):
        flowscope.audit("one", model="two")
    with pytest.raises(TypeError, match="by position and by name"):
        flowscope.audit("one", source="two")
    with pytest.raises(TypeError, match="takes 2 positional arguments"):
        flowscope.audit("one", None, None)
    flowscope.sync(scheduler="folder", encoder=abs)
    ((_, config, more),) = passed
    assert (config.scheduler, config.encoder, more["given"]) == ("folder", None, {"encoder": abs})


def test_importing_flowscope_and_its_functions_needs_no_torch():
    code = (
        "import sys, flowscope as fs; dir(fs); fs.audit; fs.image.__doc__; "
        "assert not {'torch', 'pandas', 'transformers'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
