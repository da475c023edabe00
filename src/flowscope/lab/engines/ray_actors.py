"""The engine ``ray``: plain Ray actors as workers, one per replica of the model.

Not Ray Data: the unit is a named shard in the run folder, not a block of rows. An actor does what
``flowscope work`` does. Nothing is started on a cluster but these actors; without an address a Ray
is started on this machine and stopped at the end.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flowscope.errors import WorkerError
from flowscope.lab.engines.beside import Helpers, say, threads_each
from flowscope.lab.engines.choice import EngineChoice
from flowscope.lab.engines.processes import workers_of

__all__ = ["refuse_unreachable", "started"]

_REACH = 15.0
"""Seconds after which a cluster counts as out of reach; with all else it is less than 30."""

_CALL = """
import sys, ray
try:
    ray.init(address=sys.argv[1], log_to_driver=False, configure_logging=False)
except BaseException as error:
    print("refused:", next((line for line in str(error).splitlines() if line.strip()), repr(error)))
    sys.stdout.flush()
    import os
    os._exit(1)
"""
_LAST = 300


@contextmanager
def started(choice: EngineChoice, run: Path, device: str) -> Iterator[Helpers]:
    """Start one actor for each worker beside the driver, and end them when the driver ends.

    Raises
    ------
    WorkerError
        Ray is not installed, or the cluster cannot be joined within 15 seconds.
    """
    ray = _ray()
    own = _joined(ray, choice)
    try:
        gpus = device.startswith("cuda")
        count = _count(ray, choice, gpus)
        actors = [_actor(ray, choice, run, number, count, gpus) for number in range(2, count + 1)]
        look = _looker(ray, actors)
        yield Helpers(len(actors), look)
        look()
        _say_who_never_began(ray, actors)
    finally:
        if own:
            with contextlib.suppress(Exception):
                ray.shutdown()


def refuse_unreachable(choice: EngineChoice) -> None:
    """Refuse where Ray is not installed, or no cluster answers at the address.

    Another process calls the cluster, because Ray tries for minutes, writes raw lines, and may end
    the process that it is called from.

    Raises
    ------
    WorkerError
        Says which.
    """
    if choice.address:
        _give_token()
    ray = _ray()
    _reach(choice.address)
    if choice.address and not ray.is_initialized():
        _call(choice.address)


def _give_token() -> None:
    """Send a token that is named to a cluster that is named: Ray does so in the mode ``token``.

    The token in the user's home is not sent unasked: a cluster without tokens takes it, and then
    cannot speak to this process, so that no actor begins.
    """
    if os.environ.get("RAY_AUTH_TOKEN") or os.environ.get("RAY_AUTH_TOKEN_PATH"):
        os.environ.setdefault("RAY_AUTH_MODE", "token")


def _call(address: str) -> None:
    """Join a cluster and leave it, in another process."""
    try:
        done = subprocess.run(
            [sys.executable, "-c", _CALL, address],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_REACH,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise _unreachable(address, f"no answer in {_REACH:g} seconds") from None
    if done.returncode:
        lines = done.stdout.splitlines()
        said = [line.removeprefix("refused: ") for line in lines if line.startswith("refused: ")]
        ended = f"Ray ended with exit code {done.returncode}"
        raise _unreachable(address, said[-1] if said else ended)


def _ray() -> Any:
    try:
        import ray
    except ImportError:
        raise WorkerError(
            "The engine ray needs Ray, which is not installed: pip install 'flowscope[ray]'. The "
            "engine processes needs nothing more."
        ) from None
    return ray


def _joined(ray: Any, choice: EngineChoice) -> bool:
    """Join the cluster, within 15 seconds; whether there was no connection before."""
    if ray.is_initialized():
        return False
    address = choice.address
    runtime = {"working_dir": choice.working_dir} if choice.working_dir else {}

    def join() -> None:
        ray.init(
            address=address or "local",
            runtime_env=runtime or None,
            log_to_driver=False,
            include_dashboard=False if not address else None,
            configure_logging=True,
            logging_level="error",
        )

    if address:
        _within(_REACH, join, address)
        return True
    try:
        join()  # not in a thread: the processes of a Ray of our own end with the one that began it
    except Exception as error:  # of no kind: "The current node timed out during startup"
        raise _not_started(str(error)) from error
    return True


def _reach(address: str) -> None:
    """Knock at the port of a cluster before Ray tries for minutes."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not colon or not port.isdigit():
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_REACH / 3).close()
    except OSError as error:
        raise _unreachable(address, str(error)) from error


