//! Serves the API and the pages on a listener.

use std::io;
use std::sync::Arc;

use scheduler::ops::Ops;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::composed;
use crate::listener::{self, Limits, Proxies};
use crate::pages::{self, Live};

/// Serves until `shutdown`; requests in progress are then finished, as far as two seconds allow.
pub async fn serve(listener: TcpListener, ops: Arc<Ops>, shutdown: CancellationToken) -> io::Result<()> {
    let live = Arc::new(Live::default());
    let unwatched = shutdown.child_token();
    let _watched_while_served = unwatched.clone().drop_guard();
    tokio::spawn(pages::watch(live.clone(), ops.clone(), unwatched));
    let api = &ops.config.api;
    let limits = Limits {
        proxies: Proxies::new(&api.trusted_proxies),
        ..Limits::new(api.max_connections, api.max_connections_per_address)
    };
    listener::serve(listener, composed(ops, live), limits, shutdown).await
}
