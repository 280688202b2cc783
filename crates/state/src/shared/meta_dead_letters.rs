//! The dead-letter ledger in Meta.
//!
//! Keys start with the tenant. A listing of a topic of every tenant is led from one tenant's keys to the
//! next tenant's by one small read each; nobody reads the rows of other topics.

use std::sync::Arc;

use mesh_base::BackendError;
use mesh_frame::{InstanceId, TenantId, TopicName};
use mesh_meta::{BoxFuture, MetaStore, Page};

use super::{
    Created, DeadLetter, DeadLetterId, DeadLetterPage, DeadLetterScope, DeadLetterStore, GroupId, Recorded,
    Removed, Replaced, ReplayIntent, ReplayedLetter, Stored, StoredIntent, Writer, keys, records::Records,
};

/// How many records are read at once where all are.
const ALL_PAGE: usize = 1_000;

/// Whether instances share their positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeadLetterKeys {
    /// A group has one position in the cluster: a row's key names none of the instances.
    OneForAll,
    /// Each instance runs its own copy of a group: a row's key names the instance.
    PerInstance,
}

/// The dead-letter store; cheap to clone.
#[derive(Clone)]
pub struct MetaBackedDeadLetterStore {
    records: Records<DeadLetter>,
    intents: Records<ReplayIntent>,
    keys: DeadLetterKeys,
}

impl MetaBackedDeadLetterStore {
    /// The ledger in `meta`; nothing is read yet.
    pub fn new(meta: &MetaStore, writer: &Writer, keys: DeadLetterKeys) -> Self {
        let records = Records::new(meta.clone(), writer.clone());
        Self { records, intents: Records::new(meta.clone(), writer.clone()), keys }
    }

    fn id(&self, instance: &InstanceId, group: &GroupId, letter: ReplayedLetter) -> DeadLetterId {
        let instance = match self.keys {
            DeadLetterKeys::OneForAll => None,
            DeadLetterKeys::PerInstance => Some(instance.clone()),
        };
        DeadLetterId {
            group: group.clone(),
            instance,
            incarnation: letter.incarnation,
            partition: letter.partition,
            offset: letter.offset,
        }
    }

    fn id_of(&self, letter: &DeadLetter) -> DeadLetterId {
        self.id(&letter.instance, &letter.group, letter.into())
    }

    /// The first tenant with a dead letter whose key is above `after`.
    async fn next_tenant(&self, mut after: Option<String>) -> Result<Option<TenantId>, BackendError> {
        loop {
            let page = Page { after: after.take(), max: 1 };
            let listing = self.records.meta().get_with_prefix(keys::DEAD_LETTERS, &page).await?;
            let Some(first) = listing.entries.into_iter().next() else { return Ok(None) };
            match keys::tenant_of_dead_letter(&first.key) {
                Some(tenant) => return Ok(Some(tenant)),
                None => after = Some(first.key),
            }
        }
    }

    async fn page(
        &self,
        prefix: &str,
        after: Option<&str>,
        max: usize,
    ) -> Result<DeadLetterPage, BackendError> {
        let page = Page { after: after.map(str::to_owned), max };
        let found = self.records.page(prefix, &page).await?;
        let rows = found.records.into_iter().map(|(_, row)| row).collect();
        Ok(DeadLetterPage { rows, next: found.next })
    }

    async fn page_of_every_tenant(
        &self,
        topic: &TopicName,
        after: Option<&str>,
        max: usize,
    ) -> Result<DeadLetterPage, BackendError> {
        let mut rows = Vec::new();
        let mut tenant = match after.and_then(keys::tenant_of_dead_letter) {
            Some(tenant) => Some(tenant),
            None => self.next_tenant(after.map(str::to_owned)).await?,
        };
        let mut after = after.map(str::to_owned);
        while let Some(current) = tenant {
            let prefix = keys::dead_letters_of_topic(&current, topic);
            let page = self.page(&prefix, after.as_deref(), max - rows.len()).await?;
            rows.extend(page.rows);
            if page.next.is_some() {
                return Ok(DeadLetterPage { rows, next: page.next });
            }
            let end = keys::above_dead_letters_of_tenant(&current);
            if rows.len() >= max {
                return Ok(DeadLetterPage { rows, next: Some(end) });
            }
            tenant = self.next_tenant(Some(end)).await?;
            after = None;
        }
        Ok(DeadLetterPage { rows, next: None })
    }
}

