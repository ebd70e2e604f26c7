//! libFuzzer's way to the worker's HTTP client: whole responses, from the status line on, over a socket.
#![no_main]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::document::Validators;
use common::host::{HostConfig, HostRules};
use common::host_gate::memory::MemoryGate;
use common::host_gate::{ExtraRequest, GateUpkeep, HostGate, LoadMark, Ticket};
use common::job::FetchJob;
use common::known::KnownEntries;
use common::report::Outcome;
use common::time::{Clock, SystemClock, Timestamp};
use common::url::{FeedId, FeedUrl, Version};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};
use worker::fetch::{FetchFeed, Fetched, Fetcher, Hops};
use worker::own_holds::OwnHolds;

thread_local!(static BED: Bed = Bed::new());

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    BED.with(|bed| {
        let fetched = bed.fetch(bytes);
        assert!(fetched.http_status.is_none_or(|status| (100..1000).contains(&status)));
        if let Outcome::Modified(document) = &fetched.outcome {
            let validators = &document.validators;
            // The folds of a field are read as one space each (RFC 9112, section 5.2).
            let lines = bytes.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
            let unfolded = lines.collect::<Vec<_>>().join(&b' ');
            for kept in [&validators.etag, &validators.last_modified].into_iter().flatten() {
                let sent = worker::headers::to_value(kept).unwrap();
                assert!(unfolded.windows(sent.len()).any(|window| window == sent.as_bytes()), "not kept byte for byte");
            }
        }
    });
});

/// A worker's fetcher, and a server that sends the same bytes to every connection and closes it.
struct Bed {
    runtime: Runtime,
    fetcher: Fetcher,
    rules: HostRules,
    url: FeedUrl,
    response: Arc<Mutex<Vec<u8>>>,
}

impl Bed {
    fn new() -> Self {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let mut config = common::config::defaults().fetch;
        config.allow_networks = vec!["127.0.0.0/8".parse().unwrap()];
        config.allow_ports = vec!["1-65535".to_owned()];
        // Nothing is followed: a Location may name any server.
        config.max_redirects = 0;
        let rules = HostRules::new(HostConfig { gap: Duration::ZERO, ..HostConfig::default() }, Vec::new());
        let response = Arc::new(Mutex::new(Vec::new()));
        let (fetcher, url) = runtime.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let url = format!("http://{}/feed", listener.local_addr().unwrap()).parse().unwrap();
            tokio::spawn(serve(listener, Arc::clone(&response)));
            (Fetcher::new(&config, &rules).unwrap(), url)
        });
        Bed { runtime, fetcher, rules, url, response }
    }

    fn fetch(&self, bytes: &[u8]) -> Fetched {
        *self.response.lock().unwrap() = bytes.to_vec();
        self.runtime.block_on(async {
            let (gate, job, now) = (MemoryGate::new(Timestamp::EPOCH), self.job(), SystemClock.now());
            assert!(gate.open(&LoadMark(String::new()), now).await.unwrap());
            let deadline = now.after(Duration::from_secs(30));
            let limits = self.rules.limits_of(&job.host);
            let request = ExtraRequest { host: &job.host, limits, during: None, deadline };
            let permit = gate.acquire_extra(&request, now).await.unwrap().unwrap();
            let (rules, patience) = (&self.rules, Duration::ZERO);
            let hops =
                Hops { gate: &gate, rules, clock: &SystemClock, permit: &permit, own_holds: &OwnHolds::default(), deadline, login: None, patience };
            self.fetcher.fetch(&job, &hops).await
        })
    }

    fn job(&self) -> FetchJob {
        FetchJob { subscribers: 1, ..FetchJob::of(FeedId(1), Version(1), self.rules.for_url(self.url.as_url()).key, self.url.clone(), Ticket(0), Timestamp::MAX) }
    }
}

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
