//! Sends requests to the targets of subscriptions, with the resolver, the address guard and the TLS of fetches: one request, one
//! response, no redirect, no proxy. Of a response's body only the beginning is read.
//!
//! When to send and what follows from a response is the scheduler's business.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use common::config::{DeliveryConfig, FetchConfig};
use common::delivery::{DeliveryAnswer, DeliveryRequest};
use common::outcome::{DeliveryOutcome, FailureKind};
use common::time::Clock;
use http::header::{self, HeaderName, HeaderValue};
use http::{Method, Request, Uri};
use http_body_util::{BodyExt, Full};
use hyper::body::Body;
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::capture_connection;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use url::Url;

use crate::address::AddressGuard;
use crate::budget::Budgets;
use crate::connection::OpenConnections;
use crate::dial::{DialSetup, Dialer};
use crate::failure::Unanswered;
use crate::headers;
use crate::resolve::Resolver;
use crate::setup::{FetchSetup, FetchSetupError};
use crate::tls;

/// Bytes of a response's body that are read.
const READ: usize = 4 * 1024;
/// Characters of it that are kept.
const KEPT: usize = 200;
/// How long reading them may take once the head is there.
const BODY_WAIT: Duration = Duration::from_secs(1);
/// How long a connection waits for the next request, as for fetches.
const IDLE_CONNECTION: Duration = Duration::from_secs(4);
/// Bytes of a response's head, and its fields.
const HEAD_BYTES: u32 = 16 * 1024;
const HEAD_FIELDS: usize = 100;

/// Sends requests to subscribers.
pub struct Poster {
    http: legacy::Client<Dialer, Full<Bytes>>,
    guard: AddressGuard,
    clock: Arc<dyn Clock>,
    user_agent: HeaderValue,
    timeout: Duration,
    open: OpenConnections,
    /// A connection is not kept after its response while there are more than this.
    idle_connections: usize,
}

