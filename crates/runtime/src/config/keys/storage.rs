//! Keys of storage: where events are kept, how safely, and for how long.

use mesh_storage::SyncPolicy;

use crate::config::{
    declared::{Fallback, Group, keys},
    kind::{Bytes, Choice, Count, Folder, Span, Word},
    settings::StorageBackend,
};

pub mod topics;

/// This group.
pub const GROUP: Group =
    Group { title: "Storage", about: "Where events are kept, how safely and for how long." };

/// A minute, the shortest sensible age.
const MINUTE_MS: u64 = 60_000;
/// About a hundred years.
const CENTURY_MS: u64 = 36_500 * 86_400_000;
const MIB: u64 = 1 << 20;

keys! {
    TYPE: Choice<StorageBackend> = Choice {
        options: &[
            Word {
                word: "embedded",
                value: StorageBackend::Embedded,
                meaning: "a durable partitioned log in the data directory of this instance.",
            },
            Word {
                word: "memory",
                value: StorageBackend::Memory,
                meaning: "for tests and demonstrations: every event is lost when the process ends.",
            },
        ],
        not_in_this_build: &["kafka", "rocketmq"],
    }, "eventmesh.storage.type", Fallback::RequiredByServer { standalone: "embedded" },
    "What keeps the events. It has no default: `eventmesh server` does not start without it, \
     `eventmesh standalone` takes `embedded`.";

    SYNC: Choice<SyncPolicy> = Choice {
        options: &[
            Word {
                word: "always",
                value: SyncPolicy::Always,
                meaning: "an accepted event is on the disk before its publisher is answered.",
            },
            Word {
                word: "interval",
                value: SyncPolicy::Interval,
                meaning: "weaker: the disk is synced about once a second; power loss takes the events of the last \
                          second, a killed process none.",
            },
            Word {
                word: "never",
                value: SyncPolicy::Never,
                meaning: "weakest: the operating system writes when it likes; power loss takes what it had not \
                          written, a killed process nothing.",
            },
        ],
        not_in_this_build: &[],
    }, "eventmesh.storage.embedded.sync", Fallback::Value("always"),
    "When the embedded log is synced to the disk.";

    PARTITIONS: Count = Count { min: 1, max: 1024 },
    "eventmesh.storage.partitions", Fallback::Value("4"),
    "How many partitions a new topic gets. Topics that exist keep theirs.";

    RETENTION_MAX_AGE: Span = Span { min_ms: MINUTE_MS, max_ms: CENTURY_MS, zero_means: None },
    "eventmesh.storage.retention.maxAge", Fallback::Value("7d"),
    "How long the events of a topic are kept once every group is done with them.";

    RETENTION_MAX_BYTES: Bytes = Bytes { min: MIB, max: u64::MAX },
    "eventmesh.storage.retention.maxBytes", Fallback::Unset("no limit"),
    "How many bytes of a topic are kept of what every group is done with.";

    RETENTION_INTERVAL: Span = Span { min_ms: 100, max_ms: 3_600_000, zero_means: None },
    "eventmesh.storage.retention.checkInterval", Fallback::Value("30s"),
    "How often retention and the backlog limits are looked at: a topic may pass its limits for so long.";

    BACKLOG_MAX_AGE: Span = Span { min_ms: MINUTE_MS, max_ms: CENTURY_MS, zero_means: Some("for ever") },
    "eventmesh.storage.backlog.maxAge", Fallback::Value("14d"),
    "How long events are kept that some group has not done. What is older is dropped, counted, and shown to the \
     group as a gap; from half of it on there is a warning.";

    BACKLOG_MAX_BYTES: Bytes = Bytes { min: MIB, max: u64::MAX },
    "eventmesh.storage.backlog.maxBytes", Fallback::Unset("20 % of the volume that holds the data directory"),
    "How many bytes of a topic are kept that some group has not done, so that a forgotten group cannot fill the \
     disk.";

    LOW_WATERMARK: Bytes = Bytes { min: 0, max: u64::MAX },
    "eventmesh.storage.lowWatermark", Fallback::Unset("5 % of the volume or 1GiB, whichever is smaller"),
    "With less free space than this a publish is refused with 507; deliveries and acknowledgements go on.";

    TAIL_CACHE: Bytes = Bytes { min: 64 << 10, max: 1 << 40 },
    "eventmesh.storage.tailCacheBytes", Fallback::Value("64MiB"),
    "Memory for the newest events of all topics, from which groups that keep up are served.";

    DATA_DIR: Folder = Folder,
    "eventmesh.data.dir", Fallback::Value("./data"),
    "The root of everything this instance keeps on disk. Only one process can use it at a time.";

    OFFSET_PATH: Folder = Folder,
    "eventmesh.offset.path", Fallback::Unset("`offset` in the data directory"),
    "Where the positions of the groups are kept: set it to have them on another volume than the events.";
}
