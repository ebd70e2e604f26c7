//! The operator commands' way to a fleet: its HTTP API.

use std::io;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use clap::Args;
use common::url::{FeedId, without_login};
use reqwest::header::{ACCEPT, CONTENT_TYPE, RETRY_AFTER};
use reqwest::{Method, RequestBuilder, Response, StatusCode, Url};
use scheduler::wire::FeedView;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::typed;
use crate::usage::Usage;

/// The flags of nearly every operator command.
#[derive(Clone, Debug, Args)]
pub(crate) struct ClientArgs {
    #[command(flatten)]
    server: ServerArgs,

    /// Prints JSON: one document, or for lists one object a line
    #[arg(long)]
    pub(crate) json: bool,
}

/// The flag of a command whose output has its own format.
#[derive(Clone, Debug, Args)]
pub(crate) struct ServerArgs {
    /// The fleet's address; a token goes into FEEDFLEET_TOKEN
    #[arg(long, value_name = "URL", env = SERVER_VARIABLE, hide_env_values = true, default_value = LOCAL)]
    server: String,
}

/// The variable that names the fleet, and the address without it.
const SERVER_VARIABLE: &str = "FEEDFLEET_SERVER";
const LOCAL: &str = "http://127.0.0.1:7878";

impl ClientArgs {
    /// Returns the flags that the same command needs again, behind others: `--json`, and the fleet's address, without a password, if
    /// only the flag names it.
    pub(crate) fn flags(&self) -> String {
        let otherwise = std::env::var(SERVER_VARIABLE).unwrap_or_else(|_| LOCAL.to_owned());
        let server = (self.server.server != otherwise).then(|| without_login(&self.server.server));
        let server = server.map_or_else(String::new, |server| format!(" --server {}", quoted(&server)));
        format!("{}{server}", if self.json { " --json" } else { "" })
    }
}

/// Returns the text as a shell takes it for one word.
pub(crate) fn quoted(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.:/@%+=,".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', "'\\''"))
    }
}

/// No answer takes longer: the fleet's own limit and a slow way there.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A stream is opened again after this time.
const STREAM: Duration = Duration::from_secs(3600);
/// How long a command waits for a scheduler that is starting.
const STARTING: Duration = Duration::from_secs(10);
/// How long it waits before it tries such a scheduler again.
const AGAIN: Duration = Duration::from_millis(200);

/// Returns whether the response is that of a scheduler whose API is not there yet.
fn is_starting(answer: &Response) -> bool {
    answer.status() == StatusCode::SERVICE_UNAVAILABLE && answer.headers().contains_key(RETRY_AFTER)
}

/// Requests that the API's refusals advise, and the commands that send them.
const COMMANDS: [(&str, &str); 5] = [
    ("GET /api/v1/feeds lists them", "`feedfleet feed list` lists them"),
    ("GET /api/v1/feeds?q= finds those too", "`feedfleet feed list --search TEXT` finds those too"),
    ("GET /api/v1/requeue lists them", "`feedfleet requeue list` lists them"),
    ("GET /api/v1/subscriptions lists them", "`feedfleet subscription list` lists them"),
    ("add its URL again", "add its URL again (`feedfleet feed add`)"),
];

/// Returns a refusal of the API in the words of the command line.
fn in_commands(said: &str) -> String {
    COMMANDS.iter().fold(said.to_owned(), |said, (request, command)| said.replace(request, command))
}

/// What the fleet said instead of doing it.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub(crate) struct Refused {
    /// The answer's status.
    pub(crate) status: StatusCode,
    /// The whole answer: some refusals say more than their sentence.
    pub(crate) answer: Value,
    message: String,
}

/// No answer came, or not whole. It may come later: a fleet that is restarted does just that.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub(crate) struct NoAnswer {
    message: String,
    #[source]
    source: Option<reqwest::Error>,
}

/// Returns whether a retry is likely to help.
pub(crate) fn passes(error: &anyhow::Error) -> bool {
    let refused = error.downcast_ref::<Refused>();
    error.is::<NoAnswer>() || refused.is_some_and(|refused| refused.status.is_server_error())
}

/// Returns whether the fleet refused the request as invalid.
pub(crate) fn is_invalid(error: &anyhow::Error) -> bool {
    error.downcast_ref::<Refused>().is_some_and(|refused| refused.status == StatusCode::BAD_REQUEST)
}

/// A fleet.
pub(crate) struct Client {
    http: reqwest::Client,
    server: Url,
    /// The address without a password.
    name: String,
    token: Option<String>,
}

impl Client {
    /// Returns the fleet that the flags name; nothing is sent yet.
    pub(crate) fn new(args: &ClientArgs) -> anyhow::Result<Self> {
        Self::at(&args.server)
    }

