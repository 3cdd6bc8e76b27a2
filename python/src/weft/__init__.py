"""weft from Python: simulations and comparisons as pandas frames.

Each function runs the program `weft` that the wheel brings, with one of its commands. Keyword
arguments are options of that command: `raid_devices=6` is `--raid-devices=6`, `as_="md"` is
`--as=md`, `set={"stripe_size": "64K"}` is `--set=stripe_size=64K`, `quick=True` is `--quick`, and a
list is an option that is given several times. The page docs/python.md of the project has examples.
"""

from weft.commands import compare, document, replay, reproduce, sim
from weft.local import Local
from weft.run import Refused, UsageError, WeftError, WeftWarning, binary, run
from weft.sweeps import Sweep, sweep

__all__ = [
    "Local",
    "Refused",
    "Sweep",
    "UsageError",
    "WeftError",
    "WeftWarning",
    "binary",
    "compare",
    "document",
    "replay",
    "reproduce",
    "run",
    "sim",
    "sweep",
]
