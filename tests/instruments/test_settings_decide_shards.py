"""A shard is taken up again when the settings that its stage names are the same.

So every setting that decides the content of a shard must be named, or be in the name of the shard,
or in what the subject says of itself (its marks). Two tests ask for that: one records which
settings are read before a shard is written, the other changes every setting and compares shards.
"""

import dataclasses
from typing import Literal, get_args, get_origin

import pytest
from diffusers import DDPMScheduler
from tests import networks
from tests.instruments.decode.folders import denoiser_folder
from tests.models.synthetic_pipelines import dit, pixel_folder, pooled

from flowscope.lab import engine
from flowscope.lab.bench import Bench
from flowscope.lab.registry import instrument, instrument_names
from flowscope.records import Run

NAMES = instrument_names()
TEXTS = [
    "it was the best of times , it was the best of it",
    "the best of times it was , of the best times",
    "of it was the times the best , the times of it",
]
READING = {"prompts": 3, "tokens": 6, "batch": 2, "control_prompts": 2, "resamples": 5}
BASE = {
    "audit": {**READING, "controls": False, "flow_positions": 0, "evi_positions": 0},
    "heads": {**READING, "controls": False, "dials": False},
    "field": {
        **READING, "controls": True, "twins": 1, "draws": 2, "jacobian_tokens": 3, "products": 2,
        "write_scales": (0.5,), "residual_scales": (0.97,),
    },
    "latent": {**READING, "controls": True, "twins": 1, "halves": 8, "points": 200},
    "sync": {
        "pairs": 8, "steps": 6, "couplings": (0.2, 1.0), "interventions": 6, "resamples": 20,
        "draws": 39, "kept": 3, "band": 1, "batch": 5, "twins": 2,
    },
    "image": {
        "images": 16, "steps": 5, "doubling": (2, 4), "lams": (0.0, 0.5, 1.0), "bins": 8,
        "family_images": 12, "rotation_times": 1, "rank": 2, "rotation_images": 10,
        "rotation_degree": 1, "information_images": 9, "uturn_images": 8, "uturn_times": 2,
        "resamples": 20, "draws": 39, "batch": 8,
    },
    "decode": {
        "task": "sudoku-4x4", "prompts": 3, "calibration": 2, "policy": ("threshold", "draft"),
        "windows": (2,), "alpha": 0.1, "delta": 0.5, "batch": 3, "resamples": 20, "maps": 1,
        "temperature": 0.5, "blanks": (4, 5), "order": "random"
    },
}  # fmt: skip

# Another value, where one more or half as much does not do.
OTHER = {
    "prompts": 2,
    "doubling": (2, 4, 8),
    "labels": (1,),
    "couplings": (0.2, 0.6),
    "lams": (0.0, 0.25, 1.0),
    "dtype": "float64",
    "sentence": "it was the best of times",
    "dial_layers": (1,),
    "dial_heads": (0,),
    "metric": (0.25,),
    "exact": (0.5,),
    "flux": (0.25,),
    "alpha": (0.5,),
    "temperatures": (1.3,),
    "key_norms": (0.7,),
    "squares": ((0.5, 0.5),),
    "write_scales": (0.25,),
    "residual_scales": (1.03,),
    "ranks": (4, 8),
    "refinements": (1, 3),
    "task": "sudoku-6x6",
    "blanks": (7, 9),
    "policy": ("factor",),
    "windows": (3,),
    "eos": 4,
    "mask": 30,
    "shift": True,
    "answer": 2,
}
# Settings that say what is measured: its weights, its texts and what reads its images are in the
# marks of the subject. The last two say where things are.
SUBJECT = {
    "model", "text", "tokenizer", "scheduler", "encoder", "reader", "revision", "trust_remote_code",
}  # fmt: skip
PLACE = {"device", "out", "calibrate"}
# Settings that are in the name of a shard or only choose which shards there are.
IN_THE_NAME = {
    ("decode", "calibration"): {"alpha", "controls", "frontier", "policy"},
    ("decode", "trial"): {"frontier", "policy"},
    ("latent", "particles"): {"controls", "twins"},
    ("sync", "commitment"): {"couplings", "labels"},
    ("sync", "internal gap"): {"couplings", "labels", "kept"},
    ("sync", "propagation"): {
        "couplings", "labels", "band", "propagation", "propagation_states", "propagation_steps",
    },
}  # fmt: skip


def _other(name, field, value):
    if name in OTHER and not (isinstance(value, float) and isinstance(OTHER[name], tuple)):
        return OTHER[name]
    if get_origin(field.annotation) is Literal:
        return next(choice for choice in get_args(field.annotation) if choice != value)
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    assert isinstance(value, float), name
    return value / 2


def _varied():
    for name in NAMES:
        for setting in instrument(name).config.model_fields:
            if setting not in SUBJECT | PLACE:
                yield pytest.param(name, setting, id=f"{name}-{setting}")


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """A small model for each instrument, in a folder."""
    language = tmp_path_factory.mktemp("language")
    networks.llama()[0].save_pretrained(language)
    pipeline = pixel_folder(tmp_path_factory.mktemp("pipeline"), names=["cat", "dog", "owl"])
    filler = denoiser_folder(tmp_path_factory.mktemp("filler"))
    folders = dict.fromkeys(("audit", "heads", "field", "latent"), language) | {"decode": filler}
    return {name: folders.get(name, pipeline) for name in NAMES}