    /// Returns the fleet at this address; nothing is sent yet.
    pub(crate) fn at(args: &ServerArgs) -> anyhow::Result<Self> {
        let server = Url::parse(&args.server).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
        let shown = without_login(&args.server);
        let wrong = || Usage(format!("--server must be a URL such as http://127.0.0.1:7878, not '{shown}'"));
        let server = server.ok_or_else(wrong)?;
        let mut http = reqwest::Client::builder().timeout(TIMEOUT).redirect(reqwest::redirect::Policy::none());
        // A proxy's own loopback is another machine's.
        if matches!(server.host_str(), Some("localhost" | "127.0.0.1" | "[::1]")) {
            http = http.no_proxy();
        }
        // Redirects are not followed, so that no certificate is ever checked. A minimal machine has none to check with.
        if server.scheme() == "http" {
            http = http.tls_certs_only([]);
        }
        let http = http.build().context("the HTTP client could not be started")?;
        let token = std::env::var("FEEDFLEET_TOKEN").ok().filter(|token| !token.is_empty());
        let mut shown = server.clone();
        // Cannot fail: it has a host.
        let _ = (shown.set_username(""), shown.set_password(None));
        let name = shown.as_str().trim_end_matches('/').to_owned();
        Ok(Client { http, server, name, token })
    }

    /// Returns the fleet's address as people write it, without a password.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Returns what the fleet answers to `GET /api/v1{path}`.
    pub(crate) async fn get<T: DeserializeOwned>(&self, path: &str, query: &[(&str, &str)]) -> anyhow::Result<T> {
        self.send(Method::GET, path, query, None).await
    }

    /// Returns what the fleet answers to `GET /api/v1{path}` with a list, where a stream would be another answer.
    pub(crate) async fn list<T: DeserializeOwned>(&self, path: &str, query: &[(&str, &str)]) -> anyhow::Result<T> {
        let request = self.request(Method::GET, path, query).header(ACCEPT, "application/json");
        let (status, bytes) = self.answer(request).await?;
        let answer = serde_json::from_slice(&bytes).unwrap_or_default();
        if status.is_success() { self.read(answer) } else { Err(self.refusal(status, answer)) }
    }

    /// Opens a stream of events after this number.
    pub(crate) async fn stream(&self, path: &str, query: &[(&str, String)], after: i64) -> anyhow::Result<Response> {
        let after = [("after", after.to_string())];
        let query: Vec<(&str, &str)> =
            query.iter().chain(&after).map(|(name, value)| (*name, value.as_str())).collect();
        let request = self.request(Method::GET, path, &query).header(ACCEPT, "text/event-stream").timeout(STREAM);
        Ok(request.send().await.map_err(|error| self.unreachable(error))?.error_for_status()?)
    }

    /// Returns what a role says at `path`, outside of the API: its words, whether they are good, and nothing else.
    pub(crate) async fn ask(&self, path: &str) -> anyhow::Result<(StatusCode, String)> {
        self.ask_within(path, TIMEOUT).await
    }

    /// Returns the same, or an error if the whole answer is not there after this time.
    pub(crate) async fn ask_within(&self, path: &str, time: Duration) -> anyhow::Result<(StatusCode, String)> {
        let mut url = self.server.clone();
        url.set_path(&format!("{}{path}", self.server.path().trim_end_matches('/')));
        let answer = self.http.get(url).timeout(time).send().await.map_err(|error| self.unreachable(error))?;
        let status = answer.status();
        let words = answer.text().await.map_err(|error| self.no_answer("broke off its answer", error))?;
        Ok((status, words.trim().to_owned()))
    }

    /// Returns what the fleet answers to a change.
    pub(crate) async fn change<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> anyhow::Result<T> {
        self.send(method, path, &[], body).await
    }

    /// Returns the fleet's response to a ping, which is not part of its API: it needs no token.
    pub(crate) async fn ping(&self, url: &str) -> anyhow::Result<Value> {
        let request = self.request_at(Method::POST, "/ping", &[]).header(CONTENT_TYPE, "application/json");
        let (status, bytes) = self.answer(request.body(json!({ "url": url }).to_string())).await?;
        let answer = serde_json::from_slice(&bytes).unwrap_or_default();
        if status.is_success() { Ok(answer) } else { Err(self.refusal(status, answer)) }
    }

    /// Returns what the fleet answers to JSON lines, line by line.
    pub(crate) async fn lines<T: DeserializeOwned>(&self, path: &str, body: String) -> anyhow::Result<Vec<T>> {
        let request = self.request(Method::POST, path, &[]).header(CONTENT_TYPE, "application/x-ndjson").body(body);
        let (status, bytes) = self.answer(request).await?;
        if !status.is_success() {
            return Err(self.refusal(status, serde_json::from_slice(&bytes).unwrap_or_default()));
        }
        let lines = bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        lines.map(|line| self.read(serde_json::from_slice(line).unwrap_or_default())).collect()
    }

    fn read<T: DeserializeOwned>(&self, answer: Value) -> anyhow::Result<T> {
        serde_json::from_value(answer)
            .with_context(|| format!("{} does not answer as a fleet of this version does", self.name()))
    }

