"""Which engine, how many workers, how many GPUs; and what is refused in a sentence."""

import os
import socket
import sys
import time

import pytest
from typer.testing import CliRunner

from flowscope.cli import app
from flowscope.errors import InvalidInputError, WorkerError
from flowscope.lab.engines import processes, ray_actors
from flowscope.lab.engines.choice import EngineChoice
from flowscope.lab.engines.driving import refuse_alone, refuse_objects
from flowscope.lab.engines.sentence import work_sentence
from flowscope.lab.registry import instrument


def test_more_than_one_worker_means_processes():
    assert EngineChoice.of(None, "3", None).name == "processes"
    assert EngineChoice.of(None, None, None).name == "local"
    assert EngineChoice.of(None, "1", None).name == "local"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (("rya", None, None), "No engine is named 'rya'. Did you mean 'ray'"),
        (("local", "2", None), "one process; got --workers 2. Take --engine processes"),
        (("processes", "0", None), "1 to 4096 processes"),
        (("processes", "two", None), "--workers takes a whole number; got 'two'"),
        (("ray", None, "0"), "a number above 0"),
        (("ray", None, "nan"), "a number above 0"),
        (("ray", None, "half"), "--gpus-per-worker takes a number; got 'half'"),
    ],
)
def test_bad_options_are_a_sentence(given, words):
    with pytest.raises(InvalidInputError) as error:
        EngineChoice.of(*given)
    assert words in str(error.value)


def test_objects_of_this_process_cannot_be_measured_by_others():
    with pytest.raises(InvalidInputError, match=r"each must load .* got objects \(source, texts\)"):
        refuse_objects(EngineChoice(name="ray"), {"source": 1, "texts": 2})
    refuse_objects(EngineChoice(), {"source": 1})


def test_an_instrument_of_times_is_measured_by_one_process():
    with pytest.raises(InvalidInputError, match="decode is measured by one process: it measures"):
        refuse_alone(instrument("decode"))
    refuse_alone(instrument("audit"))


# ---- GPUs


def _workers(gpus, **asked):
    choice = EngineChoice(name="processes", **asked)
    workers = processes._fitting(processes.workers_of(choice, gpus), choice, gpus)
    return [processes._gpu(number, choice, gpus) for number in range(1, workers + 1)]


def test_each_worker_has_a_gpu_of_its_own():
    assert _workers(["4", "5", "7"]) == ["4", "5", "7"]


def test_two_workers_share_a_gpu_by_halves():
    assert _workers(["0", "1"], workers=4, gpus_per_worker=0.5) == ["0", "0", "1", "1"]


def test_workers_for_whom_no_gpu_is_left_are_left_out_and_this_is_said():
    with pytest.warns(UserWarning, match="5 workers were asked for and 2 GPUs take 2: 2 are used"):
        assert _workers(["0", "1"], workers=5) == ["0", "1"]


def test_without_gpus_there_are_two_workers():
    assert _workers([]) == ["", ""]


def test_a_worker_on_a_gpu_sees_that_gpu_alone():
    assert processes._environment(2, "3")["CUDA_VISIBLE_DEVICES"] == "3"
    assert "CUDA_VISIBLE_DEVICES" not in processes._environment(2, "").keys() - set(
        processes.os.environ
    )


# ---- Ray


def test_without_ray_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(WorkerError, match=r"pip install 'flowscope\[ray\]'"):
        ray_actors._ray()


def test_the_command_ends_with_one_sentence_where_ray_is_not_installed(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    done = CliRunner().invoke(app, ["audit", "--engine", "ray"], env={"COLUMNS": "200"})
    assert done.exit_code == 1
    assert "needs Ray, which is not installed: pip install 'flowscope[ray]'" in done.stderr


def test_a_cluster_that_does_not_answer_fails_at_once():
    with socket.socket() as closed:  # a port that nobody listens to
        closed.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{closed.getsockname()[1]}"
        for written in (address, f"ray://{address}"):
            with pytest.raises(WorkerError, match=r"could not be joined.*RAY_ADDRESS"):
                ray_actors._reach(written)


def test_a_connection_that_hangs_is_given_up():
    with pytest.raises(WorkerError, match=r"no answer in 0\.05 seconds"):
        ray_actors._within(0.05, lambda: time.sleep(5), "head:6379")


def test_a_cluster_that_says_nothing_is_given_up_without_raw_lines(monkeypatch, capfd):
    """Another process calls it, so that nothing of Ray reaches the terminal."""
    pytest.importorskip("ray")
    monkeypatch.setattr(ray_actors, "_REACH", 2.0)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(WorkerError, match=r"could not be joined: no answer in 2 seconds"):
            ray_actors.refuse_unreachable(EngineChoice(name="ray", address=address))
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (
            "print('refused: \\'Versions differ.\\''); exit(1)",
            r"joined: 'Versions differ\.'\. Check",
        ),
        ("import os; os.abort()", r"joined: Ray ended with exit code -6\. Check RAY_ADDRESS"),
    ],
)
def test_what_another_process_hears_of_a_cluster_is_passed_on(answer, words, monkeypatch):
    monkeypatch.setattr(ray_actors, "_CALL", answer)
    with pytest.raises(WorkerError, match=words):
        ray_actors._call("head:6379")


def test_a_ray_of_this_machine_that_cannot_start_is_a_sentence(monkeypatch, tmp_path):
    class Ray:
        def is_initialized(self):
            return False

        def init(self, **settings):
            raise Exception("The current node timed out during startup.\nMore.")

    monkeypatch.setattr(ray_actors, "_ray", Ray)
    words = r"on this machine could not be started: The current node timed out during startup\. Run"
    choice = EngineChoice(name="ray", workers=2)
    with (
        pytest.raises(WorkerError, match=words),
        ray_actors.started(choice, tmp_path, "cpu"),
    ):
        pass


def test_a_token_that_is_named_is_sent_unless_the_mode_is_set(monkeypatch):
    for name in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH", "RAY_AUTH_MODE"):
        monkeypatch.setenv(name, "")  # so that it is restored
        monkeypatch.delenv(name)
    ray_actors._give_token()
    assert "RAY_AUTH_MODE" not in os.environ
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    monkeypatch.setenv("RAY_AUTH_TOKEN", "0" * 32)
    ray_actors._give_token()
    assert os.environ["RAY_AUTH_MODE"] == "disabled"
    monkeypatch.delenv("RAY_AUTH_MODE")
    ray_actors._give_token()
    assert os.environ["RAY_AUTH_MODE"] == "token"


def test_what_ray_says_is_passed_on():
    def refuse():
        raise ConnectionError("Ray version mismatch\nand more")

    with pytest.raises(WorkerError, match="head:6379 could not be joined: Ray version mismatch"):
        ray_actors._within(5, refuse, "head:6379")


# ---- what the summary says


def test_the_summary_says_what_one_process_does_alone():
    work = {
        "engine": "ray", "workers": 3, "shards": 8, "made_twice": [], "made_by": {"a": 5, "b": 3},
        "serial_share": 0.25,
    }  # fmt: skip
    assert work_sentence(work) == (
        "work: ray, 3 workers; 8 shards, made by 2 processes. 25% of the work is done by one "
        "process alone. More workers make it at most 4.0 times faster."
    )
    assert "1 were made twice." in work_sentence({**work, "made_twice": ["x"]})
    assert work_sentence({}) == ""
