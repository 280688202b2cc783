//! Keys of Meta, the store that instances share.

use crate::config::{
    declared::{Fallback, Group, keys},
    kind::{Addresses, Choice, Word},
    settings::MetaBackend,
};

/// This group.
pub const GROUP: Group =
    Group { title: "Meta", about: "Where subscriptions, groups and dead-letter rows are kept." };

keys! {
    TYPE: Choice<MetaBackend> = Choice {
        options: &[Word {
            word: "local",
            value: MetaBackend::Local,
            meaning: "in the data directory, for one instance alone.",
        }],
        not_in_this_build: &["etcd", "nacos"],
    }, "eventmesh.meta.type", Fallback::Value("local"),
    "The Meta store.";

    ADDR: Addresses = Addresses,
    "eventmesh.meta.addr", Fallback::Unset("none; `local` takes none"),
    "Where a Meta store is reached that is not `local`; it stops the start where the store is.";
}
