//! The servers that the URL names, and the one among them that is in use.
//!
//! With several hosts, or with `target_session_attrs`, each new connection is checked: a server that is a standby or
//! read-only is refused, and a search checks all hosts, in their order, for one that accepts writes. Once such a host
//! is found, all connections go there until it no longer accepts writes; those to the former host are closed. This
//! cannot distinguish a former primary that still accepts writes from the new one: fencing it is the operator's duty.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use common::causes::causes;
use common::config::{PostgresServer, ServerConfig, SessionTarget};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgConnectOptions, PgSslMode};
use sqlx::{AssertSqlSafe, ConnectOptions, Executor, PgConnection, PgPool, Postgres, Row};
use tokio::time::{Instant, sleep, timeout};

use super::timeline::{self, Unreadable};

/// A search checks each host this long after the one before it: the order counts, and a host that does not respond delays little.
const STAGGER: Duration = Duration::from_millis(250);
/// Between two searches while no server accepts writes.
const BETWEEN_SEARCHES: Duration = Duration::from_millis(250);

/// How long a host may take to accept a connection and to report its role. Shorter than callers wait for a connection,
/// so that the reason is known by then.
const ASK_LIMIT: Duration = Duration::from_secs(4);

/// The servers, and which of them is in use.
pub(super) struct Servers {
    hosts: Vec<PgConnectOptions>,
    target: Option<SessionTarget>,
    /// Statements that each connection begins with.
    settings: String,
    current: Mutex<Current>,
    /// One searches for all that wait for a connection.
    searching: tokio::sync::Mutex<Option<Instant>>,
    history: Unreadable,
}

#[derive(Default)]
struct Current {
    /// The index of the host in use.
    host: usize,
    /// The host that the pool connects to.
    of_pool: usize,
    /// Connections that are acquired in one term and returned in another are closed.
    term: u64,
    /// Idle connections from before this moment are to another host.
    moved: Option<Instant>,
    /// Why the last search found no host.
    refusals: Option<String>,
}

/// Reads the URL, and takes its files for TLS. With any of them and without `sslmode`, the server's certificate is checked.
pub(super) fn read(
    server: &ServerConfig,
    name: &str,
) -> Result<(Vec<PgConnectOptions>, Option<SessionTarget>), sqlx::Error> {
    let PostgresServer { urls, target } =
        PostgresServer::of(server).map_err(|reason| sqlx::Error::Configuration(reason.into()))?;
    let has_files = [&server.ca_file, &server.client_cert, &server.client_key].iter().any(|file| !file.is_empty());
    let host = |url: String| -> Result<PgConnectOptions, sqlx::Error> {
        let mut options: PgConnectOptions = url.parse()?;
        if has_files && !url.contains("sslmode=") && !url.contains("ssl-mode=") {
            options = options.ssl_mode(PgSslMode::VerifyFull);
        }
        if !server.ca_file.is_empty() {
            options = options.ssl_root_cert(&server.ca_file);
        }
        if !server.client_cert.is_empty() {
            options = options.ssl_client_cert(&server.client_cert).ssl_client_key(&server.client_key);
        }
        // A proxy may refuse parameters that it does not know: all settings are made by statements.
        Ok(options.application_name(name).extra_float_digits(None).disable_statement_logging())
    };
    Ok((urls.into_iter().map(host).collect::<Result<_, _>>()?, target))
}

impl Servers {
    pub(super) fn new(hosts: Vec<PgConnectOptions>, target: Option<SessionTarget>, settings: String) -> Arc<Self> {
        let (current, searching) = (Mutex::default(), tokio::sync::Mutex::default());
        Arc::new(Servers { hosts, target, settings, current, searching, history: Unreadable::default() })
    }

    /// Returns the options of the host in use.
    pub(super) fn options(&self) -> PgConnectOptions {
        self.hosts[self.host()].clone()
    }

    /// Returns the index of the host in use.
    pub(super) fn host(&self) -> usize {
        self.lock().host
    }

    pub(super) fn term(&self) -> u64 {
        self.lock().term
    }

