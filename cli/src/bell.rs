//! Waits for the next items of a list. The fleet's stream of events says at once that there is something; the list itself is then
//! read as ever, with its cursor, so that nothing depends on the stream.

use std::time::Duration;

use anyhow::ensure;
use futures_util::FutureExt;
use reqwest::Response;
use tokio::time::{sleep, timeout};

use crate::client::Client;

/// How often a list is read while its fleet has no stream for it.
const WITHOUT: Duration = Duration::from_secs(1);
/// A stream is dead when not even a heartbeat came within this time.
const SILENCE: Duration = Duration::from_secs(60);
/// What comes within this time is read from the list in one go.
const TOGETHER: Duration = Duration::from_millis(20);

/// A stream that rings.
#[derive(Default)]
pub(crate) struct Bell {
    stream: Option<Response>,
}

impl Bell {
    /// Waits until there may be something after this number that the query lets through.
    pub(crate) async fn wait(&mut self, client: &Client, query: &[(&str, String)], after: i64) {
        if self.rings(client, query, after).await.is_err() {
            self.stream = None;
            sleep(WITHOUT).await;
        }
    }

    async fn rings(&mut self, client: &Client, query: &[(&str, String)], after: i64) -> anyhow::Result<()> {
        let stream = match &mut self.stream {
            Some(stream) => stream,
            None => self.stream.insert(client.stream("/events/stream", query, after).await?),
        };
        loop {
            let chunk = timeout(SILENCE, stream.chunk()).await??;
            ensure!(chunk.is_some(), "the stream ended");
            if chunk.is_some_and(|chunk| !is_heartbeat(&chunk)) {
                break;
            }
        }
        sleep(TOGETHER).await;
        // The list has these too.
        while let Some(Ok(Some(_))) = stream.chunk().now_or_never() {}
        Ok(())
    }
}

/// A comment of server-sent events begins with a colon.
fn is_heartbeat(chunk: &[u8]) -> bool {
    chunk.starts_with(b":") && !chunk.windows(5).any(|five| five == b"data:")
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use tokio::sync::mpsc;

    use super::*;
    use crate::client::ClientArgs;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        client: ClientArgs,
    }

    #[tokio::test]
    async fn it_rings_for_events_and_not_for_heartbeats() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = format!("http://{}", listener.local_addr().unwrap());
        let (publish, mut published) = mpsc::unbounded_channel();
        let fleet = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut head = vec![0; 4096];
            let read = stream.read(&mut head).await.unwrap();
            stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n: heartbeat\n\n").await.unwrap();
            while let Some(event) = published.recv().await {
                stream.write_all(event).await.unwrap();
            }
            // Open until the other side has read it.
            let _ = stream.read(&mut [0]).await;
            String::from_utf8(head[..read].to_vec()).unwrap()
        });
        let client = Client::new(&Command::parse_from(["", "--server", &server]).client).unwrap();
        let (mut bell, query) = (Bell::default(), [("kind", "entry.new".to_owned())]);
        let mut waiting = Box::pin(bell.wait(&client, &query, 7));
        // It may not even be connected by then: what has begun is waited for further.
        assert!(timeout(Duration::from_millis(200), waiting.as_mut()).await.is_err(), "a heartbeat rang");
        publish.send(&b"id: 8\ndata: {}\n\n"[..]).unwrap();
        waiting.await;
        assert!(bell.stream.is_some(), "the stream goes on");
        publish.send(b"id: 9\ndata: {}\n\n").unwrap();
        bell.wait(&client, &query, 8).await;
        drop((bell, publish));
        let asked = fleet.await.unwrap();
        assert!(asked.starts_with("GET /api/v1/events/stream?kind=entry.new&after=7 "), "{asked}");
    }
}
