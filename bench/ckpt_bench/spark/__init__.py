"""The state-store provider beside Spark's own ones: `ckpt bench spark`.

Providers take turns batch by batch, so whatever else the machine does hits all of them alike. Spark runs in
processes of its own (`work`), which `parts` starts, kills and asks; nothing here imports it before.
"""
