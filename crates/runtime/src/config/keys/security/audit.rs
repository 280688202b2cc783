//! Keys of the audit.

use mesh_frame::TopicName;
use mesh_gate::Interest;

use crate::config::{
    declared::{Fallback, Group, keys},
    kind::{Bytes, Choice, Count, Name, OwnFile, Word},
};

/// This group.
pub const GROUP: Group = Group {
    title: "Audit",
    about: "Every decision of the gate. The log always has denials, what failed open and administration at INFO, and \
            the rest at DEBUG; a file and a topic can have them too. A sink that fails never holds up a request.",
};

const RECORDS: Choice<Interest> = Choice {
    options: &[
        Word {
            word: "denials",
            value: Interest::Denials,
            meaning: "denials, what failed open, and administration.",
        },
        Word { word: "everything", value: Interest::Everything, meaning: "every decision." },
    ],
    not_in_this_build: &[],
};

keys! {
    FILE: OwnFile = OwnFile,
    "eventmesh.security.gate.audit.file", Fallback::Unset("no audit file"),
    "A file of JSON lines, chained by hashes: `eventmesh audit verify FILE` finds any edit, cut or reorder.", never_blank;

    FILE_RECORDS: Choice<Interest> = RECORDS,
    "eventmesh.security.gate.audit.file.records", Fallback::Value("denials"),
    "What the file gets.";

    FILE_BYTES: Bytes = Bytes { min: 64 << 10, max: 1 << 40 },
    "eventmesh.security.gate.audit.file.maxBytes", Fallback::Value("64MiB"),
    "The size from which on the next file is begun.";

    FILE_KEPT: Count = Count { min: 1, max: 10_000 },
    "eventmesh.security.gate.audit.file.keep", Fallback::Value("10"),
    "How many older files are kept.";

    TOPIC: Name<TopicName> = Name { read: TopicName::client, accepted: "the name of a topic" },
    "eventmesh.security.gate.audit.topic", Fallback::Unset("no audit topic"),
    "A topic that the decisions are published to as events. Who may read it is for the access rules to say.", never_blank;

    TOPIC_RECORDS: Choice<Interest> = RECORDS,
    "eventmesh.security.gate.audit.topic.records", Fallback::Value("denials"),
    "What the topic gets.";
}
