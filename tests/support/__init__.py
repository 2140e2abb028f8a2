"""What tests and benchmarks share: other people's software that Penstock is compared with.

Nothing here imports pytest, so that the benchmarks can use it as well: a test's fixture asks `available()` and skips
with the reason it gets, a benchmark prints the reason and runs the rest.
"""
