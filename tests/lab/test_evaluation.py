"""A network that is handed over in training mode is measured in evaluation mode and handed back."""

from types import SimpleNamespace

import pytest
from tests.lab import toy
from tests.lab.toy import TOY, ToyConfig
from torch import nn

from flowscope.lab import engine
from flowscope.lab.running.evaluation import evaluation_mode


def network():
    """In training mode but for one part, as a partly frozen network is."""
    made = nn.Sequential(nn.Linear(2, 2), nn.Dropout(), nn.BatchNorm1d(2))
    made[2].eval()
    return made


def modes(made):
    return [part.training for part in made.modules()]


@pytest.mark.parametrize("held", [False, True])
def test_every_part_gets_its_mode_back(held):
    made = network()
    value = SimpleNamespace(transformer=made, name="a pipeline") if held else made
    with evaluation_mode([None, value, "words"]):
        assert modes(made) == [False] * 4
    assert modes(made) == [True, True, True, False]


def test_modes_come_back_after_an_error():
    made = network()
    with pytest.raises(ZeroDivisionError), evaluation_mode([made]):
        raise ZeroDivisionError
    assert modes(made) == [True, True, True, False]


def test_a_run_sees_no_training_mode(tmp_path, monkeypatch):
    made, seen = network(), []
    measure = toy.fall

    def watched(bench):
        seen.append(made.training)
        measure(bench)

    monkeypatch.setattr(toy, "fall", watched)
    engine.run(TOY, ToyConfig.resolved({}), given={"source": made}, folder=tmp_path / "run")
    assert seen == [False]
    assert made.training
