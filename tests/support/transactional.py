"""Whether Penstock's brokers have transactions, so that tests of what is built on them know whether to run there."""

from __future__ import annotations

from penstock.wire.apis import SERVED, ApiKey

PENSTOCK_HAS_TRANSACTIONS = ApiKey.END_TXN in {api.key for api in SERVED.values()}
WHY_NOT = "Penstock's brokers have no transactions yet"
