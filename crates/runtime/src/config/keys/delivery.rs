//! Keys of delivery: who reads which partitions, and how much may be outstanding.

use mesh_delivery::DeliveryTopology;

use crate::config::{
    declared::{Fallback, Group, keys},
    kind::{Choice, Count, Span, Word},
};

/// This group.
pub const GROUP: Group =
    Group { title: "Delivery", about: "Which events an instance pulls, and how much it hands out." };

keys! {
    TOPOLOGY: Choice<Option<DeliveryTopology>> = Choice {
        options: &[
            Word {
                word: "LOCAL_STICKY_PULL",
                value: Some(DeliveryTopology::LocalStickyPull),
                meaning: "every instance pulls every partition of the topics that its own clients subscribe to. \
                          Needs nothing but the instance itself.",
            },
            Word {
                word: "PARTITION_OWNED_PULL",
                value: None,
                meaning: "each instance acquires some of the partitions and pulls those alone, so that no event is \
                          pulled twice. Needs a Meta store that all instances share, and a storage that can tell \
                          its partition count.",
            },
        ],
        not_in_this_build: &["PARTITION_OWNED_PULL"],
    }, "eventmesh.delivery.topology", Fallback::Value("LOCAL_STICKY_PULL"),
    "How partitions are divided between instances. A value that is not one of the accepted stops the start; it \
     never falls back to another mode.";

    MAX_OUTSTANDING: Count = Count { min: 1, max: 10_000_000 },
    "eventmesh.delivery.maxOutstanding", Fallback::Value("10000"),
    "How many events of one partition a group may have handed out or waiting for a retry. At the limit the group \
     gets nothing more from that partition until some are done; no other group or partition waits.";

    MAX_OUTSTANDING_TOTAL: Count = Count { min: 1, max: 1_000_000_000 },
    "eventmesh.delivery.maxOutstandingTotal", Fallback::Value("2000000"),
    "The same for all groups of this instance together: bounds the memory that unfinished deliveries take.";

    PER_CLIENT: Count = Count { min: 1, max: 1_000_000 },
    "eventmesh.subscription.perClient", Fallback::Value("1000"),
    "How many subscriptions one client may have.";

    IDLE_TIMEOUT: Span = Span { min_ms: 1_000, max_ms: 31_536_000_000, zero_means: Some("never") },
    "eventmesh.subscription.idleTimeout", Fallback::Value("0"),
    "After how long without a sign of a client its subscriptions end: no open stream, no poll and nothing settled. Its polls \
     are then answered 410; a group of its own goes with it, a shared group stays with its place and its backlog.";
}
