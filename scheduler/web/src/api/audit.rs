//! The audit of changes and their callers: a line in the log, and a row in the store, for each call that is not a read,
//! whatever its result.
//!
//! The row is stored before the change is made, and gets its outcome afterwards: a change that cannot be stored there is not made.
//! Callers without a valid token are in the log only, and so are requests beyond some dozens a minute that a token's role
//! forbids: they must not push out what others did.
//!
//! The lines have the target `audit`, so that they can be kept apart from the others and longer. They are written where every
//! call passes, so that no route is forgotten, and hold no body, no query and no header: those may hold secrets.

pub(crate) mod ledger;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::extract::{ConnectInfo, MatchedPath, Request};
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use store::{AuditOutcome, Audited};

use self::ledger::{Begun, Unwritten};
use crate::error::ApiError;
use crate::session::{Caller, NOBODY};
use crate::state::Api;
use crate::visitors::Visitor;

/// The caller: a token's name, or any program on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Who(pub(crate) Arc<str>);

/// What a change turned out to be about, such as `feeds/7`, where the path does not say it. A handler adds it to its answer.
#[derive(Clone, Debug)]
pub(crate) struct Subject(pub(crate) String);

/// What a change is about as far as its handler knows before it is made, for changes whose caller does not wait for the
/// end. A handler takes it from its request.
#[derive(Clone, Debug, Default)]
pub(crate) struct Meant(Arc<Mutex<Option<String>>>);

impl Meant {
    pub(crate) fn is(&self, subject: String) {
        *common::lock(&self.0) = Some(subject);
    }
}

/// The outcome of a change, where the status code of the answer says something else. A handler adds it to its answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Became(pub(crate) AuditOutcome);

/// Bytes of a path or subject that are written.
const LONGEST: usize = 200;
/// How long storing a line may hold up a response.
const PATIENCE: Duration = Duration::from_secs(5);

/// Passes a change on, or refuses it, and writes its line.
pub(super) async fn recorded(who: &Who, api: &Api, judged: Judged, mut request: Request, next: Next) -> Response {
    let mut line = Line::of(who, api, &request);
    request.extensions_mut().insert(line.meant.clone());
    let from = address_of(&request);
    // What would not be stored anyway uses up nothing.
    let is_admitted =
        |line: &Line| line.is_stored && api.refusals.admit(Visitor::of(from), UNIMPORTANT, line.change.at).is_ok();
    let response = match judged {
        Judged::Refused(refusal) => {
            line.is_stored = is_admitted(&line);
            line.end(refusal.into_response())
        }
        Judged::Login => {
            let response = line.end(next.run(request).await);
            line.is_stored = line.change.outcome == AuditOutcome::Done && is_admitted(&line);
            response
        }
        Judged::Change => match line.begin().await {
            Ok(()) => line.end(next.run(request).await),
            Err(error) => line.end(error.into_response()),
        },
    };
    line.store().await;
    response
}

/// What is known of a request before it is run.
pub(super) enum Judged {
    /// It is not run.
    Refused(ApiError),
    /// A login or logout, which any role may do.
    Login,
    /// It may change something.
    Change,
}

/// Requests of an address in a minute that are stored although they change nothing: refused ones, and logins.
const UNIMPORTANT: u32 = 30;

fn address_of(request: &Request) -> IpAddr {
    let from = request.extensions().get::<ConnectInfo<SocketAddr>>();
    from.map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |ConnectInfo(address)| address.ip())
}

/// A future line. Written when it is dropped: a caller that hangs up stops neither the change nor the line.
struct Line {
    change: Audited,
    meant: Meant,
    /// Its number in the store.
    id: Option<i64>,
    /// Receives that number.
    begun: Option<Begun>,
    /// Whether it is to be stored, and is not yet as it is.
    is_stored: bool,
    began: Instant,
    api: Api,
}

