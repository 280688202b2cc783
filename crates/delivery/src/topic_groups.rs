//! The groups of each topic, as every append asks for them.
//!
//! A topic that nobody reads costs an append no lock, one that somebody reads a lock of its own.

use std::{collections::HashMap, sync::Arc};

use arc_swap::ArcSwap;
use mesh_frame::TopicName;
use parking_lot::RwLock;

use crate::group::Group;

type Groups = RwLock<Vec<Arc<Group>>>;

/// Every group by its topic. Changed by one at a time: whoever may write the directory.
#[derive(Debug, Default)]
pub(crate) struct GroupsByTopic(ArcSwap<HashMap<TopicName, Arc<Groups>>>);

impl GroupsByTopic {
    /// Calls `each` with every group of a topic. Those that come or go meanwhile wait for it.
    pub(crate) fn each(&self, topic: &TopicName, each: impl FnMut(&Arc<Group>)) {
        if let Some(groups) = self.0.load().get(topic) {
            groups.read().iter().for_each(each);
        }
    }

    /// Every group of a topic.
    pub(crate) fn of(&self, topic: &TopicName) -> Vec<Arc<Group>> {
        self.0.load().get(topic).map(|groups| groups.read().clone()).unwrap_or_default()
    }

    pub(crate) fn add(&self, group: &Arc<Group>) {
        let topics = self.0.load();
        if let Some(groups) = topics.get(&group.id.topic) {
            groups.write().push(group.clone());
            return;
        }
        let mut topics = HashMap::clone(&topics);
        topics.insert(group.id.topic.clone(), Arc::new(RwLock::new(vec![group.clone()])));
        self.0.store(Arc::new(topics));
    }

    pub(crate) fn remove(&self, group: &Arc<Group>) {
        let topics = self.0.load();
        let Some(groups) = topics.get(&group.id.topic) else { return };
        let is_empty = {
            let mut groups = groups.write();
            groups.retain(|other| !Arc::ptr_eq(other, group));
            groups.is_empty()
        };
        if is_empty {
            let mut topics = HashMap::clone(&topics);
            topics.remove(&group.id.topic);
            self.0.store(Arc::new(topics));
        }
    }
}
