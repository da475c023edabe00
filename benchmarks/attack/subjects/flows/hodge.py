"""What the functions of ``flowscope.flows.hodge`` are given."""

from benchmarks.attack.numbers import Draw
from benchmarks.attack.subject import Arguments, Seeded, Subject
from benchmarks.attack.subjects.flows.shared import DRAWS, cloud, largest
from flowscope.flows import hodge

__all__ = ["EXCEPTIONS", "SUBJECTS"]


def _grid(draw: Draw) -> Arguments:
    return {
        "density": draw.nonnegative(4, 4),
        "velocity": draw.array(4, 4, 2),
        "spacing": 0.5,
        "diffusion": 1.0,
    }


SUBJECTS = {
    "rotation": Subject(
        function=hodge.rotation,
        arguments=lambda draw: {
            **cloud(draw, 300),
            "velocities": draw.array(300, 2),
            "diffusion": 1.0,
            "generator": Seeded(),
        },
        share=0.1,
        unequal=DRAWS,
        absent={".": "a rotation that abstains, with its reason"},
    ),
    "grid_rotation": Subject(
        function=hodge.grid_rotation,
        arguments=_grid,
        numpy=True,
        share=0.2,
        unequal="asks for float64",
        absent={".": "a rotation that abstains, with its reason"},
    ),
    "bca_interval": Subject(
        function=hodge.bca_interval,
        arguments=lambda draw: {
            "point": 0.0,
            "draws": draw.array(24),
            "jackknife": draw.array(6),
        },
        unit=largest("draws"),
    ),
    "gradient_null": Subject(
        function=hodge.gradient_null,
        arguments=lambda draw: {
            **cloud(draw, 300),
            "velocities": draw.array(300, 2),
            "diffusion": 1.0,
            "generator": Seeded(),
        },
        share=0.1,
        unequal=DRAWS,
        absent={".": "a rotation that abstains, with its reason"},
    ),
    "planted_rotation": Subject(
        function=lambda points, **options: hodge.planted_rotation(points, -points, **options),
        arguments=lambda draw: {
            **cloud(draw, 300),
            "share": 0.3,
            "diffusion": 1.0,
            "generator": Seeded(),
        },
        share=0.1,
        unequal=DRAWS,
        absent={".": "a rotation that abstains, with its reason"},
    ),
    "rotation_reading": Subject(
        function=hodge.rotation_reading,
        arguments=lambda draw: {
            **cloud(draw, 300),
            "velocities": draw.array(300, 2),
            "groups": draw.groups(300, 60),
            "seed": 0,
        },
        share=0.1,
        unequal=DRAWS,
        absent={".": "a reading that abstains, with its reason"},
    ),
}
EXCEPTIONS = {
    "restored_readings": "reads what stored_readings has written",
}
