//! Serves the API and the pages on a listener.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use scheduler::ops::Ops;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::composed;
use crate::pages::{self, Live};

/// How long a stop waits for callers: one that connected and never finished its request must not hold it up.
pub(crate) const DRAIN: Duration = Duration::from_secs(2);

/// Serves until `shutdown`; requests in progress are then finished, as far as two seconds allow.
pub async fn serve(listener: TcpListener, ops: Arc<Ops>, shutdown: CancellationToken) -> io::Result<()> {
    let (stopped, live) = (shutdown.clone(), Arc::new(Live::default()));
    let unwatched = shutdown.child_token();
    let _watched_while_served = unwatched.clone().drop_guard();
    tokio::spawn(pages::watch(live.clone(), ops.clone(), unwatched));
    let service = composed(ops, live).into_make_service_with_connect_info::<SocketAddr>();
    let server = axum::serve(listener, service).with_graceful_shutdown(async move { stopped.cancelled().await });
    let out_of_patience = async {
        shutdown.cancelled().await;
        tokio::time::sleep(DRAIN).await;
    };
    tokio::select! {
        served = server => served,
        () = out_of_patience => Ok(()),
    }
}
