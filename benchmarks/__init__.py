"""Benchmarks: Holdfast beside the ways others take checkpoints, on the same machine and tree, in the same run."""
