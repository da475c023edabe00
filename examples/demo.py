"""The demo: audit the bundled language model on its packaged prompts and write a report."""

import subprocess
import sys


def main() -> int:
    """Run ``flowscope audit``, as a user would type it."""
    print("$ flowscope audit", flush=True)
    return subprocess.run([sys.executable, "-m", "flowscope.cli", "audit"], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
