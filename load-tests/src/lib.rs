//! The fake internet: scripted origins that record every request, populations of feeds, the judge of politeness, and a
//! proxy that breaks connections.
//!
//! Start with [`Origin`]: an HTTP/1.1 server on loopback that responds by [`Script`] and records its requests. It writes
//! every byte itself, so that it can also misbehave in every way that servers do. It does not depend on feedfleet, and
//! can judge any client.
//!
//! ```
//! use std::time::Duration;
//!
//! use load_tests::{Feed, Origin, Script};
//! # use tokio::io::{AsyncReadExt, AsyncWriteExt};
//! # async fn get(address: std::net::SocketAddr, head: &str) -> String {
//! #     let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
//! #     stream.write_all(head.as_bytes()).await.unwrap();
//! #     let mut text = String::new();
//! #     stream.read_to_string(&mut text).await.unwrap();
//! #     text
//! # }
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> std::io::Result<()> {
//! let origin = Origin::start().await?;
//! origin.set("/feed", Script::feed(Feed::rss()).header("Cache-Control", "max-age=60"));
//! origin.set("/old", Script::redirect(301, "/feed"));
//! origin.set("/busy", Script::status(503).header("Retry-After", "120").times(2).then(Script::feed(Feed::atom())));
//!
//! let url = origin.url("/feed"); // for the client under test
//! origin.publish("/feed", 2);
//! # assert!(url.starts_with("http://127.0.0.1:"));
//! let answer = get(origin.address(0), "GET /feed HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await;
//! assert!(answer.contains(&origin.truth("/feed")[0].title));
//!
//! let requests = origin.wait_for("/feed", 1, Duration::from_secs(5)).await;
//! assert_eq!(requests[0].status, Some(200));
//! assert_eq!(requests[0].header("host").as_deref(), Some("x"));
//! # Ok(()) }
//! ```

mod fake_clock;
#[cfg(feature = "tls")]
pub mod hostile_tls;
pub mod judge;
mod names;
pub mod origin;
pub mod population;
pub mod process;
pub mod proxy;
#[cfg(feature = "tls")]
pub mod scenario;
pub mod signed;
pub mod simulate;
#[cfg(feature = "tls")]
pub mod tls;
pub mod usage;

pub use fake_clock::FakeClock;
pub use judge::{
    Fault, GateLog, Memory, Promises, Proof, Rules, ScoreCard, StallWatch, Stalls, Violation, judge, prove,
};
pub use names::Names;
pub use origin::bodies::{self, Coding};
pub use origin::feed::{Conditions, Feed, Format, Item, Pace, Stamp, Tag};
pub use origin::log::{Cut, Record};
pub use origin::script::{Delivery, Gate, Script};
pub use origin::{Origin, loopback};
pub use population::{Kind, Member, Plan, Population};
