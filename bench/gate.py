"""What the gate costs a one-message produce request, from received bytes to written answer.

    python -m bench.gate                      # the gate without policies, with an authorizer, with ACLs, with quotas
    python -m bench.gate --against ../other   # beside another checkout, in turns

One connection without a socket hands requests to a broker in this process, as in `bench.metrics_cost`. The best of many
short runs counts, because whatever else the machine does can only make a run slower.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, cast

from bench.acls import ten_thousand_acls
from bench.metrics_cost import REQUESTS, TOPIC, NoSocket, Silence, frame
from penstock.acls import acl_id
from penstock.broker.authorizer import AclAuthorizer
from penstock.broker.quotas.client_quotas import ClientQuotas
from penstock.broker.quotas.table import QuotaTable
from penstock.broker.server import Broker
from penstock.config import BrokerConfig
from penstock.config.access_table import STANDARD_AUTHORIZER
from penstock.metadata import ClientQuota, NewTopic
from penstock.runtime.eventlog import EventLog
from penstock.runtime.production import ProductionRuntime, run

ROUNDS = 20
TURNS = 4
PLAIN = "without policies"


class AllowAll:
    def allows(self, request: object, operation: object, kind: object, name: str) -> bool:
        return True

    has_acls = True

    def rule(self, request: object, operation: object, kind: object, name: str) -> str:
        return ""

    def allows_somewhere(self, request: object, operation: object, kind: object) -> bool:
        return True


class Unlimited:
    def enter(self, request: object) -> None:
        pass

    def charge(self, request: object, data_bytes: int) -> int:
        return 0

    def took(self, request: object, busy_ms: float) -> None:
        pass

    def fetch_bytes_max(self, request: object) -> int | None:
        return None

    def mutation_charge(self, request: object) -> None:
        return None


def with_acls() -> AclAuthorizer:
    """An authoriser with 10,000 ACLs, of which one allows this producer: literal and prefixed, of many principals."""
    authorizer = AclAuthorizer(BrokerConfig.resolve({"authorizer.class.name": STANDARD_AUTHORIZER}))
    authorizer.decisions.load((acl_id(acl), acl) for acl in ten_thousand_acls(TOPIC.decode()))
    return authorizer


def generous(runtime: ProductionRuntime) -> ClientQuotas:
    """Quotas of every client id that nobody exceeds."""
    values = {"producer_byte_rate": 1e15, "request_percentage": 1e9}
    quotas = ClientQuotas(runtime.now_ms)
    quotas.use(QuotaTable([ClientQuota((("client-id", None),), values)]))
    return quotas


async def measure(runtime: ProductionRuntime) -> dict[str, float]:
    config = BrokerConfig.resolve({"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": runtime.disk.root})
    broker = Broker(runtime, config, cast(EventLog, Silence()))
    await broker.start()
    await broker.quorum.submit(lambda controller: controller.decide_create_topics([NewTopic(TOPIC.decode(), 1, 1)]))
    runtime.settle()
    broker.service.direct_socket = lambda transport: None
    connection = broker.service.connection()
    connection.connection_made(NoSocket())  # type: ignore[arg-type]
    request = frame()

    def run_once() -> float:
        broker.service.turns.until_ms = float("inf")  # the loop does not run meanwhile: nobody else waits
        began = time.perf_counter()
        for _ in range(REQUESTS):
            connection.get_buffer(-1)[: len(request)] = request
            connection.buffer_updated(len(request))
        return (time.perf_counter() - began) / REQUESTS * 1e6

    forms: dict[str, dict[str, Any]] = {PLAIN: {}}
    if hasattr(broker, "gate"):
        forms |= {
            "with an authorizer": {"authorizer": AllowAll()},
            "with 10,000 ACLs": {"authorizer": with_acls()},
            "with quotas of nothing": {"quotas": Unlimited()},
            "with client quotas": {"quotas": generous(runtime)},
        }
    best = dict.fromkeys(forms, float("inf"))
    for _ in range(ROUNDS):
        for form, policies in forms.items():
            if hasattr(broker, "gate"):
                broker.gate.configure(**policies)
            best[form] = min(best[form], run_once())
    await broker.stop()
    return best


def here() -> dict[str, float]:
    with tempfile.TemporaryDirectory() as directory:
        return run(measure, root=directory, events=cast(EventLog, Silence()))


def elsewhere(checkout: Path) -> float:
    """The same without policies, by the code of another checkout."""
    own = Path(__file__).resolve().parent.parent
    environment = os.environ | {"PYTHONPATH": f"{checkout.resolve() / 'src'}{os.pathsep}{own}"}
    command = [sys.executable, "-m", "bench.gate", "--only-plain"]
    return float(subprocess.run(command, env=environment, capture_output=True, text=True, check=True, cwd="/").stdout)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", type=Path, metavar="CHECKOUT", help="another checkout of this repository")
    parser.add_argument("--only-plain", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.only_plain:
        print(here()[PLAIN])
        return 0
    print(f"one-message produce request, from received bytes to written answer (best of {ROUNDS} × {REQUESTS}):")
    if given.against is None:
        for form, cost in here().items():
            print(f"  {form:20} {cost:6.2f} µs")
        return 0
    sides: dict[Path, list[float]] = {given.against: [], Path(__file__).resolve().parent.parent: []}
    for _ in range(TURNS):
        for checkout, costs in sides.items():
            costs.append(elsewhere(checkout))
    other, this = (min(costs) for costs in sides.values())
    print(f"  there {other:6.2f} µs   here {this:6.2f} µs   difference {this - other:+.2f} µs ({this / other:.3f} ×)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
