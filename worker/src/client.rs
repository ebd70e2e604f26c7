//! The HTTP client: how connections are kept, what a head may cost, and one request sent once.
//!
//! hyper's client without the comfort of those above it, because these follow redirects, keep cookies, read proxies from
//! the environment, repeat requests, or hide what must be judged here: interim answers and the size of a header.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bytes::Bytes;
use common::config::FetchConfig;
use common::host::HostRules;
use common::outcome::FailureKind;
use http::header::{HeaderMap, HeaderValue};
use http::{Method, Request, Response, Uri};
use http_body_util::Empty;
use hyper::body::Incoming;
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::{CaptureConnection, Connected, capture_connection};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tokio::sync::{Notify, Semaphore};
use tokio::time::{Instant, sleep_until, timeout_at};
use tokio_rustls::TlsConnector;
use url::Url;

use crate::address::{AddressGuard, Refused};
use crate::budget::{Budgets, Busy, InFlight};
use crate::connection::{OpenConnections, Peer};
use crate::dial::{DialSetup, Dialer};
use crate::failure::{Failure, Unanswered};
use crate::recent::RecentServers;
use crate::redirect;
use crate::request::UserAgent;
use crate::resolve::Resolver;
use crate::setup::{FetchSetup, FetchSetupError};
use crate::tls;

/// No body: every request is a GET or a HEAD.
type NoBody = Empty<Bytes>;

/// The HTTP client.
pub(crate) struct Client {
    http: legacy::Client<Dialer, NoBody>,
    dialer: Arc<DialSetup>,
    open: OpenConnections,
    recent: RecentServers,
    /// [`FetchConfig::idle_connections`]
    idle_connections: usize,
}

/// How long a connection waits for the next request to its host: shorter than the patience of common servers (Apache: 5
/// seconds), so that no request goes out on a connection that is about to be closed.
const IDLE_CONNECTION: Duration = Duration::from_secs(4);
/// Bytes that a server may send ahead on an HTTP/2 stream, and on all streams of a connection.
const STREAM_WINDOW: u32 = 256 * 1024;
const CONNECTION_WINDOW: u32 = 512 * 1024;
/// The least that hyper's read buffer may be limited to.
const LEAST_HEADER_BYTES: usize = 8192;

