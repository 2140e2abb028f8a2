"""`penstock perf`: how fast a cluster is, in the words of Kafka's own performance tools."""

from __future__ import annotations

from penstock.cli.commands import Commands
from penstock.cli.perf_calibrate import EXAMPLES as CALIBRATE_EXAMPLES
from penstock.cli.perf_calibrate import calibrate
from penstock.cli.perf_codecs import EXAMPLES as CODECS_EXAMPLES
from penstock.cli.perf_codecs import codecs
from penstock.cli.perf_consume import EXAMPLES as CONSUME_EXAMPLES
from penstock.cli.perf_consume import consume
from penstock.cli.perf_latency import EXAMPLES as LATENCY_EXAMPLES
from penstock.cli.perf_latency import latency
from penstock.cli.perf_produce import EXAMPLES as PRODUCE_EXAMPLES
from penstock.cli.perf_produce import produce

app = Commands(
    help="Measure throughput and latency, and compare codecs on your data. "
    "Options and output are those of Kafka's performance tools."
)
app.command(epilog=PRODUCE_EXAMPLES)(produce)
app.command(epilog=CONSUME_EXAMPLES)(consume)
app.command(epilog=LATENCY_EXAMPLES)(latency)
app.command(epilog=CODECS_EXAMPLES)(codecs)
app.command(epilog=CALIBRATE_EXAMPLES)(calibrate)
