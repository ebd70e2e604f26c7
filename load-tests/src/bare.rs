//! The bare clients: loops of conditional GETs with reqwest, or with hyper's connections, without anything else, for
//! comparison.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::Context;
use clap::{Args, ValueEnum};
use http::{HeaderValue, Request, header};
use http_body_util::{BodyExt, Empty};
use hyper::body::Bytes;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

/// What to ask.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// A file of URLs, one a line.
    #[arg(long)]
    urls: PathBuf,
    /// Requests at once.
    #[arg(long, default_value_t = 128)]
    concurrency: usize,
    /// With what.
    #[arg(long, value_enum, default_value_t = Client::Reqwest)]
    client: Client,
    /// Posts this file instead of asking for feeds, with reqwest.
    #[arg(long)]
    post: Option<PathBuf>,
}

/// A bare part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Client {
    /// reqwest's client.
    Reqwest,
    /// A hyper connection to each host, opened again when the server closed it.
    Hyper,
}

impl Client {
    /// Returns its name as an argument.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Client::Reqwest => "reqwest",
            Client::Hyper => "hyper",
        }
    }
}

/// Polls each URL in turn, repeatedly, until killed.
pub(crate) async fn poll(options: &Options) -> anyhow::Result<()> {
    let urls: Vec<reqwest::Url> =
        std::fs::read_to_string(&options.urls)?.lines().map(str::parse).collect::<Result<_, _>>()?;
    if let Some(body) = &options.post {
        return post_with_reqwest(urls, std::fs::read(body)?.into(), options.concurrency).await;
    }
    match options.client {
        Client::Reqwest => poll_with_reqwest(urls, options.concurrency).await,
        Client::Hyper => poll_with_hyper(&urls, options.concurrency).await,
    }
}

async fn poll_with_reqwest(urls: Vec<reqwest::Url>, concurrency: usize) -> anyhow::Result<()> {
    let urls = Arc::new(urls);
    let client = reqwest::Client::builder().no_proxy().build()?;
    let etags = Arc::new((0..urls.len()).map(|_| std::sync::OnceLock::new()).collect::<Vec<_>>());
    let next = Arc::new(AtomicUsize::new(0));
    let mut loops = JoinSet::new();
    for _ in 0..concurrency {
        let (urls, client, etags, next) = (Arc::clone(&urls), client.clone(), Arc::clone(&etags), Arc::clone(&next));
        loops.spawn(async move {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed) % urls.len();
                let mut request = client.get(urls[number].clone());
                if let Some(etag) = etags[number].get() {
                    request = request.header(header::IF_NONE_MATCH, etag);
                }
                let Ok(answer) = request.send().await else { continue };
                if let Some(etag) = answer.headers().get(header::ETAG).cloned() {
                    let _ = etags[number].set(etag);
                }
                let _ = answer.bytes().await;
            }
        });
    }
    while loops.join_next().await.is_some() {}
    Ok(())
}

async fn post_with_reqwest(urls: Vec<reqwest::Url>, body: Bytes, concurrency: usize) -> anyhow::Result<()> {
    let (urls, next) = (Arc::new(urls), Arc::new(AtomicUsize::new(0)));
    let client = reqwest::Client::builder().no_proxy().build()?;
    let mut loops = JoinSet::new();
    for _ in 0..concurrency {
        let (urls, client, next, body) = (Arc::clone(&urls), client.clone(), Arc::clone(&next), body.clone());
        loops.spawn(async move {
            loop {
                let url = urls[next.fetch_add(1, Ordering::Relaxed) % urls.len()].clone();
                let request = client.post(url).header(header::CONTENT_TYPE, "application/json").body(body.clone());
                let Ok(answer) = request.send().await else { continue };
                let _ = answer.bytes().await;
            }
        });
    }
    while loops.join_next().await.is_some() {}
    Ok(())
}

/// Gives each loop separate hosts, so that nothing is shared.
async fn poll_with_hyper(urls: &[reqwest::Url], concurrency: usize) -> anyhow::Result<()> {
    let mut shares: Vec<Vec<Host>> = (0..concurrency).map(|_| Vec::new()).collect();
    for (number, url) in urls.iter().enumerate() {
        shares[number % concurrency].push(Host::new(url)?);
    }
    let mut loops = JoinSet::new();
    for mut hosts in shares.into_iter().filter(|hosts| !hosts.is_empty()) {
        loops.spawn(async move {
            loop {
                for host in &mut hosts {
                    // A failed request does not count as a poll, and the origin does not count it either.
                    let _ = host.ask().await;
                }
            }
        });
    }
    while loops.join_next().await.is_some() {}
    Ok(())
}

/// A feed, and the connection to its host.
struct Host {
    address: SocketAddr,
    name: HeaderValue,
    path: String,
    etag: Option<HeaderValue>,
    connection: Option<SendRequest<Empty<Bytes>>>,
}

impl Host {
    fn new(url: &reqwest::Url) -> anyhow::Result<Self> {
        let address = url.socket_addrs(|| None)?.first().copied().context("a URL without an address")?;
        let name = HeaderValue::try_from(address.to_string())?;
        Ok(Host { address, name, path: url.path().to_owned(), etag: None, connection: None })
    }

    async fn ask(&mut self) -> anyhow::Result<()> {
        let mut request = Request::get(&self.path).header(header::HOST, &self.name);
        if let Some(etag) = &self.etag {
            request = request.header(header::IF_NONE_MATCH, etag);
        }
        let mut kept = self.connection.take();
        if let Some(connection) = &mut kept
            && connection.ready().await.is_err()
        {
            kept = None;
        }
        let mut connection = match kept {
            Some(kept) => kept,
            None => connect(self.address).await?,
        };
        let answer = connection.send_request(request.body(Empty::new())?).await?;
        if let Some(etag) = answer.headers().get(header::ETAG) {
            self.etag = Some(etag.clone());
        }
        answer.into_body().collect().await?;
        self.connection = Some(connection);
        Ok(())
    }
}

async fn connect(address: SocketAddr) -> anyhow::Result<SendRequest<Empty<Bytes>>> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    Ok(sender)
}
