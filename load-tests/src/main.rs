//! The fake internet by hand: serves a population of scripted feeds, for trials and for kill tests.

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
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    match Arguments::parse().command {
        Command::Origin(options) => serve::serve(&options).await,
    }
}
