"""Groups of the consumer protocol (KIP-848): the coordinator assigns, members reconcile with every heartbeat.

Theory of operation. There are three epochs. The *group epoch* grows whenever members, subscriptions or topics change,
so that a new assignment is needed. The *assignment epoch* is the group epoch for which the target assignment was
computed. Each *member epoch* is the assignment epoch that the member has reached. Members talk only to the coordinator:
a heartbeat lists the partitions that the member owns, and the answer lists those it shall own. A member gets a
partition only after its previous owner has released it. So a partition has at most one owner at any time, and no
member has to stop while others rebalance.

    groups           entry points of the package
    heartbeats       ConsumerGroupHeartbeat, with
      validation       checks of requests
      rebalance        group epoch, target, reconciliation: the three steps after every change
      assignors        compute the target assignment (a package)
      reconciliation   moves a member towards its target
      expressions      subscriptions by regular expression, with `regexes`
      settings         the settings of one group
      timers           sessions and time limits
    group, member    the state
    changes          change the state and append its record together
    records          the state ↔ bytes
    description      ConsumerGroupDescribe
    offsets          checks of commits and fetches
    classic_members  classic clients in a consumer group, with `embedded` for what they send
    departures       members that leave or are fenced
    conversions      classic groups ↔ consumer groups, with their members

Everything but timers is durable: a new coordinator continues where the last one stopped, in the same epochs, and
members are not disturbed.
"""

from penstock.coordinators.groups.consumer.group import ConsumerGroup

__all__ = ["ConsumerGroup"]
