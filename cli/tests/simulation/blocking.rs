//! Calls a database that has its own threads from a simulation that has none.
//!
//! A simulation's clock moves on when all its tasks wait, and a task that waits for SQLite's thread waits too. So such a call
//! blocks the simulation's only thread until it has its answer: it takes no virtual time, and nothing happens beside it.

use std::pin::pin;
use std::sync::{Arc, LazyLock};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

use tokio::runtime::Runtime;

/// Where the database's own tasks run: its clock is the machine's.
static HOME: LazyLock<Runtime> = LazyLock::new(|| {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime")
});

struct Unparks(Thread);

impl Wake for Unparks {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs a call of the database to its end.
pub(crate) fn run<T>(call: impl Future<Output = T>) -> T {
    let _home = HOME.enter();
    let waker = Waker::from(Arc::new(Unparks(std::thread::current())));
    // A task of the simulation that makes many calls in a row would otherwise be made to yield again and again, for
    // ever.
    let mut call = pin!(tokio::task::unconstrained(call));
    loop {
        match call.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(value) => return value,
            Poll::Pending => std::thread::park(),
        }
    }
}
