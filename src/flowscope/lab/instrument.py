"""An instrument as data: what it takes, what it measures, what it claims. The engine does the rest.

``measure``, ``judge``, ``prepare`` and the like are *references*, ``"module.name"`` below the
package that declares them (``home=__name__``). The engine resolves a reference when it is needed,
so that importing an instrument loads neither torch nor mathematics.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any

from flowscope.lab.claim import Claim, Table

if TYPE_CHECKING:
    from flowscope.lab.config import Config
    from flowscope.lab.study import Study

__all__ = ["Argument", "Instrument", "Stage", "resolved_reference"]


def resolved_reference(home: str, reference: str) -> Any:
    """Object that ``"module.name"`` names below the package ``home``.

    Raises
    ------
    ImportError
        There is no such module or no such name in it.
    """
    module, _, name = reference.rpartition(".")
    place = import_module(f"{home}.{module}" if module else home)
    try:
        return getattr(place, name)
    except AttributeError:
        raise ImportError(f"{place.__name__} has no {name!r}, which {home} refers to.") from None


@dataclass(frozen=True, kw_only=True)
class Argument:
    """An object that ``fs.INSTRUMENT(...)`` takes and a command line cannot.

    Attributes
    ----------
    name, help
        Its name and what it is, for the docstring.
    annotation
        Its type as written in the generated stub.
    default
        Value when the caller gives nothing.
    positional
        Whether it may be given by position.
    setting
        Name of the setting that records it when it is a string or a path; empty if none does.
    """

    name: str
    help: str
    annotation: str = "Any"
    default: Any = None
    positional: bool = False
    setting: str = ""


@dataclass(frozen=True, kw_only=True)
class Stage:
    """One diagnostic of an instrument.

    Attributes
    ----------
    name, home
        Its name, and the package below which its references lie.
    measure
        Reference to a function of the bench that may run the model and leaves tables, notes and
        shards.
    judge
        Reference to a function of the `flowscope.lab.Records` that returns the verdicts on the
        claims. It sees no model, so that a finished run can be judged again. A stage without a
        judge decides its claims with ``bench.decide`` while it measures.
    claims
        What is decided. If the stage abstains, every claim abstains for the same reason.
    needs
        Claims of earlier stages that must hold; otherwise the stage abstains and says so.
    uses
        Names of earlier stages whose values it reads with ``bench.shared`` or ``bench.once``, or
        whose shards it needs. A run of this stage alone runs them too.
    tables
        What it writes.
    settings
        Settings that decide the content of its shards. A setting that is not named here can change
        without making a finished shard invalid.
    probes
        Reference to a function of the bench that returns, by name, the probes of the stage for the
        pass over all inputs that the stages of a run share (see `Bench.probes`). Two stages that
        need the same probe return it under the same name.
    """

    name: str
    home: str
    measure: str
    judge: str = ""
    claims: tuple[Claim, ...] = ()
    needs: tuple[Claim, ...] = ()
    uses: tuple[str, ...] = ()
    tables: Mapping[str, Table] = field(default_factory=dict)
    settings: tuple[str, ...] = ()
    probes: str = ""

    def resolve(self, reference: str) -> Any:
        """Object of a reference."""
        return resolved_reference(self.home, reference)


@dataclass(frozen=True, kw_only=True)
class Instrument:
    """A command, a function of ``flowscope``, a page and a kind of run folder.

    Attributes
    ----------
    name, home
        Name of the command and of the function; the package that declares the instrument.
    config
        Settings, as a pydantic model whose docstring is the help of the command.
    prepare
        Reference to ``(config, given) -> (config, subject)``: loads what is measured and refuses
        what cannot be. ``given`` maps names of ``arguments`` to objects.
    stages
        The diagnostics, in the order in which they run.
    arguments
        Objects that the function takes beside its settings.
    result, page, headline
        References to the class of its results, to the `flowscope.report.Page` that shows a run, and
        to the function that prints the result's document in a terminal.
    findings
        Reference to a function of the `flowscope.lab.Records` that returns the findings of a run, a
        list of `flowscope.lab.Finding`; empty if there are none.
    compare
        Reference to a function of two runs that returns what changed; empty if there is none.
    main_table
        The table that a user compares by hand where ``compare`` is empty.
    arrays
        Arrays beside the tables that the page shows.
    studies
        References to the studies of this instrument.
    alone
        Why one process must measure it; empty where several may make its shards.
    """

    name: str
    home: str
    config: type[Config]
    prepare: str
    stages: tuple[Stage, ...]
    result: str
    page: str
    headline: str
    main_table: str
    arguments: tuple[Argument, ...] = ()
    findings: str = ""
    compare: str = ""
    arrays: tuple[str, ...] = ()
    studies: tuple[str, ...] = ()
    alone: str = ""

    def resolve(self, reference: str) -> Any:
        """Object of a reference."""
        return resolved_reference(self.home, reference)

    @cached_property
    def claims(self) -> tuple[Claim, ...]:
        """Claims of all stages."""
        return tuple(claim for stage in self.stages for claim in stage.claims)

    @cached_property
    def claims_with_studies(self) -> tuple[Claim, ...]:
        """Claims of all stages, then those of the stages of its studies."""
        studies = [self.study(reference) for reference in self.studies]
        stages = [stage for study in studies for stage in study.stages]
        return (*self.claims, *(claim for stage in stages for claim in stage.claims))

    def title(self, name: str) -> str:
        """Title of the claim with that short name; empty if there is no such claim."""
        claims = self.claims_with_studies
        return next((claim.title for claim in claims if claim.name == name), "")

    @cached_property
    def gates(self) -> Mapping[str, tuple[str, str]]:
        """Short names of the claims that are gates, and what each is called open and closed."""
        from flowscope.records.verdict_text import GATE_WORDS

        return {claim.name: claim.gate_words or GATE_WORDS for claim in self.claims if claim.gate}

    @cached_property
    def tables(self) -> Mapping[str, Table]:
        """Tables of all stages."""
        return {name: table for stage in self.stages for name, table in stage.tables.items()}

    def study(self, reference: str) -> Study:
        """One of its studies."""
        study: Study = self.resolve(reference)
        return study
