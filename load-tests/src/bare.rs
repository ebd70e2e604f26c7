//! The bare part: a loop of conditional GETs with reqwest and nothing else, for comparison.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use clap::Args;

/// What to ask.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// A file of URLs, one a line.
    #[arg(long)]
    urls: PathBuf,
    /// Requests at once.
    #[arg(long, default_value_t = 128)]
    concurrency: usize,
}

/// Asks each URL in turn, over and over, until killed.
pub(crate) async fn poll(options: &Options) -> anyhow::Result<()> {
    let urls: Vec<reqwest::Url> =
        std::fs::read_to_string(&options.urls)?.lines().map(str::parse).collect::<Result<_, _>>()?;
    let urls = Arc::new(urls);
    let client = reqwest::Client::builder().no_proxy().build()?;
    let etags = Arc::new((0..urls.len()).map(|_| std::sync::OnceLock::new()).collect::<Vec<_>>());
    let next = Arc::new(AtomicUsize::new(0));
    let mut loops = tokio::task::JoinSet::new();
    for _ in 0..options.concurrency {
        let (urls, client, etags, next) = (Arc::clone(&urls), client.clone(), Arc::clone(&etags), Arc::clone(&next));
        loops.spawn(async move {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed) % urls.len();
                let mut request = client.get(urls[number].clone());
                if let Some(etag) = etags[number].get() {
                    request = request.header(reqwest::header::IF_NONE_MATCH, etag);
                }
                let Ok(answer) = request.send().await else { continue };
                if let Some(etag) = answer.headers().get(reqwest::header::ETAG).cloned() {
                    let _ = etags[number].set(etag);
                }
                let _ = answer.bytes().await;
            }
        });
    }
    while loops.join_next().await.is_some() {}
    Ok(())
}
