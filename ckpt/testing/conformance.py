"""The whole contract of `ckpt.contract.backend` as one pytest class; one that passes can be trusted."""

from __future__ import annotations

from ckpt.testing.life import LifeConformance
from ckpt.testing.owners import OwnerConformance
from ckpt.testing.plain import PlainConformance
from ckpt.testing.versions import VersionConformance


class BackendConformance(PlainConformance, VersionConformance, OwnerConformance, LifeConformance):
    """Every sentence of the contract, on the store that the subclass opens.

    Subclass it in a test module, set `scheme`, and say how to open the store in `self.directory`:

    ```python
    class TestMine(BackendConformance):
        scheme = "mine"

        def open_backend(self):
            return ckpt.open_backend(f"mine://{self.directory}")
    ```

    Where time can be set, open the store with `clock=self.clock` and override `let_time_pass` with
    `self.clock.advance`. Where a store outlives its handle but not the process, set `reopens = True`.
    """
