"""Where the time of ``flowscope image`` goes when it is given no arguments.

    python -m benchmarks.image_time

The result, with the peak of resident memory, is kept in ``results/image_time.json``.
"""

from benchmarks.sync_time import timed

if __name__ == "__main__":
    timed("image", ("images", "steps", "doubling"))