def _within(seconds: float, work: Callable[[], None], address: str) -> None:
    """Do some work, or give up; a connection that hangs cannot be interrupted in another way."""
    errors: list[BaseException] = []

    def tried() -> None:
        try:
            work()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=tried, daemon=True)
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        raise _unreachable(address, f"no answer in {seconds:g} seconds")
    if errors:
        raise _unreachable(address, str(errors[0])) from errors[0]


def _unreachable(address: str, why: str) -> WorkerError:
    return WorkerError(
        f"The Ray cluster at {address} could not be joined: {_first_line(why)}. Check RAY_ADDRESS, "
        "its token (RAY_AUTH_MODE=token for the one in ~/.ray, or RAY_AUTH_TOKEN) and that its Ray "
        "and Python have the versions of this machine."
    )


def _not_started(why: str) -> WorkerError:
    return WorkerError(
        f"A Ray on this machine could not be started: {_first_line(why)}. Run the command again "
        "when the machine is less busy, or take --engine processes, which needs no Ray."
    )


def _first_line(text: str) -> str:
    first = next((line for line in text.splitlines() if line.strip()), "no reason was given")
    return first[:_LAST].rstrip(". ")


def _count(ray: Any, choice: EngineChoice, gpus: bool) -> int:
    """Workers: as asked, or as the cluster has GPUs or cores; the driver is the first."""
    have = ray.cluster_resources()
    if choice.workers is None and not gpus:
        return max(int(have.get("CPU", 2)), 2)
    count = workers_of(choice, ["gpu"] * int(have.get("GPU", 0)) if gpus else [])
    if gpus:
        most = 1 + int(have.get("GPU", 0) / (choice.gpus_per_worker or 1))
        if count > most:
            say(
                f"{count} workers were asked for, and the GPUs of the cluster take {most - 1} "
                f"beside this one: {most} are used."
            )
        count = min(count, most)
    return count


def _actor(
    ray: Any, choice: EngineChoice, run: Path, number: int, count: int, gpus: bool
) -> _Helper:
    threads = threads_each(count)
    variables = {"OMP_NUM_THREADS": str(threads), "TOKENIZERS_PARALLELISM": "false"}
    made = ray.remote(_Worker).options(
        num_cpus=0 if choice.address == "" else 1,
        num_gpus=(choice.gpus_per_worker or 1) if gpus else 0,
        runtime_env={"env_vars": variables},
    )
    actor = made.remote()
    begun = actor.begin.remote()
    answer = actor.work.remote(str(run), number, count, "cuda:0" if gpus else None, threads)
    return _Helper(number, actor, begun, answer)


@dataclass(frozen=True)
class _Helper:
    """An actor as the driver knows it: its number, and what it will answer."""

    number: int
    actor: Any
    begun: Any
    answer: Any


class _Worker:
    """An actor: one process with one replica of the model."""

    def begin(self) -> bool:
        """Answer that the cluster has room for this actor."""
        return True

    def work(
        self, run: str, part: int, parts: int, device: str | None, threads: int
    ) -> str:  # runs in the actor
        """Work on a run; what went wrong in a sentence, or nothing."""
        import torch

        from flowscope.errors import FlowscopeError
        from flowscope.lab.engines.choice import Share
        from flowscope.lab.engines.working import work

        torch.set_num_threads(threads)
        if not Path(run).is_dir():
            return (
                f"the run folder {run} is not there on {socket.gethostname()}: it must be on a "
                "file system that all workers share."
            )
        try:
            work(Path(run), Share(part, parts), device=device)
        except FlowscopeError as error:
            return str(error)
        return ""


def _looker(ray: Any, actors: list[_Helper]) -> Callable[[], None]:
    told: set[int] = set()

    def look() -> None:
        for helper in actors:
            if helper.number in told or not _is_there(ray, helper.answer):
                continue
            told.add(helper.number)
            try:
                reason = ray.get(helper.answer)
            except Exception as error:  # Ray's own kinds: the actor died, or could not start
                reason = f"{str(error).strip().splitlines()[0][:_LAST].rstrip('. ')}."
            if reason:
                say(f"Worker {helper.number} has ended: {reason} The others go on.")

    return look


def _is_there(ray: Any, answer: Any) -> bool:
    """Whether an actor has answered, or never will."""
    return bool(ray.wait([answer], timeout=0)[0])


def _say_who_never_began(ray: Any, actors: list[_Helper]) -> None:
    late = [str(helper.number) for helper in actors if not _is_there(ray, helper.begun)]
    if late:
        say(
            f"Workers {', '.join(late)} had not begun when all shards were made: the cluster had "
            "no core or GPU free for them, or the run was shorter than a start."
        )