    /// Returns whether a connection that is idle since this moment is to the host in use.
    pub(super) fn is_here(&self, idle_since: Instant) -> bool {
        self.lock().moved.is_none_or(|moved| idle_since > moved)
    }

    /// Returns why the history of the server in use is unknown, so that a promotion would go unnoticed.
    pub(super) fn timeline_unreadable(&self) -> Option<String> {
        self.history.reason()
    }

    /// Connects outside of the pool, to the host in use or to another one that accepts writes.
    pub(super) async fn connect(&self) -> Result<PgConnection, sqlx::Error> {
        if self.target.is_some() {
            return self.search().await;
        }
        let mut on = self.options().connect().await?;
        on.execute(AssertSqlSafe(self.settings.clone())).await?;
        Ok(on)
    }

    /// Makes a new connection of the pool ready. One to a server that is not wanted is replaced by one to a server that is,
    /// however long that takes: the caller that waits for the connection has a time limit.
    pub(super) async fn settle(&self, on: &mut PgConnection) -> Result<(), sqlx::Error> {
        let fault = self.prepare(on).await?;
        if self.target.is_some() && fault.is_some() {
            loop {
                if let Ok(found) = self.search().await {
                    *on = found;
                    break;
                }
                sleep(BETWEEN_SEARCHES).await;
            }
        } else if fault.is_some() {
            // It may be promoted while this connection is open, and only new ones look at the server's history.
            self.lock().term += 1;
        }
        timeline::bind_epoch(on, &self.history).await
    }

    /// Takes a connection from the pool. When that takes long, or fails, checks whether another host accepts writes.
    pub(super) async fn acquire(
        &self,
        pool: &PgPool,
        is_busy: impl Fn() -> bool,
    ) -> Result<PoolConnection<Postgres>, sqlx::Error> {
        if self.target.is_none() {
            return pool.acquire().await;
        }
        let limit = pool.options().get_acquire_timeout();
        loop {
            let term = self.point(pool);
            let mut acquiring = std::pin::pin!(pool.acquire());
            let error = loop {
                let look = async {
                    sleep(2 * STAGGER).await;
                    !is_busy() && self.moved(term, limit).await
                };
                tokio::select! {
                    biased;
                    acquired = &mut acquiring => match acquired {
                        Ok(connection) => return Ok(connection),
                        Err(error) => break Some(error),
                    },
                    moved = look => if moved {
                        break None;
                    },
                }
            };
            match error {
                None => {}
                Some(sqlx::Error::PoolTimedOut) => {
                    let refusals = if is_busy() { None } else { self.lock().refusals.clone() };
                    return Err(refusals.as_deref().map_or(sqlx::Error::PoolTimedOut, none_found));
                }
                // The pool gives up at once where another host may help, for example when a connection is cut.
                Some(error) => {
                    let has_moved = self.moved(term, limit).await;
                    if !has_moved {
                        return Err(error);
                    }
                }
            }
        }
    }

    /// Searches, unless another caller just did; returns whether another host is in use than in this term.
    async fn moved(&self, term: u64, limit: Duration) -> bool {
        let mut last = self.searching.lock().await;
        if self.term() == term && last.is_none_or(|last| last.elapsed() > BETWEEN_SEARCHES) {
            // The connection that was found is closed: the pool makes its own.
            let _ = timeout(limit, self.search()).await;
            *last = Some(Instant::now());
        }
        self.term() != term
    }

    /// The pool was made for the host in use.
    pub(super) fn is_pointed_to(&self) {
        let mut current = self.lock();
        current.of_pool = current.host;
    }

    /// Has the pool connect to the host in use; returns the term.
    fn point(&self, pool: &PgPool) -> u64 {
        let mut current = self.lock();
        if current.of_pool != current.host {
            current.of_pool = current.host;
            pool.set_connect_options(self.hosts[current.host].clone());
        }
        current.term
    }

