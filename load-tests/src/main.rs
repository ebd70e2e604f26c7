//! The fake internet as a program: serves a population of scripted feeds, for trials and for kill tests; load
//! scenarios; and benchmarks.

mod bare;
mod bench;
mod cluster;
mod deliveries;
mod measure;
mod play;
mod serve;
mod settings;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use load_tests::simulate::histories;

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
    /// Measure deliveries to webhooks beside a bare loop, and polls beside subscriptions that match nothing.
    Deliveries(deliveries::Options),
    /// Run load scenarios of files against a real fleet, and judge them by the origin's log.
    Scenario(play::Options),
    /// Print made-up posting histories, in the format that `feedfleet simulate` and the reference simulation read.
    Histories {
        /// Chooses everything.
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// How many feeds of each kind.
        #[arg(long, default_value_t = 25)]
        of_each: usize,
    },
    /// A bare loop, until killed.
    #[command(hide = true)]
    Bare(bare::Options),
}

#[tokio::main]
async fn main() -> anyhow::Result<ExitCode> {
    match Arguments::parse().command {
        Command::Origin(options) => serve::serve(&options).await?,
        Command::Bench(options) => until_stopped(bench::bench(&options)).await?,
        Command::Deliveries(options) => until_stopped(deliveries::bench(&options)).await?,
        Command::Scenario(options) => {
            let passed = until_stopped(play::play(&options)).await?;
            return Ok(if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE });
        }
        Command::Histories { seed, of_each } => {
            print!("{}", histories::write(&histories::generated(seed, of_each)));
        }
        Command::Bare(options) => bare::poll(&options).await?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs what starts a fleet. After Ctrl-C or SIGTERM it is dropped, which stops the fleet's processes.
async fn until_stopped<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    tokio::select! {
        done = work => done,
        stopped = serve::stopped() => {
            stopped?;
            anyhow::bail!("stopped by a signal")
        }
    }
}
