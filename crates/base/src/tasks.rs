//! Named tasks and threads with an owner: everything spawned is known, asked to stop, and waited for.

use std::{future::Future, time::Duration};

use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// The signal to stop that a task was given: a flag one can wait for. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Stop(CancellationToken);

impl Stop {
    /// A signal nobody has given yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Gives the signal; more than once does nothing.
    pub fn signal(&self) {
        self.0.cancel();
    }

    /// Whether it was given.
    pub fn is_signalled(&self) -> bool {
        self.0.is_cancelled()
    }

    /// Waits until it is given.
    pub async fn wait(&self) {
        self.0.cancelled().await;
    }
}

/// The tasks of one component.
#[derive(Clone, Debug, Default)]
pub struct Tasks {
    tracker: TaskTracker,
    stop: Stop,
}

impl Tasks {
    /// No tasks yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// The signal its tasks obey.
    pub fn stop(&self) -> Stop {
        self.stop.clone()
    }

    /// Starts a task; `name` is what logs and panics call it. It must end soon after [`Tasks::stop`]
    /// is signalled. A panic in it is logged at ERROR and ends that task alone.
    pub fn spawn<F>(&self, name: &'static str, future: F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let watched = self.tracker.track_future(future);
        #[expect(clippy::disallowed_methods, reason = "this is the named spawn")]
        let handle = tokio::spawn(watched);
        #[expect(clippy::disallowed_methods, reason = "watches the named task for a panic")]
        drop(tokio::spawn(async move {
            if let Err(error) = handle.await
                && error.is_panic()
            {
                tracing::error!(task = name, "task panicked");
            }
        }));
    }

    /// Starts an operating-system thread for blocking work. Its owner stops it by closing what it waits on.
    ///
    /// # Panics
    /// When the system refuses another thread.
    pub fn thread(name: &str, work: impl FnOnce() + Send + 'static) -> std::thread::JoinHandle<()> {
        std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(work)
            .expect("the system gives a thread at start")
    }

    /// Signals the stop and waits for every task, at most `bound`. `false`: some were still running.
    pub async fn shut_down(&self, bound: Duration) -> bool {
        self.stop.signal();
        self.tracker.close();
        tokio::time::timeout(bound, self.tracker.wait()).await.is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn shutting_down_waits_for_every_task_within_its_bound() {
        let tasks = Tasks::new();
        let stop = tasks.stop();
        tasks.spawn("obedient", async move { stop.wait().await });
        assert!(tasks.shut_down(Duration::from_secs(5)).await);

        let tasks = Tasks::new();
        tasks.spawn("stubborn", std::future::pending());
        assert!(!tasks.shut_down(Duration::from_millis(10)).await);
    }
}
