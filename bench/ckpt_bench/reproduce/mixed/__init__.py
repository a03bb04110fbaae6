"""Figures of mixed-2017: planners on drifting streams, each on a course of its own, and in a simulator."""
