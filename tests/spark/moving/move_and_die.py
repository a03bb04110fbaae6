"""A move that is killed: while it copies (`first`), or when all is copied and nothing is switched (`last`).

`python move_and_die.py CHECKPOINT ADDRESS first|last JAVA_OPTIONS`
"""

from __future__ import annotations

import os
import signal
import sys

from ckpt.spark import Keeper, Move
from ckpt.spark.moving import MoveProgress, moving_session


def main(checkpoint: str, address: str, moment: str, java_options: str) -> None:
    settings = {"spark.driver.memory": "1g", "spark.driver.extraJavaOptions": java_options}
    with moving_session(address, settings) as spark:
        move = Move(spark, checkpoint, Keeper.CKPT)

        def die(now: MoveProgress) -> None:
            if moment == "first" or now.stores == move.plan.total_stores:
                os.killpg(0, signal.SIGKILL)

        move.run(die)


if __name__ == "__main__":
    main(*sys.argv[1:])
