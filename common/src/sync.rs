//! Locking, and waiting that ends at a stop.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

/// Locks a mutex, whether or not a thread panicked while it held the lock: no change behind a lock of ours can be half done.
pub fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sleeps until the time has passed or `stop` is cancelled; returns whether the time has passed.
pub async fn sleep_or_stop(duration: Duration, stop: &CancellationToken) -> bool {
    stop.run_until_cancelled(tokio::time::sleep(duration)).await.is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_sleep_ends_at_its_time_or_at_the_stop() {
        let stop = CancellationToken::new();
        assert!(sleep_or_stop(Duration::from_millis(1), &stop).await);
        stop.cancel();
        assert!(!sleep_or_stop(Duration::from_secs(3600), &stop).await);
    }

    #[test]
    fn a_lock_outlives_a_panic_of_its_holder() {
        let mutex = Mutex::new(1);
        std::thread::scope(|scope| {
            let holder = scope.spawn(|| {
                let _held = lock(&mutex);
                panic!("on purpose");
            });
            assert!(holder.join().is_err());
        });
        assert_eq!(*lock(&mutex), 1);
    }
}