    /// Connects to the first host that accepts writes: the one in use, then the others in their order.
    async fn search(&self) -> Result<PgConnection, sqlx::Error> {
        loop {
            if let Some(found) = self.search_once().await? {
                return Ok(found);
            }
        }
    }

    /// `None` if another search found another host meanwhile: this one may have checked that host too early.
    async fn search_once(&self) -> Result<Option<PgConnection>, sqlx::Error> {
        let (here, term) = {
            let current = self.lock();
            (current.host, current.term)
        };
        let order = std::iter::once(here).chain((0..self.hosts.len()).filter(|host| *host != here));
        let mut asked: FuturesUnordered<_> = (0..)
            .zip(order)
            .map(|(place, host)| async move {
                sleep(STAGGER * place).await;
                (host, self.ask(host).await)
            })
            .collect();
        let mut refusals = Vec::new();
        while let Some((host, answer)) = asked.next().await {
            match answer {
                Ok(connection) => return Ok(self.use_host(host, term).then_some(connection)),
                Err(reason) => refusals.push((host, format!("{} {reason}", self.name(host)))),
            }
        }
        refusals.sort();
        let refusals: Vec<String> = refusals.into_iter().map(|(_, reason)| reason).collect();
        let refusals = refusals.join("; ");
        self.lock().refusals = Some(refusals.clone());
        Err(none_found(&refusals))
    }

    /// Returns a connection to this host if it accepts writes; otherwise why not.
    async fn ask(&self, host: usize) -> Result<PgConnection, String> {
        let ask = async {
            let mut on = self.hosts[host].connect().await?;
            let fault = self.prepare(&mut on).await?;
            Ok::<_, sqlx::Error>((on, fault))
        };
        match timeout(ASK_LIMIT, ask).await {
            Ok(Ok((on, None))) => Ok(on),
            Ok(Ok((_, Some(fault)))) => Err(fault.to_owned()),
            Ok(Err(error)) => Err(format!("cannot be used ({})", causes(&error))),
            Err(_) => Err("does not respond".to_owned()),
        }
    }

    /// Makes the settings, and returns why this connection's server is not the wanted one. Every server that replays another one's
    /// log is reported, wanted or not. It is one question: at a server that is far away each one more could use up the time in which
    /// a connection has to be made.
    async fn prepare(&self, on: &mut PgConnection) -> Result<Option<&'static str>, sqlx::Error> {
        const ROLE: &str = "SELECT pg_is_in_recovery(), current_setting('transaction_read_only') = 'on'";
        let row = on.fetch_one(AssertSqlSafe(format!("{}{ROLE}", self.settings))).await?;
        let (standby, read_only): (bool, bool) = (row.try_get(0)?, row.try_get(1)?);
        Ok(match self.target {
            _ if standby => Some("is a standby"),
            Some(SessionTarget::ReadWrite) if read_only => Some("is read-only"),
            _ => None,
        })
    }

    /// Has all connections go to this host, if it was found in the present term; returns whether they go there.
    fn use_host(&self, host: usize, term: u64) -> bool {
        let mut current = self.lock();
        if current.host == host || current.term == term {
            current.refusals = None;
        }
        if current.host != host && current.term == term {
            let (before, now) = (self.name(current.host), self.name(host));
            tracing::warn!(before, now, "PostgreSQL accepts writes at another host; the connections are replaced");
            current.host = host;
            current.term += 1;
            current.moved = Some(Instant::now());
        }
        current.host == host
    }

    fn name(&self, host: usize) -> String {
        let options = &self.hosts[host];
        match options.get_socket() {
            Some(socket) => socket.display().to_string(),
            None => format!("{}:{}", options.get_host(), options.get_port()),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Current> {
        common::lock(&self.current)
    }
}

impl fmt::Debug for Servers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Servers").field("host", &self.name(self.host())).finish_non_exhaustive()
    }
}

fn none_found(refusals: &str) -> sqlx::Error {
    let text = format!("no host of store.url accepts writes: {refusals}");
    sqlx::Error::Io(std::io::Error::new(std::io::ErrorKind::NotConnected, text))
}
