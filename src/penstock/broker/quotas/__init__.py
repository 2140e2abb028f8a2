"""Client quotas: who may send and fetch how much, and how long whoever exceeds that has to wait.

    image, properties → `QuotaTable`      the limits, by user and client id
    request           → `ClientQuotas`    finds the meters of its user and client id, counts, returns the throttle time
                      → `rates`           a rate over windows, and a bucket of tokens, computed as Kafka does

The gate (`penstock.broker.gate`) asks `ClientQuotas` for every request while any quota is set, and nothing while none
is. A throttled client is told so in the answer, and its connection is not served until the time is over (KIP-219).
`admission` decides on new connections: how many there may be, and how many may be opened per second.
"""
