//! Keys of topics and of what is accepted into them.

use crate::config::{
    declared::{Fallback, Group, keys},
    kind::{Count, Span, Switch},
};

/// This group.
pub const GROUP: Group =
    Group { title: "Topics and publishing", about: "How topics come to be, and what they accept." };

keys! {
    AUTO_CREATE: Switch = Switch,
    "eventmesh.topic.autoCreate", Fallback::Value("true"),
    "Whether the first publish or subscribe makes a topic. With `false` an unknown topic is answered 404.";

    MAX_TOPICS: Count = Count { min: 1, max: 10_000_000 },
    "eventmesh.topic.max", Fallback::Value("100000"),
    "How many topics there may be.";

    PUBLISH_TIMEOUT: Span = Span { min_ms: 100, max_ms: 600_000, zero_means: None },
    "eventmesh.publish.timeout", Fallback::Value("10s"),
    "How long a publish waits for the storage before it is answered 503.";

    DEDUP_WINDOW: Span = Span { min_ms: 1_000, max_ms: 86_400_000, zero_means: Some("off") },
    "eventmesh.publish.dedup.window", Fallback::Value("0"),
    "How long an event is recognised by its `source` and `id` when it is published again to the same topic: it is \
     answered 202 with `\"duplicate\":true` and its first position, and not stored again. Also across a restart, \
     which reads the window's part of the log. A topic can have a window of its own (`POST /admin/topics`).";

    DEDUP_MAX: Count = Count { min: 1_000, max: 100_000_000 },
    "eventmesh.publish.dedup.maxEvents", Fallback::Value("1000000"),
    "How many events of the windows of all topics are remembered, about 150 bytes of memory each; past it those are \
     forgotten first whose window ends first, and counted.";

    JAVA_COMPATIBLE: Switch = Switch,
    "eventmesh.frame.javaCompatible", Fallback::Value("false"),
    "Whether to refuse events that Java runtimes on the same topics could not read: more than 64 attributes, or \
     one over 4 KiB.";
}
