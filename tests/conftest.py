"""Fixtures for every folder of tests."""

from support.spark import spark

__all__ = ["spark"]