impl Line {
    fn of(who: &Who, api: &Api, request: &Request) -> Self {
        let path = request.uri().path();
        let route = request.extensions().get::<MatchedPath>().map_or(path, MatchedPath::as_str);
        let from = request.extensions().get::<ConnectInfo<SocketAddr>>();
        let change = Audited {
            at: api.ops.clock.now(),
            who: who.0.to_string(),
            from: from.map_or_else(|| "-".to_owned(), |ConnectInfo(address)| address.ip().to_string()),
            action: format!("{} {}", request.method(), cut(route)),
            on: subject(path, route),
            outcome: AuditOutcome::InProgress,
            status: 0,
            millis: 0,
        };
        Line {
            is_stored: is_somebody(&change),
            change,
            meant: Meant::default(),
            id: None,
            begun: None,
            began: Instant::now(),
            api: api.clone(),
        }
    }

    /// Stores that the change is about to be made. If the caller is gone by then, the line says so.
    async fn begin(&mut self) -> Result<(), ApiError> {
        if !self.is_stored {
            return Ok(());
        }
        let begun = self.api.ledger.begin(self.change.clone());
        let late = || "the audit could not be written in time".to_owned();
        let refused = match tokio::time::timeout(PATIENCE, self.begun.insert(begun)).await {
            Ok(heard) => {
                self.begun = None;
                match heard {
                    Ok(Ok(id)) => {
                        self.id = Some(id);
                        return Ok(());
                    }
                    Ok(Err(Unwritten(why))) => why,
                    Err(_) => late(),
                }
            }
            Err(_) => late(),
        };
        // A change that cannot be recorded is not made.
        let message = format!("{refused}; nothing was changed; try again");
        Err(ApiError::new(StatusCode::SERVICE_UNAVAILABLE, message))
    }

    fn end(&mut self, response: Response) -> Response {
        self.ended(&response);
        response
    }

    fn ended(&mut self, response: &Response) {
        let status = response.status();
        self.change.status = status.as_u16();
        self.change.outcome = match status {
            // A form leads to a page afterwards.
            status if status.is_success() || status.is_redirection() => AuditOutcome::Done,
            status if status.is_server_error() => AuditOutcome::Failed,
            _ => AuditOutcome::Refused,
        };
        if let Some(caller) = response.extensions().get::<Caller>() {
            // A login names its caller.
            self.is_stored |= self.change.who == NOBODY && caller.name.as_ref() != NOBODY;
            self.change.who = caller.name.to_string();
        }
        if let Some(Became(outcome)) = response.extensions().get() {
            self.change.outcome = *outcome;
        }
        self.is_about(response.extensions().get().map(|Subject(subject)| subject.clone()));
        self.change.millis = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
    }

    /// Takes over what the change is about: as its answer says, or else as its handler meant to.
    fn is_about(&mut self, subject: Option<String>) {
        if let Some(subject) = subject.or_else(|| common::lock(&self.meant.0).take()) {
            self.change.on = cut(&subject).to_owned();
            if self.change.on.len() < subject.len() {
                self.change.on.push('…');
            }
        }
    }

    /// Stores the outcome of the change, once, whether or not the caller waits for it.
    async fn store(&mut self) {
        // It was refused because its line was late. That line may still be written.
        if let Some(begun) = self.begun.take()
            && std::mem::take(&mut self.is_stored)
        {
            self.api.ledger.end_when_begun(begun, self.change.clone());
        }
        if std::mem::take(&mut self.is_stored) {
            let ended = self.api.ledger.end(self.id, self.change.clone());
            let _ = tokio::time::timeout(PATIENCE, ended).await;
        }
    }
}

fn is_somebody(change: &Audited) -> bool {
    change.who != NOBODY
}

impl Drop for Line {
    fn drop(&mut self) {
        if self.change.outcome == AuditOutcome::InProgress {
            self.change.outcome = AuditOutcome::Abandoned;
            self.is_about(None);
        }
        if let Some(mut begun) = self.begun.take() {
            // From here on the ledger sees that the receiver is gone; it may have sent the number before.
            begun.close();
            self.id = begun.try_recv().ok().and_then(Result::ok);
        }
        let Audited { who, from, action, on, outcome, status, .. } = &self.change;
        // A wider number would be a string in JSON.
        let millis = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        let outcome = outcome.as_str();
        tracing::info!(target: "audit", who, from, action, on, outcome, status, millis, "change requested");
        // The caller hung up; before it was begun, nothing was changed.
        let is_begun = self.id.is_some() || *status > 0;
        if self.is_stored && is_begun && tokio::runtime::Handle::try_current().is_ok() {
            self.api.ledger.end(self.id, self.change.clone());
        }
    }
}

