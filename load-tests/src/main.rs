//! The fake internet by hand: serves a population of scripted feeds, for trials and for kill tests; and benchmarks.

mod bare;
mod bench;
mod measure;
mod serve;

use clap::{Parser, Subcommand};

/// The fake internet: scripted feeds on loopback that record and judge who polls them.
#[derive(Debug, Parser)]
#[command(name = "load-tests", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve scripted feeds until Ctrl-C, then judge the requests.
    Origin(serve::Options),
    /// Measure 304 polls of the fleet or of the worker beside the bare parts.
    Bench(bench::Options),
    /// A bare loop, until killed.
    #[command(hide = true)]
    Bare(bare::Options),
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    match Arguments::parse().command {
        Command::Origin(options) => serve::serve(&options).await,
        Command::Bench(options) => bench::bench(&options).await,
        Command::Bare(options) => bare::poll(&options).await,
    }
}
