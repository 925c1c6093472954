//! Tasks that end with their owner.

use tokio::task::AbortHandle;

/// A task that is aborted when this is dropped.
#[derive(Debug)]
pub(super) struct AbortOnDrop(AbortHandle);

impl AbortOnDrop {
    /// Runs the task.
    pub fn spawn(task: impl Future<Output = ()> + Send + 'static) -> Self {
        Self(tokio::spawn(task).abort_handle())
    }
}

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}