/// Returns what the path is about: a collection, or one thing in it where the route has a place for its name.
fn subject(path: &str, route: &str) -> String {
    let parts = |text: &'static str| path.trim_start_matches(text).trim_start_matches('/').split('/');
    let parts: Vec<&str> = parts("/api/v1").collect();
    let named = route.contains("/{");
    cut(&parts[..parts.len().min(if named { 2 } else { 1 })].join("/")).to_owned()
}

fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(LONGEST)]
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::Mutex;
    use std::time::Duration;

    use axum::body::Body;
    use axum::http::{Request, header};
    use common::config::{ApiRole, ApiToken};
    use serde_json::{Value, json};
    use store::{AuditLine, AuditOutcome, AuditQuery};
    use tracing::field::{Field, Visit};
    use tracing::span::{Attributes, Id, Record};
    use tracing::subscriber::DefaultGuard;
    use tracing::{Event, Metadata, Subscriber};

    use crate::api::openapi::tests::{described, document, target};
    use crate::testing::Fleet;

    /// The lines that this thread writes to the target `audit`, each as an object.
    pub(crate) struct Lines {
        heard: Arc<Mutex<Vec<Value>>>,
        _guard: DefaultGuard,
    }

    use std::sync::Arc;

    struct Ear(Arc<Mutex<Vec<Value>>>);

    struct Fields<'a>(&'a mut Value);

    impl Visit for Fields<'_> {
        fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
            self.0[field.name()] = format!("{value:?}").into();
        }

        fn record_str(&mut self, field: &Field, value: &str) {
            self.0[field.name()] = value.into();
        }

        fn record_u64(&mut self, field: &Field, value: u64) {
            self.0[field.name()] = value.into();
        }
    }

    impl Subscriber for Ear {
        fn enabled(&self, metadata: &Metadata<'_>) -> bool {
            metadata.target() == "audit"
        }

        fn event(&self, event: &Event<'_>) {
            let mut line = json!({});
            event.record(&mut Fields(&mut line));
            self.0.lock().unwrap().push(line);
        }

        fn new_span(&self, _: &Attributes<'_>) -> Id {
            Id::from_u64(1)
        }

        fn record(&self, _: &Id, _: &Record<'_>) {}
        fn record_follows_from(&self, _: &Id, _: &Id) {}
        fn enter(&self, _: &Id) {}
        fn exit(&self, _: &Id) {}
    }

    impl Lines {
        pub(crate) fn listen() -> Self {
            let heard = Arc::new(Mutex::default());
            Lines { _guard: tracing::subscriber::set_default(Ear(Arc::clone(&heard))), heard }
        }

        /// Returns those since the last call.
        pub(crate) fn take(&self) -> Vec<Value> {
            std::mem::take(&mut self.heard.lock().unwrap())
        }
    }

    const SECRET: &str = "0123456789abcdef";

    fn tokens() -> Vec<ApiToken> {
        vec![ApiToken::new("ann", SECRET, ApiRole::Write), ApiToken::new("eve", "fedcba9876543210", ApiRole::Read)]
    }

    async fn send(fleet: &Fleet, method: &str, target: &str, token: &str, body: &str, kind: &str) -> u16 {
        let request = Request::builder().method(method).uri(target).header(header::HOST, "fleet.example");
        let request =
            request.header(header::CONTENT_TYPE, kind).header(header::AUTHORIZATION, format!("Bearer {token}"));
        fleet.send(request.body(Body::from(body.to_owned())).unwrap()).await.status
    }

    #[tokio::test]
    async fn every_change_that_the_api_offers_leaves_its_line() {
        let fleet = Fleet::with_secrets().await;
        let id = fleet.feed("https://example.com/feed.xml").await;
        fleet.post("/api/v1/requeue", json!({ "filter": { "all": true } })).await;
        let lines = Lines::listen();
        let document = document();
        let mut changes = 0;
        let ends = |(_, path, _): &(String, String, Value)| !path.ends_with("/stream");
        for (method, path, operation) in described(&document).into_iter().filter(ends) {
            let target = target(&path, &operation, id);
            let body = &operation["requestBody"]["content"]["application/json"]["example"];
            let body = (!body.is_null()).then(|| body.clone());
            lines.take();
            let answer = fleet.ask(&method.to_uppercase(), &target, body).await;
            let written = lines.take();
            if method == "get" || !path.starts_with("/api/") {
                assert_eq!(written, Vec::<Value>::new(), "{method} {path}");
                continue;
            }
            changes += 1;
            let [line] = &written[..] else { panic!("{method} {path} left {written:?}") };
            assert_eq!(line["who"], "loopback");
            assert_eq!(line["action"], format!("{} {path}", method.to_uppercase()));
            assert_eq!(line["status"], answer.status);
            let outcome = if answer.status < 300 { "done" } else { "refused" };
            assert_eq!(line["outcome"], outcome, "{line}");
            assert!(line["on"].as_str().is_some_and(|on| !on.is_empty() && !on.contains('{')), "{line}");
        }
        assert!(changes >= 15, "{changes}");
    }

    #[tokio::test]
    async fn a_line_names_the_token_and_the_subject_and_holds_no_secret() {
        let fleet = Fleet::with(|config| config.api.tokens = tokens()).await;
        let lines = Lines::listen();
        let body = json!({ "url": "https://ann:Tr0ub4dor@example.com/feed.xml?key=s3cret" }).to_string();
        let json = "application/json";
        send(&fleet, "POST", "/api/v1/feeds?token=s3cret", SECRET, &body, json).await;
        send(&fleet, "POST", "/api/v1/feeds", SECRET, "{\"url\": \"https://example.com/feed.xml\"}", json).await;
        send(&fleet, "POST", "/api/v1/fleet/pause", "fedcba9876543210", "", json).await;
        send(&fleet, "DELETE", "/api/v1/feeds/7", "guessed", "", json).await;
        send(&fleet, "PUT", "/api/v1/hosts/%1b%5b31m.example", SECRET, "{}", json).await;
        let lines = lines.take();
        let shown: Vec<String> = lines
            .iter()
            .map(|line| {
                let text = |field: &str| line[field].as_str().unwrap().to_owned();
                format!("{} {} {} {}", text("who"), text("on"), text("outcome"), line["status"])
            })
            .collect();
        let expected = [
            // without a key no password is stored
            "ann feeds refused 400",
            "ann feeds/1 done 201",
            "eve fleet refused 403",
            "nobody feeds/7 refused 401",
            "ann hosts/%1b%5b31m.example refused 400",
        ];
        assert_eq!(shown, expected);
        let all = serde_json::to_string(&lines).unwrap();
        for secret in ["Tr0ub4dor", "s3cret", SECRET, "fedcba9876543210", "guessed", "\u{1b}"] {
            assert!(!all.contains(secret), "{secret} in {all}");
        }
    }

    #[tokio::test]
    async fn a_caller_that_hangs_up_leaves_a_line_all_the_same() {
        let fleet = Fleet::new().await;
        let lines = Lines::listen();
        let mut asked = Box::pin(fleet.ask("POST", "/api/v1/fleet/pause", None));
        let polled = futures_util::poll!(asked.as_mut());
        assert!(polled.is_pending(), "the store takes its time");
        drop(asked);
        let written = lines.take();
        assert_eq!((written.len(), &written[0]["outcome"]), (1, &json!("the caller did not wait")), "{written:?}");
        // The line in the store does not stay in progress, and there is one at most.
        let mut stored = Vec::new();
        while stored.iter().all(|line: &AuditLine| line.change.outcome == AuditOutcome::InProgress) {
            tokio::time::sleep(Duration::from_millis(5)).await;
            stored = fleet.ops.store.audit(&AuditQuery::newest(9)).await.unwrap();
        }
        assert_eq!(stored.iter().map(|line| line.change.outcome).collect::<Vec<_>>(), [AuditOutcome::Abandoned]);
    }
}
