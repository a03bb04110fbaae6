"""The figures of mixed-2017 about plans: planners on drifting streams, each on a course of its own."""
