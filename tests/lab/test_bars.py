"""Progress of a function: bars in a terminal or a notebook, nothing elsewhere, one display."""

import io
import sys
import threading
import types

import pytest
import rich.console
from tests.lab.toy import TOY, ToyConfig

import flowscope as fs
from flowscope.lab import engine
from flowscope.lab.running.bars import displayed_progress
from flowscope.lab.running.progress import silent


class Terminal(io.StringIO):
    """A stream that says that it is a terminal."""

    def isatty(self):
        return True


def attached_terminal(monkeypatch):
    """Make standard error a terminal; in the test itself, because pytest sets it before each."""
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    return stream


def attached_file(monkeypatch):
    """Make standard error a file."""
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    return stream


def advance_twice(progress=None):
    with displayed_progress(progress) as advance:
        advance("measuring", 1, 2)
        advance("measuring", 2, 2)
    return advance


def test_bars_are_drawn_in_a_monkeypatch(monkeypatch):
    terminal = attached_terminal(monkeypatch)
    advance_twice()
    assert "measuring" in terminal.getvalue()
    assert "2/2" in terminal.getvalue()


def test_nothing_is_written_where_no_terminal_is(monkeypatch):
    log = attached_file(monkeypatch)
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert advance_twice() is silent
    assert log.getvalue() == ""


def test_progress_false_mutes_and_true_forces(monkeypatch):
    terminal = attached_terminal(monkeypatch)
    assert advance_twice(False) is silent
    assert terminal.getvalue() == ""
    log = attached_file(monkeypatch)
    advance_twice(True)
    lines = [line.strip() for line in log.getvalue().replace("\r", "\n").splitlines()]
    assert [line.split() for line in lines if line] == [["measuring", "1/2"], ["measuring", "2/2"]]


def test_function_is_used_as_it_is(monkeypatch):
    terminal = attached_terminal(monkeypatch)
    calls = []
    advance_twice(lambda *call: calls.append(call))
    assert calls == [("measuring", 1, 2), ("measuring", 2, 2)]
    assert terminal.getvalue() == ""


def test_notebook_without_widgets_gets_lines(monkeypatch):
    log = attached_file(monkeypatch)
    monkeypatch.setitem(sys.modules, "IPython", types.ModuleType("IPython"))
    monkeypatch.setattr(rich.console, "_is_jupyter", lambda: True)
    monkeypatch.setattr("flowscope.lab.running.bars.find_spec", lambda name: None)
    advance_twice()
    assert "measuring" in log.getvalue()
    assert "2/2" in log.getvalue()


def test_second_display_shows_nothing_and_the_next_one_does(monkeypatch):
    attached_terminal(monkeypatch)
    with displayed_progress() as first:
        assert advance_twice() is silent
        assert advance_twice(True) is silent
        first("measuring", 1, 1)
    assert advance_twice() is not silent


def test_display_ends_with_an_error(monkeypatch):
    terminal = attached_terminal(monkeypatch)
    with pytest.raises(KeyboardInterrupt), displayed_progress():
        raise KeyboardInterrupt
    assert sys.stderr is terminal
    assert advance_twice() is not silent


def test_standard_output_that_is_a_file_is_left_alone(monkeypatch):
    attached_terminal(monkeypatch)
    output = io.StringIO()
    monkeypatch.setattr(sys, "stdout", output)
    with displayed_progress() as advance:
        advance("measuring", 1, 2)
        print("a row")
    assert output.getvalue() == "a row\n"


def test_runs_in_two_threads_both_finish(monkeypatch):
    attached_terminal(monkeypatch)
    results, gate = [], threading.Barrier(2)

    def job():
        with displayed_progress() as advance:
            gate.wait(timeout=30)
            advance("measuring", 1, 1)
            results.append(advance is silent)

    threads = [threading.Thread(target=job) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    assert sorted(results) == [False, True]


@pytest.mark.parametrize("progress", [None, True])
def test_functions_show_bars(progress, monkeypatch, tmp_path):
    terminal = attached_terminal(monkeypatch)
    ran = engine.run

    def run(declared, config, *, progress, **more):
        progress("measuring", 3, 3)
        return ran(TOY, ToyConfig(), folder=tmp_path / "run", progress=progress)

    monkeypatch.setattr(engine, "run", run)
    fs.audit(out=tmp_path, progress=progress)
    assert "3/3" in terminal.getvalue()
    terminal.truncate(0)
    fs.reproduce("track_t", progress=progress)
    assert "3/3" in terminal.getvalue()
    terminal.truncate(0)
    fs.audit(out=tmp_path, progress=False)
    fs.reproduce("track_t", progress=False)
    assert "3/3" not in terminal.getvalue()
