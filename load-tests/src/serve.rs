//! `origin`: serves a population on loopback until it is stopped, then prints the score card.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;
use load_tests::{Origin, Plan, Population, Rules, judge};

/// What to serve, where, and what to write.
#[derive(Args, Debug)]
pub(crate) struct Options {
    /// How many feeds
    #[arg(long, default_value_t = 100)]
    feeds: usize,
    /// Over how many hosts: consecutive loopback addresses
    #[arg(long, default_value_t = 20)]
    hosts: usize,
    /// Address of the first host; each further host has the next address and the same port, 0 gives each a free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8000")]
    listen: SocketAddr,
    /// Chooses the population: the same seed, the same feeds
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Mean time between two items of the busiest feed
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = humantime::parse_duration)]
    fastest: Duration,
    /// Mean time between two items of the quietest feed
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = humantime::parse_duration)]
    slowest: Duration,
    /// Share of feeds that fail, throttle, move or vanish, 0 to 1
    #[arg(long, value_name = "SHARE", default_value_t = 0.15, value_parser = share)]
    troubled: f64,
    /// Longest Retry-After and max-age given
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = humantime::parse_duration)]
    longest_wait: Duration,
    /// How many further hostile feeds, each on a separate host: bombs, endless bodies, silence, floods
    #[arg(long, default_value_t = 0)]
    hostile: usize,
    /// The gap between two requests to a host that the client is judged by
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = humantime::parse_duration)]
    gap: Duration,
    /// Write the feeds' URLs to this file, one a line, instead of standard output
    #[arg(long, value_name = "FILE")]
    urls: Option<PathBuf>,
    /// Write every request to this file at the end, a JSON object a line
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
}

fn share(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number| (0.0..=1.0).contains(number));
    number.ok_or_else(|| "accepted are numbers from 0 to 1".to_owned())
}

/// Serves until Ctrl-C or SIGTERM.
pub(crate) async fn serve(options: &Options) -> anyhow::Result<()> {
    let plan = Plan {
        seed: options.seed,
        feeds: options.feeds,
        hosts: options.hosts,
        fastest: options.fastest,
        slowest: options.slowest,
        least_shown: Plan::default().least_shown,
        troubled: options.troubled,
        longest_wait: options.longest_wait,
        hostile: options.hostile,
    };
    let hosts = plan.hosts_needed();
    let addresses = consecutive(options.listen, hosts)?;
    let origin = Origin::listen(&addresses).await.with_context(|| {
        format!(
            "listening on {hosts} addresses from {} on (--listen, --hosts; `ulimit -n` limits how many)",
            options.listen
        )
    })?;
    let population = Population::generate(&plan).context("making the feeds")?;
    population.install(&origin);
    write_urls(&population.urls(&origin), options.urls.as_deref())?;
    eprintln!("serving {} feeds on {hosts} hosts; Ctrl-C stops and judges", population.members.len());

    stopped().await?;
    let log = origin.log();
    eprint!("{}", judge(&log, &Rules { gap: options.gap, ..Rules::default() }));
    if let Some(path) = &options.log {
        let mut file = BufWriter::new(File::create(path).with_context(|| format!("creating {}", path.display()))?);
        for record in &log {
            serde_json::to_writer(&mut file, record)?;
            writeln!(file)?;
        }
        file.flush().with_context(|| format!("writing {}", path.display()))?;
    }
    Ok(())
}

/// Returns `hosts` addresses from this one on; loopback only, because some feeds are hostile.
fn consecutive(first: SocketAddr, hosts: usize) -> anyhow::Result<Vec<SocketAddr>> {
    let nth = |host: usize| match first.ip() {
        IpAddr::V4(ip) => u32::from(ip).checked_add(u32::try_from(host).ok()?).map(|ip| IpAddr::V4(ip.into())),
        IpAddr::V6(ip) => (host == 0).then_some(IpAddr::V6(ip)),
    };
    let addresses = (0..hosts).map(|host| nth(host).filter(IpAddr::is_loopback).map(|ip| (ip, first.port()).into()));
    match addresses.collect() {
        Some(addresses) => Ok(addresses),
        None => bail!(
            "--listen {first} with {hosts} hosts leaves loopback: accepted are 127.0.0.0/8, and [::1] with one host"
        ),
    }
}

fn write_urls(urls: &[String], path: Option<&Path>) -> anyhow::Result<()> {
    let text = urls.join("\n") + "\n";
    match path {
        Some(path) => std::fs::write(path, text).with_context(|| format!("writing {}", path.display())),
        None => std::io::stdout().write_all(text.as_bytes()).context("writing the URLs to standard output"),
    }
}

/// Waits for Ctrl-C or SIGTERM.
pub(crate) async fn stopped() -> anyhow::Result<()> {
    let mut terminated = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    tokio::select! {
        pressed = tokio::signal::ctrl_c() => pressed?,
        _ = terminated.recv() => {}
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_consecutive_and_never_leave_loopback() {
        let first: SocketAddr = "127.0.0.255:8000".parse().unwrap();
        let addresses = consecutive(first, 2).unwrap();
        assert_eq!(addresses[1], "127.0.1.0:8000".parse().unwrap());
        assert!(consecutive("127.255.255.255:80".parse().unwrap(), 2).is_err());
        assert!(consecutive("10.0.0.1:80".parse().unwrap(), 1).is_err());
        assert!(consecutive("[::1]:80".parse().unwrap(), 1).is_ok());
        assert!(consecutive("[::1]:80".parse().unwrap(), 2).is_err());
    }
}
