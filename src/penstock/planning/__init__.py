"""Capacity, partitions, cost and settings: the rules of five documents as data, and pure functions that apply them.

    catalogue   `Value`: a number that a user may replace. `Rule`: a formula or table. `Catalogue`: the values in force
    values      all values: thresholds, factors and prices, each with its unit and source
    rules       `RULES`: all rules, each with its source, inputs, formula, text and where its document slips
    partitions, storage, load, brokers, cost, durability, tables, scaling, tradeoffs
                the rules and the functions that apply them, by subject
    spec        reads a whole design from TOML and refuses what it does not understand
    design      plans that design: brokers, disks, network, cost, the binding constraint, alternatives, sensitivity
    report      a plan as a self-contained HTML page
    presets     settings of topics and clients for a purpose
    host        judges the facts of a machine that is to run a broker

Every function takes plain numbers whose names carry their unit, takes thresholds and prices from a `Catalogue`, and
returns an `Answer`: the figures, the reasons in order, notes, and the names of the rules used. An input that makes no
sense raises `PlanError` with a sentence for the user. Nothing here reads a file, a clock or a socket; the commands of
`penstock.cli` do that. `docs/reference/planning.md` is generated from `VALUES` and `RULES`.

Units are decimal, as in the documents: 1 KB = 1,000 bytes, 1 MB/s = 1,000,000 bytes per second.
"""
