"""The command line: `penstock topics`, `configs`, `groups`, `cluster`, `produce`, `consume`, `log`, `server` and `up`.

How it is made
--------------
The commands that talk to a cluster know only a bootstrap address and speak Kafka's protocol through confluent-kafka,
so they work with Apache Kafka as they do with Penstock; the same tests run against both. `server`, `up` and `log` are
the engine itself, and import it only when they are called.

- `app.py` puts the commands together; `main(arguments)` runs one and returns its exit code.
- `commands.py` is the parser: typer's, with our help (`help_text.py`) and suggestions (`suggestions.py`).
  `server_options.py` declares the options of `server` and `up` once, and parses ordinary lines without typer.
- `cluster_choice.py` decides which cluster a command talks to, and `profiles.py` keeps named ones.
- `connection.py` talks to it: client settings, waiting for answers, and what the client library's errors mean.
  `diagnosis.py` finds out why a cluster cannot be reached, and says what to do. `protocol.py` sends the few requests
  that the client library does not have.
- one module per command (`topics.py`, `configs.py`, `cluster.py`, `produce.py`, `consume.py`, `log.py`), which read
  top-down; `groups.py` has more behind it: `groups_describe.py` and `groups_reset.py` are commands, `group_views.py`,
  `group_lag.py` and `group_history.py` ask the cluster what `penstock.lag` judges.
- `formats.py` (how records are read and shown), `impact.py` (what more partitions would do), `reset_plan.py` (where
  offsets go) and `durations.py` are pure.
- `output.py` writes: tables for people, plain columns for pipes, JSON for scripts. Results go to standard output,
  messages and errors to standard error, with `--json` as JSON too.

A command fails by raising `CliError`, which carries an exit code (`exit_codes.py`), what happened, and what to do next.
"""
