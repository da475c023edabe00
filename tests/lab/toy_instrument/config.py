"""Settings of the toy."""

from flowscope.lab.config import Config, setting, shared_setting


class ToyConfig(Config):
    """Throw a coin in several rounds and judge whether it is fair."""

    heads: float = setting(0.5, "Probability of heads", option=True, ge=0, le=1)
    rounds: int = setting(4, "Rounds of throws", option=True, ge=1)
    throws: int = setting(1000, "Throws in a round", option=True, ge=10)
    seed: int = setting(0, "Seed of the throws", option=True)
    out: str = shared_setting("out")