    /// Returns the feed that a person means: an id or a URL.
    pub(crate) async fn find(&self, feed: &str) -> anyhow::Result<FeedId> {
        if let Ok(id) = feed.parse() {
            return Ok(FeedId(id));
        }
        let url = typed::id_or_url(feed);
        match self.get::<FeedView>("/feeds/lookup", &[("url", url.as_str())]).await {
            // A URL that is wrong in another way keeps the refusal that says so.
            Err(error) if is_invalid(&error) && !feed.contains("://") => {
                let refused: Refused = error.downcast()?;
                let feed = without_login(feed);
                let message = format!("'{feed}' is neither a feed's id nor a URL such as https://example.com/feed.xml");
                Err(Refused { message, ..refused }.into())
            }
            found => Ok(found?.id),
        }
    }

    async fn send<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        query: &[(&str, &str)],
        body: Option<&Value>,
    ) -> anyhow::Result<T> {
        let mut request = self.request(method, path, query);
        if let Some(body) = body {
            request = request.header(CONTENT_TYPE, "application/json").body(body.to_string());
        }
        let (status, bytes) = self.answer(request).await?;
        let value = if bytes.is_empty() { Ok(Value::Null) } else { serde_json::from_slice(&bytes) };
        match value {
            Ok(value) if status.is_success() => self.read(value),
            value => Err(self.refusal(status, value.unwrap_or_default())),
        }
    }

    fn request(&self, method: Method, path: &str, query: &[(&str, &str)]) -> RequestBuilder {
        self.request_at(method, &format!("/api/v1{path}"), query)
    }

    fn request_at(&self, method: Method, path: &str, query: &[(&str, &str)]) -> RequestBuilder {
        let mut url = self.server.clone();
        url.set_path(&format!("{}{path}", self.server.path().trim_end_matches('/')));
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        let request = self.http.request(method, url);
        match &self.token {
            Some(token) => request.bearer_auth(token),
            None => request,
        }
    }

    /// Sends a request. Retries for a while when a scheduler is starting: it has done nothing yet.
    async fn answer(&self, request: RequestBuilder) -> anyhow::Result<(StatusCode, Vec<u8>)> {
        let patience = Instant::now() + STARTING;
        let mut request = request;
        let answer = loop {
            let again = request.try_clone();
            let answer = request.send().await.map_err(|error| self.unreachable(error))?;
            match again {
                Some(again) if is_starting(&answer) && Instant::now() < patience => {
                    tokio::time::sleep(AGAIN).await;
                    request = again;
                }
                _ => break answer,
            }
        };
        let status = answer.status();
        let bytes = answer.bytes().await.map_err(|error| self.no_answer("broke off its answer", error))?;
        Ok((status, bytes.to_vec()))
    }

    /// Returns what an answer of this status says, if it is a fleet's.
    fn refusal(&self, status: StatusCode, answer: Value) -> anyhow::Error {
        let server = self.name();
        let Some(said) = answer["error"].as_str() else {
            return anyhow!("{server} is not a feedfleet scheduler: it answered {status}");
        };
        let message = match (status, &self.token) {
            (StatusCode::UNAUTHORIZED, None) => format!("{server} wants a token in FEEDFLEET_TOKEN: {said}"),
            (StatusCode::UNAUTHORIZED, Some(_)) => {
                // Of a token that has expired the fleet says when.
                let why = if answer["code"] == "token_expired" { said } else { "it is not one of api.tokens" };
                format!("{server} rejected the token in FEEDFLEET_TOKEN: {why}")
            }
            _ => in_commands(said),
        };
        Refused { status, answer, message }.into()
    }

    fn unreachable(&self, error: reqwest::Error) -> anyhow::Error {
        // The token is all that may be wrong with a request.
        if error.is_builder() && self.token.is_some() {
            let what = "FEEDFLEET_TOKEN contains a line break or a character that an HTTP header cannot carry";
            return Usage(format!("{what}; write secrets with printf, not echo")).into();
        }
        if !error.is_connect() {
            return self.no_answer("did not answer", error).into();
        }
        if !was_refused(&error) {
            return self.no_answer("cannot be reached", error).into();
        }
        let advice = "start one with `feedfleet run` or name it with --server";
        NoAnswer { message: format!("no fleet answers at {}; {advice}", self.name()), source: None }.into()
    }

    fn no_answer(&self, what: &str, error: reqwest::Error) -> NoAnswer {
        NoAnswer { message: format!("{} {what}", self.name()), source: Some(error.without_url()) }
    }
}

/// Returns whether nothing listens at the address. Other reasons are a name that does not exist, or a certificate that is not trusted.
fn was_refused(error: &reqwest::Error) -> bool {
    let causes = std::iter::successors(Some(error as &dyn std::error::Error), |error| error.source());
    causes
        .filter_map(|cause| cause.downcast_ref::<io::Error>())
        .any(|cause| cause.kind() == io::ErrorKind::ConnectionRefused)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_quoted_for_a_shell_where_it_must_be() {
        let words = ["example.com:443", "two words", "it's", ""].map(quoted);
        assert_eq!(words, ["example.com:443", "'two words'", "'it'\\''s'", "''"]);
    }
}
