//! The groups of each topic, as every append asks for them.
//!
//! A topic without groups costs an append no lock, one with groups a lock of its own.

use std::sync::Arc;

use mesh_base::ReadMap;
use mesh_frame::TopicName;
use parking_lot::RwLock;

use super::Group;

/// Every group by its topic. Changed by the writer of the directory, of which there is one at a time.
#[derive(Debug, Default)]
pub(crate) struct GroupsByTopic(ReadMap<TopicName, Arc<RwLock<Vec<Arc<Group>>>>>);

impl GroupsByTopic {
    /// Calls `each` with every group of a topic. Those that come or go meanwhile wait for it.
    pub(crate) fn each(&self, topic: &TopicName, each: impl FnMut(&Arc<Group>)) {
        if let Some(groups) = self.0.get(topic) {
            groups.read().iter().for_each(each);
        }
    }

    /// Every group of a topic. One that follows another is there in its place: never both, never none.
    pub(crate) fn of(&self, topic: &TopicName) -> Vec<Arc<Group>> {
        self.0.get(topic).map(|groups| groups.read().clone()).unwrap_or_default()
    }

    pub(crate) fn add(&self, group: &Arc<Group>) {
        match self.0.get(&group.id.topic) {
            Some(groups) => groups.write().push(group.clone()),
            None => {
                self.0.insert(group.id.topic.clone(), Arc::new(RwLock::new(vec![group.clone()])));
            }
        }
    }

    /// Puts a group where the one is that it follows.
    pub(crate) fn replace(&self, old: &Arc<Group>, next: &Arc<Group>) {
        let Some(groups) = self.0.get(&old.id.topic) else { return self.add(next) };
        let mut groups = groups.write();
        match groups.iter_mut().find(|group| Arc::ptr_eq(group, old)) {
            Some(place) => *place = next.clone(),
            None => groups.push(next.clone()),
        }
    }

    pub(crate) fn remove(&self, group: &Arc<Group>) {
        let Some(groups) = self.0.get(&group.id.topic) else { return };
        let is_empty = {
            let mut groups = groups.write();
            groups.retain(|other| !Arc::ptr_eq(other, group));
            groups.is_empty()
        };
        if is_empty {
            self.0.remove(&group.id.topic);
        }
    }
}
