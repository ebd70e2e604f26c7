//! Serves the API and the pages on a listener.

use std::io;
use std::sync::Arc;

use scheduler::ops::Ops;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::composed;
use crate::listener::{self, Limits, Proxies};
use crate::pages::{self, Live};
use crate::state::Api;

/// Serves until `shutdown`; streams then end, and requests in progress are finished, as far as two seconds allow.
pub async fn serve(listener: TcpListener, ops: Arc<Ops>, shutdown: CancellationToken) -> io::Result<()> {
    let live = Arc::new(Live::default());
    let unwatched = shutdown.child_token();
    let _watched_while_served = unwatched.clone().drop_guard();
    tokio::spawn(pages::watch(live.clone(), ops.clone(), unwatched.clone()));
    let config = &ops.config.api;
    let limits = Limits {
        proxies: Proxies::new(&config.trusted_proxies),
        ..Limits::new(config.max_connections, config.max_connections_per_address)
    };
    let api = Api::new(ops.clone(), shutdown.clone());
    tokio::spawn(Arc::clone(&api.readiness).show(ops.clone(), unwatched));
    listener::serve(listener, composed(api, live), limits, shutdown).await
}
