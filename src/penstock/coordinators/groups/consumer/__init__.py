"""Groups of the consumer protocol (KIP-848): the coordinator assigns, members reconcile with every heartbeat.

Theory of operation. Three epochs chase each other. The *group epoch* grows whenever something calls for a new
assignment: members, subscriptions, topics. The *assignment epoch* is the group epoch that the target assignment was
computed for. Each *member epoch* is the assignment epoch up to which the member has come. A member only ever talks to
the coordinator, with heartbeats that say what it owns; the answers say what it shall own. It gets a partition when
nobody else has it any more, so that a partition has one owner at all times, and nobody has to stop for the others.

    groups           where everything comes in
    heartbeats       ConsumerGroupHeartbeat, with
      validation       what is refused
      rebalance        group epoch, target, reconciliation: the three steps after every change
      assignors        who shall own what (a package)
      reconciliation   how a member gets there
      expressions      subscriptions by regular expression, with `regexes`
      settings         what holds for one group
      timers           sessions and time limits
    group, member    the state
    changes          state and record changed as one
    records          the state ↔ bytes
    description      ConsumerGroupDescribe
    offsets          who may commit and fetch
    classic_members  classic clients in a consumer group, with `embedded` for what they send
    departures       members that leave or are fenced
    conversions      classic groups ↔ consumer groups, with their members

Everything but timers is durable: a coordinator that takes over goes on where the last one stopped, in the same
epochs, and members notice nothing.
"""

from penstock.coordinators.groups.consumer.group import ConsumerGroup

__all__ = ["ConsumerGroup"]
