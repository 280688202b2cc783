//! The task store in Meta: every change is a compare-and-set on the record that was read.

use std::sync::Arc;

use mesh_base::BackendError;
use mesh_frame::{Epoch, TaskId};
use mesh_meta::{BoxFuture, MetaStore, Page};

use super::{
    Created, Replaced, StatusUpdate, Stored, TaskChange, TaskPage, TaskRecord, TaskStore, Writer, keys,
    records::Records,
};

/// The task store; cheap to clone.
#[derive(Clone)]
pub struct MetaBackedTaskStore {
    records: Records<TaskRecord>,
}

impl MetaBackedTaskStore {
    /// The tasks in `meta`; nothing is read yet.
    pub fn new(meta: &MetaStore, writer: &Writer) -> Self {
        Self { records: Records::new(meta.clone(), writer.clone()) }
    }
}

impl TaskStore for MetaBackedTaskStore {
    fn create_task(&self, task: TaskRecord) -> BoxFuture<'_, Result<Created<TaskRecord>, BackendError>> {
        Box::pin(async move {
            let id = task.task_id.clone();
            self.records.create(&id, task).await
        })
    }

    fn update_status<'a>(
        &'a self,
        task: &'a TaskId,
        epoch: Epoch,
        change: TaskChange,
    ) -> BoxFuture<'a, Result<StatusUpdate, BackendError>> {
        Box::pin(async move {
            let Some(current) = self.records.get(task).await? else { return Ok(StatusUpdate::Unknown) };
            if current.record.epoch != epoch {
                return Ok(StatusUpdate::Stale(current));
            }
            let mut record = current.record.clone();
            record.epoch = Epoch(epoch.0 + 1);
            record.status = change.status;
            record.updated_ms = change.at_ms;
            if let Some(output) = change.output {
                record.output = output;
            }
            // Every change raises the epoch, so a record that differs has another one.
            Ok(match self.records.replace(task, &current, record).await? {
                Replaced::Replaced(updated) => StatusUpdate::Updated(updated),
                Replaced::Stale(Some(there)) => StatusUpdate::Stale(there),
                Replaced::Stale(None) => StatusUpdate::Unknown,
            })
        })
    }

    fn get<'a>(
        &'a self,
        task: &'a TaskId,
    ) -> BoxFuture<'a, Result<Option<Arc<Stored<TaskRecord>>>, BackendError>> {
        Box::pin(self.records.get(task))
    }

    fn list<'a>(
        &'a self,
        after: Option<&'a str>,
        max: usize,
    ) -> BoxFuture<'a, Result<TaskPage, BackendError>> {
        Box::pin(async move {
            let page = Page { after: after.map(str::to_owned), max };
            let found = self.records.page(keys::TASKS, &page).await?;
            let tasks = found.records.into_iter().map(|(_, task)| task).collect();
            Ok(TaskPage { tasks, next: found.next })
        })
    }
}