impl DeadLetterStore for MetaBackedDeadLetterStore {
    fn record(&self, letter: DeadLetter) -> BoxFuture<'_, Result<Recorded, BackendError>> {
        Box::pin(async move {
            let id = self.id_of(&letter);
            Ok(match self.records.create(&id, letter).await? {
                Created::Written(row) => Recorded::Written(row),
                Created::AlreadyThere(row) => Recorded::AlreadyThere(row),
            })
        })
    }

    fn current<'a>(
        &'a self,
        of: &'a DeadLetter,
    ) -> BoxFuture<'a, Result<Option<Arc<Stored<DeadLetter>>>, BackendError>> {
        Box::pin(async move { self.records.get(&self.id_of(of)).await })
    }

    fn renew<'a>(
        &'a self,
        expected: &'a Stored<DeadLetter>,
        letter: DeadLetter,
    ) -> BoxFuture<'a, Result<Replaced<DeadLetter>, BackendError>> {
        Box::pin(async move { self.records.replace(&self.id_of(&expected.record), expected, letter).await })
    }

    fn browse<'a>(
        &'a self,
        scope: &'a DeadLetterScope,
        after: Option<&'a str>,
        max: usize,
    ) -> BoxFuture<'a, Result<DeadLetterPage, BackendError>> {
        let max = max.max(1);
        Box::pin(async move {
            match scope {
                DeadLetterScope::Topic(topic) => self.page_of_every_tenant(topic, after, max).await,
                DeadLetterScope::TenantTopic(tenant, topic) => {
                    self.page(&keys::dead_letters_of_topic(tenant, topic), after, max).await
                }
                DeadLetterScope::Group(group) => self.page(&keys::dead_letters(group), after, max).await,
            }
        })
    }

    fn remove<'a>(
        &'a self,
        expected: &'a Stored<DeadLetter>,
    ) -> BoxFuture<'a, Result<Removed<DeadLetter>, BackendError>> {
        Box::pin(async move { self.records.remove(&self.id_of(&expected.record), expected).await })
    }

    fn find<'a>(
        &'a self,
        instance: &'a InstanceId,
        group: &'a GroupId,
        letter: ReplayedLetter,
    ) -> BoxFuture<'a, Result<Option<Arc<Stored<DeadLetter>>>, BackendError>> {
        Box::pin(async move {
            let row = self.records.get(&self.id(instance, group, letter)).await?;
            Ok(row.filter(|row| ReplayedLetter::from(&row.record) == letter))
        })
    }

    fn intend<'a>(
        &'a self,
        instance: &'a InstanceId,
        intent: ReplayIntent,
    ) -> BoxFuture<'a, Result<Arc<Stored<ReplayIntent>>, BackendError>> {
        Box::pin(self.intents.put(instance, intent))
    }

    fn intents(&self) -> BoxFuture<'_, Result<Vec<StoredIntent>, BackendError>> {
        Box::pin(async move {
            let mut all = Vec::new();
            let mut page = Page::first(ALL_PAGE);
            loop {
                let found = self.intents.page(keys::REPLAYS, &page).await?;
                all.extend(found.records);
                match found.next {
                    Some(last) => page = Page::after(last, ALL_PAGE),
                    None => return Ok(all),
                }
            }
        })
    }

    fn end_intent<'a>(
        &'a self,
        instance: &'a InstanceId,
        expected: &'a Stored<ReplayIntent>,
    ) -> BoxFuture<'a, Result<Removed<ReplayIntent>, BackendError>> {
        Box::pin(self.intents.remove(instance, expected))
    }

    fn count<'a>(&'a self, topic: &'a TopicName) -> BoxFuture<'a, Result<u64, BackendError>> {
        Box::pin(async move {
            let mut count = 0;
            let mut after = None;
            loop {
                let page = self.page_of_every_tenant(topic, after.as_deref(), ALL_PAGE).await?;
                count += page.rows.len() as u64;
                after = page.next;
                if after.is_none() {
                    return Ok(count);
                }
            }
        })
    }
}
