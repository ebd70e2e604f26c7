//! Mutated responses, from the status line on, sent to the worker's own client: each fetch ends with an outcome, and what is
//! kept of a head is kept byte for byte.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::report::Outcome;
use common::testing::mutations::{count, mutated};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::fetch::bench::Bench;

/// How long one fetch may take on a busy machine. The server closes every connection after its response.
const PATIENCE: Duration = Duration::from_secs(60);
const FEED: &str = "<rss><channel><title>t</title><item><guid>1</guid></item></channel></rss>";

pub(super) fn seeds() -> Vec<Vec<u8>> {
    let length = FEED.len();
    let whole = |head: &str| format!("{head}\r\nContent-Length: {length}\r\n\r\n{FEED}");
    let half = FEED.split_at(length / 2);
    let chunked = format!(
        "Transfer-Encoding: chunked\r\n\r\n{:x};a=b\r\n{}\r\n{:X}\r\n{}\r\n0\r\nX-After: 1\r\n\r\n",
        half.0.len(),
        half.0,
        half.1.len(),
        half.1
    );
    let hints = "HTTP/1.1 103 Early Hints\r\nLink: </a>; rel=preload\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n";
    [
        whole("HTTP/1.1 200 OK\r\nContent-Type: application/rss+xml\r\nETag: \"a\"\r\nLast-Modified: Sun, 06 Nov 1994 08:49:37 GMT"),
        format!("HTTP/1.1 200 OK\r\nETag: W/\"b\"\r\n{chunked}"),
        format!("{hints}{}", whole("HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nSet-Cookie: a=b")),
        format!("HTTP/1.0 200\r\nConnection: close\r\n\r\n{FEED}"),
        "HTTP/1.1 304 Not Modified\r\nETag: \"a\"\r\nDate: Mon, 21 Sep 2026 14:13:20 GMT\r\n\r\n".to_owned(),
        whole("HTTP/1.1 226 IM Used\r\nIM: feed\r\nETag: \"c\""),
        "HTTP/1.1 301 Moved Permanently\r\nLocation: /elsewhere\r\nRetry-After: 30\r\nContent-Length: 0\r\n\r\n".to_owned(),
        "HTTP/1.1 429 Too Many Requests\r\nRetry-After: 120\r\nRateLimit-Remaining: 0\r\nContent-Length: 0\r\n\r\n".to_owned(),
        "HTTP/1.1 503 Service Unavailable\r\nServer: cloudflare\r\ncf-mitigated: challenge\r\n\r\n<html>".to_owned(),
        whole("HTTP/1.1 200 OK\r\nContent-Encoding: identity, utf-8\r\nX-Folded: a\r\n b\r\nX-Empty:"),
    ]
    .map(String::into_bytes)
    .into()
}

/// Sends what `response` holds to every connection once its request has arrived, and closes it.
async fn serve(listener: TcpListener, response: Arc<Mutex<Vec<u8>>>) {
    while let Ok((mut stream, _)) = listener.accept().await {
        let response = Arc::clone(&response);
        tokio::spawn(async move {
            let (mut request, mut buffer) = (Vec::new(), [0; 4096]);
            while !request.ends_with(b"\r\n\r\n") {
                match stream.read(&mut buffer).await {
                    Ok(0) | Err(_) => return,
                    Ok(bytes) => request.extend_from_slice(&buffer[..bytes]),
                }
            }
            let bytes = response.lock().unwrap().clone();
            // The client may have hung up over the first bytes.
            let _ = stream.write_all(&bytes).await;
            let _ = stream.shutdown().await;
        });
    }
}

#[tokio::test]
async fn mutated_heads_end_every_fetch_with_an_outcome() {
    // Nothing is followed: a mutated Location may name any server.
    let bench = Bench::with(|fetch| fetch.max_redirects = 0).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/feed", listener.local_addr().unwrap());
    let response = Arc::new(Mutex::new(Vec::new()));
    let server = tokio::spawn(serve(listener, Arc::clone(&response)));
    let (seeds, mut kept, mut answered) = (seeds(), 0, 0);
    for number in 0..count() {
        let bytes = mutated(&seeds, number);
        response.lock().unwrap().clone_from(&bytes);
        let mut job = bench.job(&url);
        job.search = false;
        let fetched = tokio::time::timeout(PATIENCE, bench.fetch(&job)).await;
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let fetched = fetched.unwrap_or_else(|_| panic!("mutation {number} does not end: {text:?}"));
        answered += usize::from(fetched.http_status.is_some());
        assert!(fetched.http_status.is_none_or(|status| (100..1000).contains(&status)), "{number}: {text:?}");
        if let Outcome::Modified(document) = &fetched.outcome {
            let validators = &document.validators;
            // The folds of a field are read as one space each (RFC 9112, section 5.2).
            let lines = bytes.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
            let unfolded = lines.collect::<Vec<_>>().join(&b' ');
            for kept in [&validators.etag, &validators.last_modified].into_iter().flatten() {
                let sent = worker::headers::to_value(kept).unwrap();
                assert!(unfolded.windows(sent.len()).any(|window| window == sent.as_bytes()), "{number}: {text:?}");
            }
            kept += 1;
        }
    }
    server.abort();
    println!("{} mutated responses: {answered} had a status, {kept} were feeds", count());
    assert!(
        kept > 0 && answered < usize::try_from(count()).unwrap(),
        "the mutations are neither harmless nor all fatal"
    );
}
