"""The engine ``ray``: plain Ray actors as workers, one per replica of the model.

Not Ray Data: the unit is a named shard in the run folder, not a block of rows. An actor does what
``flowscope work`` does. Nothing is started on a cluster but these actors; without an address a Ray
is started on this machine and stopped at the end.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from flowscope.errors import WorkerError
from flowscope.lab.engines.beside import Helpers, say, threads_each
from flowscope.lab.engines.choice import EngineChoice
from flowscope.lab.engines.processes import workers_of

__all__ = ["refuse_unreachable", "started"]

_REACH = 30.0
"""Seconds after which a cluster counts as out of reach."""
_LAST = 300


@contextmanager
def started(choice: EngineChoice, run: Path, device: str) -> Iterator[Helpers]:
    """Start one actor for each worker beside the driver, and end them when the driver ends.

    Raises
    ------
    WorkerError
        Ray is not installed, or the cluster cannot be reached within 30 seconds.
    """
    ray = _ray()
    own = _joined(ray, choice)
    try:
        gpus = device.startswith("cuda")
        count = _count(ray, choice, gpus)
        actors = [_actor(ray, choice, run, number, count, gpus) for number in range(2, count + 1)]
        yield Helpers(len(actors), _looker(ray, actors))
    finally:
        if own:
            with contextlib.suppress(Exception):
                ray.shutdown()


def refuse_unreachable(choice: EngineChoice) -> None:
    """Refuse where Ray is not installed, or nobody listens at the address.

    Raises
    ------
    WorkerError
        Says which.
    """
    _ray()
    _reach(choice.address)


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
    """Join the cluster, within 30 seconds; whether there was no connection before."""
    if ray.is_initialized():
        return False
    address = choice.address
    _reach(address)
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
    except (OSError, RuntimeError, ValueError) as error:
        raise _unreachable("", str(error)) from error
    return True


def _reach(address: str) -> None:
    """Knock at the port of a cluster before Ray tries for minutes."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not colon or not port.isdigit():
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_REACH / 2).close()
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
    where = f"The Ray cluster at {address}" if address else "A Ray on this machine"
    first = next((line for line in why.splitlines() if line.strip()), "no reason was given")
    return WorkerError(
        f"{where} could not be joined: {first[:_LAST]}. Check RAY_ADDRESS, its token "
        "(RAY_AUTH_TOKEN) and that its Ray and Python have the versions of this machine."
    )


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
) -> tuple[int, Any, Any]:
    threads = threads_each(count)
    variables = {"OMP_NUM_THREADS": str(threads), "TOKENIZERS_PARALLELISM": "false"}
    made = ray.remote(_Worker).options(
        num_cpus=0 if choice.address == "" else 1,
        num_gpus=(choice.gpus_per_worker or 1) if gpus else 0,
        runtime_env={"env_vars": variables},
    )
    actor = made.remote()
    answer = actor.work.remote(str(run), number, count, "cuda:0" if gpus else None, threads)
    return number, actor, answer


class _Worker:
    """An actor: one process with one replica of the model."""

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


def _looker(ray: Any, actors: list[tuple[int, Any, Any]]) -> Callable[[], None]:
    told: set[int] = set()

    def look() -> None:
        for number, _, answer in actors:
            if number in told:
                continue
            done, _ = ray.wait([answer], timeout=0)
            if not done:
                continue
            told.add(number)
            try:
                reason = ray.get(answer)
            except Exception as error:  # Ray's own kinds: the actor died, or could not start
                reason = str(error).strip().splitlines()[0][:_LAST]
            if reason:
                say(f"Worker {number} has ended: {reason} The others go on.")

    return look
