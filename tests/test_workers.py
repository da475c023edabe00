"""Workers: order, errors, and that nobody works on after an error."""

import time
from threading import get_ident

import pytest
import torch

from flowscope.workers import Workers, one_thread


def test_results_come_in_the_order_of_the_items():
    def work(_, item):
        time.sleep(0.01 * (item % 3))
        return item**2

    assert Workers(3).each(work, list(range(12))) == [k**2 for k in range(12)]


def test_each_worker_is_one_thread_with_its_own_number():
    def work(worker, _):
        time.sleep(0.01)
        return worker, get_ident()

    seen = set(Workers(3).each(work, list(range(30))))
    assert len({worker for worker, _ in seen}) == len({thread for _, thread in seen}) == len(seen)


def test_a_single_worker_is_the_caller():
    assert Workers(1).each(lambda *_: get_ident(), [0, 1]) == [get_ident()] * 2


def test_no_items_give_no_results():
    assert Workers(2).each(lambda *_: 1, []) == []


def test_an_error_is_raised_when_all_have_stopped():
    finished = []

    def work(_, item):
        if item == 0:
            raise ValueError("the first item is broken")
        time.sleep(0.2)
        finished.append(item)

    with pytest.raises(ValueError, match="the first item"):
        Workers(2).each(work, [0, 1])
    assert finished == [1]


def test_one_thread_is_given_back_also_after_a_failure():
    before, inside = torch.get_num_threads(), []

    def failing():
        with one_thread():
            inside.append(torch.get_num_threads())
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        failing()
    assert (inside, torch.get_num_threads()) == ([1], before)
