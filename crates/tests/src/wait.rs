//! Waiting for a condition with a deadline that says what was waited for.

use std::{future::Future, time::Duration};

use anyhow::{Result, bail};
use tokio::time::{Instant, sleep, timeout};

/// How often a condition is looked at.
const EVERY: Duration = Duration::from_millis(20);

/// Calls `look` until it gives a value.
///
/// # Errors
/// When it gave none for `most`; the message says `what` was waited for.
pub async fn until<T>(what: &str, most: Duration, mut look: impl AsyncFnMut() -> Option<T>) -> Result<T> {
    let end = Instant::now() + most;
    loop {
        if let Some(value) = look().await {
            return Ok(value);
        }
        if Instant::now() >= end {
            bail!("waited {most:?} in vain for {what}");
        }
        sleep(EVERY).await;
    }
}

/// The result of a future.
///
/// # Errors
/// When it takes longer than `most`.
pub async fn within<T>(what: &str, most: Duration, future: impl Future<Output = T>) -> Result<T> {
    match timeout(most, future).await {
        Ok(value) => Ok(value),
        Err(_) => bail!("{what} took longer than {most:?}"),
    }
}

/// Lets time pass where time itself is what is tested: a rate of load, a bound that must have run out.
pub async fn pause(duration: Duration) {
    sleep(duration).await;
}
