"""ftlb-2019: replicas of important keys, which balance load by switching roles and recover key by key."""
