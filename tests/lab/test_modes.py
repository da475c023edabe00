"""Evaluation mode for the time of a measurement, restored exactly, and said."""

import threading
import warnings

import pytest
import torch
from torch import nn

import flowscope
from flowscope.errors import ModelWarning
from flowscope.lab.running.modes import evaluation, modules_of


def _flags(model):
    return [module.training for module in model.modules()]


def _mixed():
    model = nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.5), nn.Sequential(nn.Dropout(0.1)))
    model.train()
    model[1].eval()
    model[2].eval()
    model[2][0].train()
    return model


def test_every_module_is_evaluated_and_gets_its_own_mode_back():
    model = _mixed()
    before = _flags(model)
    assert before == [True, True, False, False, True]
    with pytest.warns(ModelWarning, match=r"Sequential \(3 of 5 modules\)"), evaluation([model]):
        assert not any(_flags(model))
    assert _flags(model) == before


def test_a_module_with_two_parents_gets_its_own_mode_back():
    shared = nn.Dropout(0.5)
    model = nn.Sequential(nn.Sequential(shared), nn.Sequential(shared), nn.Linear(2, 2)).eval()
    model[0].training = model[1].training = True
    before = _flags(model)
    assert before == [False, True, False, True, False]
    with pytest.warns(ModelWarning), evaluation([model]):
        assert not any(_flags(model))
    assert _flags(model) == before


def test_modes_come_back_after_an_error():
    model = _mixed()
    before = _flags(model)
    with pytest.warns(ModelWarning), pytest.raises(KeyError), evaluation([model]):
        raise KeyError
    assert _flags(model) == before


def test_a_model_in_evaluation_mode_is_not_spoken_of(recwarn):
    with evaluation([nn.Linear(2, 2).eval(), "text", None, [1]]) as sentence:
        assert sentence == ""
    assert not recwarn


def test_the_mode_of_a_wrapper_is_not_spoken_of_and_comes_back(recwarn):
    wrapped = nn.DataParallel(nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.5)).eval())
    assert wrapped.training
    with evaluation([wrapped]):
        assert not wrapped.training
    assert wrapped.training
    assert not recwarn


def test_nested_and_overlapping_runs_restore_at_the_end():
    model = _mixed()
    before = _flags(model)
    first, second = evaluation([model]), evaluation([model[2]])
    with pytest.warns(ModelWarning):
        first.__enter__()
    assert second.__enter__() == ""  # reported by the first
    first.__exit__(None, None, None)
    assert not any(_flags(model[2]))  # still held
    second.__exit__(None, None, None)
    assert _flags(model) == before


def test_threads_that_share_a_model_leave_it_as_it_was():
    model, wrong = _mixed(), []
    before = _flags(model)

    def work():
        for _ in range(50):
            with evaluation([model]):
                if any(_flags(model)):
                    wrong.append(1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ModelWarning)
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not wrong
    assert _flags(model) == before


class _Merging(nn.Module):
    """A layer that does something when its mode changes, as merged adapters do."""

    def __init__(self):
        super().__init__()
        self.inner, self.merged = nn.Dropout(0.5), False

    def train(self, mode=True):
        super().train(mode)
        self.merged = not mode
        return self


def test_the_train_method_of_a_module_is_called_both_ways():
    model = nn.Sequential(_Merging())
    with pytest.warns(ModelWarning), evaluation([model]):
        assert model[0].merged
    assert not model[0].merged
    assert all(_flags(model))


def test_modules_of_pipelines_and_bound_methods_are_seen():
    class Pipeline:
        def __init__(self):
            self.unet, self.name = nn.Linear(1, 1), "x"

    pipeline = Pipeline()
    assert modules_of(pipeline) == [pipeline.unet]
    assert modules_of(pipeline.unet.forward) == [pipeline.unet]
    assert modules_of(flowscope.load(pipeline.unet)) == [pipeline.unet]
    assert modules_of(torch.zeros(2)) == []


class _Doubling(nn.Module):
    def forward(self, x):
        return torch.sin(x) * 2


@pytest.mark.parametrize("part", [0, 1])
def test_compiled_parts_run_their_original_code(part):
    calls = []

    def backend(graph, inputs):
        calls.append(1)
        return graph.forward

    model = nn.Sequential(_Doubling(), torch.compile(_Doubling(), backend=backend)).eval()
    model[0].compile(backend=backend)
    compiled, forward = model[0]._compiled_call_impl, vars(model[1])["forward"]
    with evaluation([model]):
        model[part](torch.ones(1, 2))
    assert not calls
    assert model[0]._compiled_call_impl is compiled
    assert vars(model[1])["forward"] is forward
    model[part](torch.ones(1, 2))
    assert calls, "outside a measurement the compiled code runs"
