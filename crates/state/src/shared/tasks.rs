//! Tasks of agents: made once, changed only by who knows the current epoch.

use std::sync::Arc;

use mesh_base::BackendError;
use mesh_frame::{Epoch, TaskId};
use mesh_meta::BoxFuture;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Created, SharedRecord, Stored, Unknown, keys, record};

/// How far a task is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum TaskStatus {
    /// No agent works on it yet.
    Pending,
    /// An agent works on it.
    Running,
    /// It is done.
    Completed,
    /// It ended without a result.
    Failed,
    /// It was called off.
    Canceled,
}

impl TaskStatus {
    /// Whether it is over.
    pub const fn is_terminal(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Canceled)
    }
}

/// A task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TaskRecord {
    /// The task.
    pub task_id: TaskId,
    /// The agent that works on it.
    pub agent_id: String,
    /// The client that asked for it.
    pub client_id: String,
    /// How far it is.
    pub status: TaskStatus,
    /// Raised with every change; who changes it has to name the last one.
    #[serde(with = "record::epoch", default)]
    pub epoch: Epoch,
    /// When it was made, in milliseconds since 1970.
    pub created_ms: u64,
    /// When it was changed, in milliseconds since 1970.
    pub updated_ms: u64,
    /// What was asked.
    #[serde(default)]
    pub input: Value,
    /// What came of it.
    #[serde(default)]
    pub output: Value,
    /// The conversation it belongs to.
    #[serde(default)]
    pub context_id: Option<String>,
    /// Fields of newer writers.
    #[serde(flatten)]
    pub unknown: Unknown,
}

impl SharedRecord for TaskRecord {
    type Id = TaskId;
    const NAME: &'static str = "task";

    fn key(id: &TaskId) -> String {
        keys::single(keys::TASKS, id.as_str())
    }

    fn read_key(key: &str) -> Option<TaskId> {
        TaskId::new(&keys::read_single(keys::TASKS, key)?).ok()
    }

    fn unknown_mut(&mut self) -> &mut Unknown {
        &mut self.unknown
    }
}

/// What changes in a task.
#[derive(Clone, Debug, PartialEq)]
pub struct TaskChange {
    /// How far it is now.
    pub status: TaskStatus,
    /// What came of it; none leaves it as it is.
    pub output: Option<Value>,
    /// Now, in milliseconds since 1970.
    pub at_ms: u64,
}

/// How a change of a task ended.
#[derive(Clone, Debug)]
#[must_use = "the change may not have been made"]
pub enum StatusUpdate {
    /// It is written; the epoch is one higher.
    Updated(Arc<Stored<TaskRecord>>),
    /// The task has another epoch than was named; nothing was changed.
    Stale(Arc<Stored<TaskRecord>>),
    /// There is no such task.
    Unknown,
}

/// One page of tasks, in the order of their keys.
#[derive(Clone, Debug)]
pub struct TaskPage {
    /// The tasks.
    pub tasks: Vec<Arc<Stored<TaskRecord>>>,
    /// What to go on after; none when this was the end.
    pub next: Option<String>,
}

/// Tasks, as all instances see them.
///
/// # Errors
/// Every operation fails with `Unavailable` while Meta is unreachable: nothing is dropped silently. `TooLarge`
/// when the task is over Meta's limit for a value.
pub trait TaskStore: Send + Sync {
    /// Makes a task unless its id is taken; then the caller makes up another one. Durable when it returns.
    fn create_task(&self, task: TaskRecord) -> BoxFuture<'_, Result<Created<TaskRecord>, BackendError>>;

    /// Changes a task that still has the epoch the caller read.
    fn update_status<'a>(
        &'a self,
        task: &'a TaskId,
        epoch: Epoch,
        change: TaskChange,
    ) -> BoxFuture<'a, Result<StatusUpdate, BackendError>>;

    /// A task.
    fn get<'a>(
        &'a self,
        task: &'a TaskId,
    ) -> BoxFuture<'a, Result<Option<Arc<Stored<TaskRecord>>>, BackendError>>;

    /// At most `max` tasks, after a position that [`TaskPage::next`] gave. Tasks this build cannot read are
    /// logged and left out.
    fn list<'a>(
        &'a self,
        after: Option<&'a str>,
        max: usize,
    ) -> BoxFuture<'a, Result<TaskPage, BackendError>>;
}