@pytest.fixture
def measure(models, tokenizer, tmp_path):
    """Run the stages of an instrument up to the last that makes shards; returns the run."""
    tokenizer.chat_template = "{{ messages[0]['content'] }} it"
    given = {
        "audit": {"tokenizer": tokenizer, "texts": TEXTS},
        "heads": {"tokenizer": tokenizer, "texts": TEXTS},
        "field": {"tokenizer": tokenizer, "texts": TEXTS},
        "latent": {"tokenizer": tokenizer, "texts": TEXTS},
        "sync": {"encoder": pooled},
        "image": {"reader": _dark_or_bright},
        "decode": {},
    }

    def run(name, folder, other=None, **changed):
        one = instrument(name)
        last = max(place for place, stage in enumerate(one.stages) if stage.settings)
        short = dataclasses.replace(one, stages=one.stages[: last + 1])
        settings = {"model": str(models[name]), **BASE[name], **changed}
        return engine.run(
            short,
            one.config.model_validate(settings),
            given={**given[name], **(other or {})},
            folder=folder,
        ).run

    return run


def _dark_or_bright(images):
    return (images.mean((1, 2, 3)) > 0).long()


def _shards(run):
    return {file.name: file.read_bytes() for file in (run.folder / "shards").iterdir()}


@pytest.fixture(scope="module")
def bases():
    return {}


@pytest.fixture
def base_shards(measure, bases, tmp_path):
    """Shards of the run whose settings are changed one by one."""

    def shards(name):
        if name not in bases:
            bases[name] = _shards(measure(name, tmp_path / "base"))
        return bases[name]

    return shards


@pytest.mark.parametrize(("name", "setting"), list(_varied()))
def test_a_shard_that_is_taken_up_under_another_setting_is_what_would_be_made(
    name, setting, base_shards, measure, tmp_path
):
    config = instrument(name).config
    before = config.model_validate(BASE[name])
    value = _other(setting, config.model_fields[setting], getattr(before, setting))
    assert value != getattr(before, setting)
    first = base_shards(name)
    second = _shards(measure(name, tmp_path / "changed", **{setting: value}))
    for file in first.keys() & second.keys():
        assert first[file] == second[file], f"{setting} decides {file} and is not named"


OTHER_SUBJECTS = {
    "texts": lambda: {"texts": TEXTS[::-1]},
    "language": lambda: {"source": networks.llama(layers=2)[0]},
    "denoiser": lambda: {
        "source": dit(layers=1),
        "scheduler": DDPMScheduler(),
        "classes": ("cat", "dog", "owl"),
    },
    "scheduler": lambda: {"scheduler": DDPMScheduler(beta_end=0.01)},
    "encoder": lambda: {"encoder": lambda images: 2 * pooled(images) + 1},
    "reader": lambda: {"reader": lambda images: 1 - _dark_or_bright(images)},
}


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("audit", "texts"),
        ("audit", "language"),
        ("heads", "texts"),
        ("heads", "language"),
        ("sync", "denoiser"),
        ("sync", "scheduler"),
        ("sync", "encoder"),
        ("image", "denoiser"),
        ("image", "scheduler"),
        ("image", "reader"),
    ],
)
def test_another_subject_takes_up_no_shard(name, part, base_shards, measure, tmp_path):
    changed = _shards(measure(name, tmp_path / "run", OTHER_SUBJECTS[part]()))
    assert changed
    assert not changed.keys() & base_shards(name).keys()


class _Recorder:
    """Which settings each stage reads before its last shard is written."""

    def __init__(self):
        self.stage, self.reads, self.decisive, self.shards = "", set(), {}, {}

    def begin(self, stage):
        self.stage, self.reads = stage, set()

    def wrote(self):
        self.decisive.setdefault(self.stage, set()).update(self.reads)
        self.shards[self.stage] = self.shards.get(self.stage, 0) + 1

    def recording(self, config):
        """The same settings, of a class that notes every access."""
        recorder, fields = self, set(type(config).model_fields)

        class Recording(type(config)):
            def __getattribute__(self, name):
                if name in fields:
                    recorder.reads.add(name)
                return super().__getattribute__(name)

        return Recording.model_construct(**dict(config))


@pytest.fixture
def recorder(monkeypatch):
    notes, write = _Recorder(), Run.write_shard

    class RecordingBench(Bench):
        def __init__(self, *given, **more):
            super().__init__(*given, **more)
            self.config = notes.recording(self.config)

        def begin(self, stage):
            super().begin(stage)
            notes.begin(stage.name)

    def writing(run, key, arrays, meta):
        notes.wrote()
        return write(run, key, arrays, meta)

    monkeypatch.setattr(engine, "Bench", RecordingBench)
    monkeypatch.setattr(Run, "write_shard", writing)
    return notes


@pytest.mark.parametrize("name", NAMES)
def test_every_setting_that_is_read_before_a_shard_is_written_is_named(
    name, recorder, measure, tmp_path
):
    measure(name, tmp_path / "run")
    stages = {stage.name: stage for stage in instrument(name).stages}
    # The first stage with probes makes the pass over all inputs for the others, which then write
    # their shards with their own settings.
    sharing = [stage for stage in stages.values() if stage.probes and stage.settings]
    later = {stage.name for stage in sharing[1:]}
    assert set(recorder.shards) == {n for n, s in stages.items() if s.settings} - later
    for stage, reads in recorder.decisive.items():
        in_the_name = IN_THE_NAME.get((name, stage), set())
        among = sharing if stages[stage] in sharing else [stages[stage]]
        assert reads - in_the_name <= {n for one in among for n in one.settings}, stage
        assert in_the_name <= reads, f"{stage}: an exception that is not needed"