/// A client by the configuration.
pub(crate) fn build(config: &FetchConfig, guard: AddressGuard, setup: &FetchSetup) -> Result<Client, FetchSetupError> {
    check_limits(config)?;
    let resolver = Resolver::new(&config.name_servers, config.connect_timeout, &setup.hosts);
    let open = OpenConnections::default();
    let dialer = Arc::new(DialSetup {
        resolver: resolver.map_err(|error| FetchSetupError::Resolver(error.to_string()))?,
        guard,
        tls: TlsConnector::from(Arc::new(tls::client_config(&setup.extra_roots, config.tls_sessions)?)),
        connect_timeout: config.connect_timeout,
        idle_timeout: config.idle_timeout,
        max_informational: config.max_informational,
        open: open.clone(),
        budgets: Budgets::new(config),
        spare: Semaphore::new(setup.concurrency.unwrap_or(Semaphore::MAX_PERMITS)),
    });
    // a header beyond the client's own limit is an unspecific error there: up to four times ours it is named in `send`
    let header_bytes = u32::try_from(4 * config.max_header_bytes).unwrap_or(u32::MAX);
    let http = legacy::Client::builder(TokioExecutor::new())
        .timer(TokioTimer::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(IDLE_CONNECTION)
        .pool_max_idle_per_host(1)
        .http1_title_case_headers(true)
        // old servers' habits; harmless where no proxy reads the answer differently
        .http1_allow_obsolete_multiline_headers_in_responses(true)
        .http1_allow_spaces_after_header_name_in_responses(true)
        .http1_ignore_invalid_headers_in_responses(true)
        .http1_max_buf_size(config.max_header_bytes)
        .http1_max_headers(config.max_headers)
        .http2_max_header_list_size(header_bytes)
        .http2_initial_stream_window_size(STREAM_WINDOW)
        .http2_initial_connection_window_size(CONNECTION_WINDOW)
        .build(Dialer(Arc::clone(&dialer)));
    let recent = RecentServers::new(IDLE_CONNECTION);
    Ok(Client { http, dialer, open, recent, idle_connections: config.idle_connections })
}

impl Client {
    /// Counts a request of a name without a host rule with its registrable domain.
    pub(crate) fn enter_domain(&self, name: &str) -> Result<Option<InFlight>, Busy> {
        let budgets = &self.dialer.budgets;
        let Some(unit) = budgets.domain(name) else { return Ok(None) };
        budgets.start(&unit, Instant::now())?;
        Ok(Some(budgets.enter(unit)))
    }

    /// Counts a request that a connection has taken with its address. A new connection was counted when it was dialled.
    /// A kept one is closed when the request exceeds the budget, so that the next request has to dial.
    fn enter(&self, connection: &CaptureConnection) -> Option<InFlight> {
        let peer = peer_of(connection)?;
        let (is_kept, unit) = (peer.is_kept(), peer.unit?);
        if is_kept
            && !self.dialer.budgets.started(&unit, Instant::now())
            && let Some(connected) = &*connection.connection_metadata()
        {
            connected.poison();
        }
        Some(self.dialer.budgets.enter(unit))
    }

    /// Judges a URL as a request to it would be judged: port, address, and all addresses of its name. A name that is not
    /// resolved is not refused.
    pub(crate) async fn judge(&self, guard: &AddressGuard, url: &Url) -> Result<(), Refused> {
        guard.check_url(url)?;
        match url.domain() {
            Some(name) => self.dialer.judge(name).await,
            None => Ok(()),
        }
    }
}

fn check_limits(config: &FetchConfig) -> Result<(), FetchSetupError> {
    let at_least = |key, value: usize, least| {
        if value < least { Err(FetchSetupError::TooSmall { key, value, least }) } else { Ok(()) }
    };
    at_least("fetch.max_header_bytes", config.max_header_bytes, LEAST_HEADER_BYTES)?;
    at_least("fetch.max_headers", config.max_headers, 1)?;
    at_least("fetch.large_bodies", config.large_bodies, 1)
}

/// Returns our `User-Agent`; also checks the texts of host rules.
pub(crate) fn user_agent(config: &FetchConfig, rules: &HostRules) -> Result<UserAgent, FetchSetupError> {
    for rule in rules.all() {
        if let Some(text) = rule.user_agent.as_ref().filter(|text| HeaderValue::from_str(text).is_err()) {
            let key = format!("host_rule '{}'.user_agent", rule.r#match);
            return Err(FetchSetupError::UserAgent { key, value: text.clone() });
        }
    }
    let url = &config.user_agent_url;
    let invalid = || FetchSetupError::UserAgent { key: "fetch.user_agent_url".to_owned(), value: url.clone() };
    UserAgent::new(env!("CARGO_PKG_VERSION"), url).ok_or_else(invalid)
}

/// What may be spent until an answer's head is there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeadLimits {
    /// When the whole fetch ends, and how long it may take, for the message.
    pub(crate) deadline: Instant,
    pub(crate) timeout: Duration,
    /// The longest time until the head of an answer over HTTP/2, where a connection with other streams or PING frames is not
    /// silent. Interim answers do not extend it: the HTTP library does not report them there. [`crate::connection::Connection`]
    /// ends a connection that is silent as a whole.
    pub(crate) idle: Duration,
    pub(crate) max_informational: u32,
    pub(crate) max_header_bytes: usize,
    pub(crate) max_headers: usize,
}

/// An answer whose body is still to come.
pub(crate) struct Answered {
    pub(crate) response: Response<Incoming>,
    /// Ends when the answer is read.
    pub(crate) flight: Option<InFlight>,
}

/// Sends a GET or a HEAD once and reads the head of its answer. `sent` is set when a connection takes the request: resolving,
/// dialling and TLS come before that.
pub(crate) async fn send(
    client: &Client,
    method: Method,
    url: &Url,
    fields: HeaderMap,
    limits: HeadLimits,
    sent: &mut Option<Instant>,
) -> Result<Answered, Unanswered> {
    let uri: Uri = url.as_str().parse().map_err(|_| Failure::new(FailureKind::Malformed, "the URL cannot be sent"))?;
    let is_head = method == Method::HEAD;
    let mut request = Request::new(NoBody::new());
    *request.method_mut() = method;
    *request.uri_mut() = uri;
    *request.headers_mut() = fields;
    let interim = Arc::new(Interim { left: AtomicU32::new(limits.max_informational), exceeded: Notify::new() });
    let counted = Arc::clone(&interim);
    hyper::ext::on_informational(&mut request, move |_| counted.count());

    let mut flight = None;
    let mut connection = capture_connection(&mut request);
    let mut answer = pin!(timeout_at(limits.deadline, client.http.request(request)));
    let mut silent_at: Option<Instant> = None;
    let answer = loop {
        tokio::select! {
            biased;
            () = interim.exceeded.notified() => {
                let detail = format!("more than {} interim answers", limits.max_informational);
                return Err(Failure::new(FailureKind::TooLarge, detail).into());
            }
            true = taken(&mut connection), if sent.is_none() => {
                let now = Instant::now();
                *sent = Some(now);
                flight = client.enter(&connection);
                let is_http2 = connection.connection_metadata().as_ref().is_some_and(Connected::is_negotiated_h2);
                silent_at = is_http2.then(|| now + limits.idle);
            }
            answer = &mut answer => break answer.ok(),
            () = sleep_until(silent_at.unwrap_or(limits.deadline)), if silent_at.is_some() => break None,
        }
    };
    // hyper sends a request again whose kept connection had just been closed: over another one, and not before that was open.
    if let Some(peer) = peer_of(&connection) {
        *sent = sent.map(|at| at.max(peer.opened));
    }
    let response = match answer {
        Some(Ok(response)) => response,
        // Even if the server leaves the connection open and says nothing more.
        _ if peer_of(&connection).is_some_and(|peer| peer.calm.is_wanted()) => return Err(Unanswered::Throttled),
        Some(Err(error)) => return Err(Unanswered::of_request(&error)),
        None if silent_at.is_some_and(|at| at < limits.deadline) => return Err(Failure::silent(limits.idle).into()),
        None => return Err(Failure::late(limits.timeout).into()),
    };
    // After these the same server usually gets another request at once.
    let is_step = is_head || redirect::is_redirect(response.status());
    let is_recent = client.recent.note(url, Instant::now());
    if (client.open.count() > client.idle_connections || !(is_recent || is_step))
        && let Some(connection) = &*connection.connection_metadata()
    {
        // Poison is hyper's word for: not to be used again.
        connection.poison();
    }
    let header_bytes: usize = response.headers().iter().map(|(name, value)| name.as_str().len() + value.len()).sum();
    if header_bytes > limits.max_header_bytes {
        return Err(Failure::new(FailureKind::TooLarge, "the answer's header is too large").into());
    }
    // HTTP/1 refuses them while it reads.
    if response.headers().len() > limits.max_headers {
        let detail = format!("the answer has more than {} header fields", limits.max_headers);
        return Err(Failure::new(FailureKind::TooLarge, detail).into());
    }
    Ok(Answered { response, flight })
}

/// The other end of the connection that a request was given.
fn peer_of(connection: &CaptureConnection) -> Option<Peer> {
    let mut extensions = http::Extensions::new();
    connection.connection_metadata().as_ref()?.get_extras(&mut extensions);
    extensions.remove()
}

/// Waits until a connection takes the request; false: none ever will.
async fn taken(connection: &mut CaptureConnection) -> bool {
    connection.wait_for_connection_metadata().await.is_some()
}

/// Counts interim answers down.
struct Interim {
    left: AtomicU32,
    exceeded: Notify,
}

impl Interim {
    fn count(&self) {
        let counted = self.left.try_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        if counted.is_err() {
            self.exceeded.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use common::host::{HostConfig, HostRule};
    use common::url::FeedUrl;
    use proptest::prelude::*;

    use super::*;

    fn config(change: impl FnOnce(&mut FetchConfig)) -> FetchConfig {
        let mut fetch = common::config::load(None, std::iter::empty(), &[]).unwrap().config.fetch;
        change(&mut fetch);
        fetch
    }

    fn refusal(change: impl FnOnce(&mut FetchConfig)) -> String {
        let config = config(change);
        let guard = AddressGuard::new(&[], &[]).unwrap();
        build(&config, guard, &FetchSetup::default()).map(|_| ()).unwrap_err().to_string()
    }

    #[test]
    fn a_limit_that_would_stop_every_fetch_is_refused_by_its_key() {
        assert!(refusal(|fetch| fetch.max_header_bytes = 8191).contains("fetch.max_header_bytes: 8191"));
        assert!(refusal(|fetch| fetch.max_headers = 0).contains("fetch.max_headers"));
        assert!(refusal(|fetch| fetch.large_bodies = 0).contains("fetch.large_bodies"));
    }

    #[test]
    fn a_user_agent_that_cannot_be_sent_is_refused_by_its_key() {
        let rules = HostRules::default();
        let error = user_agent(&config(|fetch| fetch.user_agent_url = "a\nb".into()), &rules).unwrap_err();
        assert!(error.to_string().starts_with("fetch.user_agent_url: "), "{error}");
        let rule = HostRule { r#match: "a.org".into(), user_agent: Some("\u{7f}".into()), ..HostRule::default() };
        let rules = HostRules::new(HostConfig::default(), vec![rule]);
        let error = user_agent(&config(|_| {}), &rules).unwrap_err();
        assert!(error.to_string().starts_with("host_rule 'a.org'.user_agent: "), "{error}");
    }

    #[test]
    fn p36_every_kind_of_character_can_be_sent() {
        for character in (0..=0x2ff_u32).filter_map(char::from_u32) {
            for text in [format!("http://a.org/x{character}y"), format!("http://a.org/?x{character}y")] {
                let Ok(url) = text.parse::<FeedUrl>() else { continue };
                let uri: Uri = url.as_str().parse().unwrap_or_else(|error| panic!("{text:?}: {error}"));
                let path = uri.path_and_query().map(http::uri::PathAndQuery::as_str);
                assert_eq!(path, url.as_str().strip_prefix("http://a.org"), "{text:?}");
            }
        }
    }

    proptest! {
        #[test]
        fn p36_every_feed_url_can_be_sent(text in "https?://[a-z0-9.\\[\\]:_-]{1,20}(/\\PC{0,20})?(\\?\\PC{0,20})?") {
            if let Ok(url) = text.parse::<FeedUrl>() {
                prop_assert!(url.as_str().parse::<Uri>().is_ok(), "{}", url);
            }
        }
    }
}