impl Poster {
    /// Returns a client by the configuration.
    pub fn new(
        fetch: &FetchConfig,
        delivery: &DeliveryConfig,
        setup: &FetchSetup,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, FetchSetupError> {
        let guard = AddressGuard::new(&fetch.allow_networks, &fetch.allow_ports)?;
        let connect_timeout = fetch.connect_timeout.min(delivery.timeout);
        let resolver = Resolver::new(&fetch.name_servers, connect_timeout, &setup.hosts);
        // Targets have separate limits; those of polled addresses do not apply.
        let unlimited = FetchConfig { address_rate: 0.0, ..fetch.clone() };
        let open = OpenConnections::default();
        let dialer = Arc::new(DialSetup {
            resolver: resolver.map_err(|error| FetchSetupError::Resolver(error.to_string()))?,
            guard: guard.clone(),
            tls: TlsConnector::from(Arc::new(tls::client_config(&setup.extra_roots, delivery.concurrency)?)),
            connect_timeout,
            idle_timeout: delivery.timeout,
            max_informational: fetch.max_informational,
            open: open.clone(),
            budgets: Budgets::new(&unlimited),
            spare: Semaphore::new(delivery.concurrency),
        });
        let http = legacy::Client::builder(TokioExecutor::new())
            .timer(TokioTimer::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_CONNECTION)
            .pool_max_idle_per_host(1)
            .http1_max_buf_size(HEAD_BYTES as usize)
            .http1_max_headers(HEAD_FIELDS)
            .http2_max_header_list_size(HEAD_BYTES)
            .build(Dialer(dialer));
        let page = &fetch.user_agent_url;
        let about = if page.is_empty() { String::new() } else { format!(" (+{page})") };
        let user_agent = format!("feedfleet/{}{about}", env!("CARGO_PKG_VERSION"));
        let user_agent = HeaderValue::try_from(user_agent)
            .map_err(|_| FetchSetupError::UserAgent { key: "fetch.user_agent_url".to_owned(), value: page.clone() })?;
        let idle_connections = delivery.concurrency / 2;
        Ok(Poster { http, guard, clock, user_agent, timeout: delivery.timeout, open, idle_connections })
    }

    /// Checks what can be known of a target before its name is resolved: the port, and an address in place of a name.
    pub fn judge(&self, target: &Url) -> Result<(), String> {
        self.guard.check_url(target).map_err(|refused| refused.to_string())
    }

    /// Sends a request once.
    pub async fn post(&self, request: DeliveryRequest) -> DeliveryAnswer {
        if let Err(refused) = self.judge(&request.url) {
            return DeliveryAnswer::unanswered(DeliveryOutcome::Refused, refused);
        }
        let Some(mut request) = self.request(request) else {
            return DeliveryAnswer::unanswered(DeliveryOutcome::Refused, "the URL cannot be sent");
        };
        let connection = capture_connection(&mut request);
        let response = match timeout(self.timeout, self.http.request(request)).await {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => return unanswered(Unanswered::of_request(&error)),
            Err(_) => {
                let detail = format!("no response within {}", humantime::format_duration(self.timeout));
                return DeliveryAnswer::unanswered(DeliveryOutcome::Timeout, detail);
            }
        };
        if self.open.count() > self.idle_connections
            && let Some(connection) = &*connection.connection_metadata()
        {
            connection.poison();
        }
        let status = response.status().as_u16();
        let retry_after = headers::retry_after(response.headers(), self.clock.now());
        let location =
            response.headers().get(header::LOCATION).and_then(|value| value.to_str().ok()).map(str::to_owned);
        let (detail, is_whole) = beginning(response.into_body()).await;
        DeliveryAnswer {
            outcome: DeliveryOutcome::of_status(status),
            status: Some(status),
            retry_after,
            location,
            detail,
            is_whole,
        }
    }

    fn request(&self, sent: DeliveryRequest) -> Option<Request<Full<Bytes>>> {
        let uri: Uri = sent.url.as_str().parse().ok()?;
        let method = if sent.body.is_some() { Method::POST } else { Method::GET };
        let mut request = Request::new(Full::new(Bytes::from(sent.body.unwrap_or_default())));
        *request.method_mut() = method;
        *request.uri_mut() = uri;
        let fields = request.headers_mut();
        fields.insert(header::USER_AGENT, self.user_agent.clone());
        for (name, value) in sent.fields {
            fields.insert(HeaderName::from_static(name), HeaderValue::try_from(value).ok()?);
        }
        Some(request)
    }
}

fn unanswered(why: Unanswered) -> DeliveryAnswer {
    let (outcome, detail) = match why {
        Unanswered::Failed(failure) => {
            let outcome = match failure.kind {
                FailureKind::Timeout => DeliveryOutcome::Timeout,
                FailureKind::RefusedAddress => DeliveryOutcome::Refused,
                _ => DeliveryOutcome::Unreachable,
            };
            (outcome, failure.detail)
        }
        Unanswered::Shortage(detail) => (DeliveryOutcome::Shortage, detail),
        Unanswered::Busy(_) | Unanswered::Throttled => {
            (DeliveryOutcome::Throttled, "the target wants fewer requests".to_owned())
        }
    };
    DeliveryAnswer::unanswered(outcome, shown(&detail))
}

/// Reads how a body begins, and returns whether it was read as far as it should be. What follows is not read: the connection is
/// closed, or kept if that was all.
async fn beginning<B: Body<Data = Bytes> + Unpin>(mut body: B) -> (String, bool) {
    let mut bytes = Vec::new();
    let read = async {
        while bytes.len() < READ {
            match body.frame().await {
                Some(Ok(frame)) => {
                    if let Some(data) = frame.data_ref() {
                        bytes.extend_from_slice(&data[..data.len().min(READ - bytes.len())]);
                    }
                }
                Some(Err(_)) => return false,
                None => break,
            }
        }
        true
    };
    // For a delivery, the head of a slow response is enough.
    let is_whole = timeout(BODY_WAIT, read).await.unwrap_or(false);
    (shown(&String::from_utf8_lossy(&bytes)), is_whole)
}

/// Returns a text as it may be shown on a terminal.
fn shown(text: &str) -> String {
    let plain = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    plain.take(KEPT).collect::<String>().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use common::time::SystemClock;

    use super::*;

    #[tokio::test]
    async fn ports_and_private_addresses_are_refused_before_anything_is_sent() {
        let config = common::config::defaults();
        let clock = Arc::new(SystemClock);
        let poster = Poster::new(&config.fetch, &config.delivery, &FetchSetup::default(), clock).unwrap();
        for (target, key) in [
            ("https://example.com:22/", "fetch.allow_ports"),
            ("http://127.0.0.1/", "fetch.allow_networks"),
            ("http://2130706433/", "fetch.allow_networks"),
            ("http://[::ffff:10.0.0.1]/", "fetch.allow_networks"),
            ("http://169.254.169.254/latest/meta-data/", "fetch.allow_networks"),
        ] {
            let url: Url = target.parse().unwrap();
            assert!(poster.judge(&url).unwrap_err().contains(key), "{target}");
            let answer = poster.post(DeliveryRequest { url, fields: Vec::new(), body: None }).await;
            assert_eq!((answer.outcome, answer.status), (DeliveryOutcome::Refused, None), "{target}");
        }
        assert_eq!(poster.judge(&"https://example.com/hook".parse().unwrap()), Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_breaks_off_or_is_late_is_not_whole() {
        use futures_util::stream;
        use http_body_util::StreamBody;
        use hyper::body::Frame;
        let part = || Ok::<_, std::io::Error>(Frame::data(Bytes::from_static(b"abc")));
        let broken = || Err(std::io::Error::other("reset"));
        assert_eq!(beginning(StreamBody::new(stream::iter([part()]))).await, ("abc".to_owned(), true));
        assert_eq!(beginning(StreamBody::new(stream::iter([part(), broken()]))).await, ("abc".to_owned(), false));
        let late = stream::StreamExt::chain(stream::iter([part()]), stream::pending());
        assert_eq!(beginning(StreamBody::new(late)).await, ("abc".to_owned(), false));
    }

    #[test]
    fn a_response_is_shown_without_what_could_drive_a_terminal() {
        assert_eq!(shown("\u{1b}[31mno\r\n"), "[31mno");
        assert_eq!(shown(&"x".repeat(999)).len(), KEPT);
    }
}
