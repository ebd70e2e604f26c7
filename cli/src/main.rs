//! The `feedfleet` binary: the fleet's roles and the operator's commands. The only crate that sees both halves.
//!
//! Each command group has a file; this one reads the command line and turns failures into exit codes: 0 done, 1 the
//! operation failed, 2 wrong usage or configuration.

/// Prints a line to standard error. A closed standard error is not an error.
macro_rules! note {
    ($($text:tt)*) => { $crate::output::note(format_args!($($text)*)) };
}

/// Prints such a line from a process that logs: with `log.format = "json"`, given first, it is an event of the log.
macro_rules! announce {
    ($format:expr, $($text:tt)*) => { $crate::logs::announce($format, format_args!($($text)*)) };
}

mod add;
mod all_in_one;
mod audience;
mod backends;
mod backup;
mod bell;
mod client;
mod cluster;
mod completions;
mod config;
mod demo;
mod descriptors;
mod discover;
mod entries;
mod feed;
mod feed_text;
mod feeds;
mod fetch;
mod filters;
mod first_poll;
mod fleet;
mod follow;
mod health;
mod health_check;
mod histories;
mod host;
mod import;
mod logs;
mod man;
mod migrate;
mod opml;
mod output;
mod parse;
mod ping;
mod progress;
mod push;
mod refresh;
mod reload;
mod requeue;
mod run;
mod settings;
mod setup;
mod simulate;
mod single;
mod stats;
mod stop_signals;
mod subscribe;
mod subscriptions;
mod tail;
mod terminal;
mod top;
mod typed;
mod usage;
mod values;
mod when;
mod whole_file;

use std::io;
use std::process::ExitCode;
use std::time::Duration;

use clap::{CommandFactory, Parser, Subcommand};
use tokio::runtime::Runtime;

use client::Refused;
use common::config::ConfigError;
use store::StoreError;

/// Chosen by measurement: `docs/performance.md`.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Polls RSS, Atom and JSON feeds on time and politely.
#[derive(Debug, Parser)]
#[command(
    name = "feedfleet",
    version,
    propagate_version = false,
    max_term_width = 100,
    after_help = "A first fleet, with nothing to install:\n  \
                  feedfleet run https://example.com/feed.xml\n\n\
                  In another terminal:\n  \
                  feedfleet feed list\n  \
                  feedfleet entries --follow\n\n\
                  Operator commands connect to the fleet at --server. Exit codes: 0 success, 1 failure, 2 wrong usage or \
                  configuration."
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Run(run::RunArgs),
    Demo(demo::DemoArgs),
    Scheduler(cluster::SchedulerArgs),
    Worker(cluster::WorkerArgs),
    Migrate(migrate::MigrateArgs),
    Setup(setup::SetupArgs),
    Backup(backup::BackupArgs),
    #[command(subcommand)]
    Feed(feed::FeedCommand),
    Import(import::ImportArgs),
    Export(import::ExportArgs),
    #[command(subcommand)]
    Fleet(fleet::FleetCommand),
    #[command(subcommand)]
    Host(host::HostCommand),
    Requeue(requeue::RequeueArgs),
    Ping(ping::PingArgs),
    #[command(subcommand)]
    Push(push::PushCommand),
    Entries(entries::EntriesArgs),
    Events(entries::EventsArgs),
    Tail(tail::TailArgs),
    #[command(subcommand)]
    Subscription(subscribe::SubscriptionCommand),
    Stats(stats::StatsArgs),
    Top(top::TopArgs),
    Health(health_check::HealthArgs),
    Fetch(fetch::FetchArgs),
    Discover(discover::DiscoverArgs),
    Parse(parse::ParseArgs),
    Simulate(simulate::SimulateArgs),
    #[command(subcommand)]
    Config(config::ConfigCommand),
    Completions(completions::CompletionsArgs),
    Man(man::ManArgs),
    /// Prints the version
    Version,
}

/// How long threads that still run when a command has ended are waited for.
const LEFT_BEHIND: Duration = Duration::from_millis(100);

fn main() -> ExitCode {
    let cli = Cli::parse();
    // Fails only when a provider is installed already, and this is the first thing that happens.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let done = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let done = done.map_err(anyhow::Error::from).and_then(|runtime| run_to_end(runtime, cli.command));
    done.unwrap_or_else(|error| failed(&error))
}

/// Runs the command. What it leaves behind, such as a name that is still being looked up, is not waited for.
fn run_to_end(runtime: Runtime, command: Command) -> anyhow::Result<ExitCode> {
    let done = runtime.block_on(execute(command));
    runtime.shutdown_timeout(LEFT_BEHIND);
    done
}

async fn execute(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Run(args) => run::run(&args).await,
        Command::Demo(args) => demo::run(&args).await,
        Command::Scheduler(args) => cluster::scheduler(&args).await,
        Command::Worker(args) => cluster::worker(&args).await,
        Command::Migrate(args) => migrate::run(&args).await,
        Command::Setup(args) => setup::run(&args).await,
        Command::Backup(args) => backup::run(&args).await,
        Command::Feed(command) => feed::run(command).await,
        Command::Import(args) => import::import(&args).await,
        Command::Export(args) => import::export(&args).await,
        Command::Fleet(command) => fleet::run(command).await,
        Command::Host(command) => host::run(command).await,
        Command::Requeue(args) => requeue::run(&args).await,
        Command::Ping(args) => ping::run(&args).await,
        Command::Push(command) => push::run(command).await,
        Command::Entries(args) => entries::run(&args).await,
        Command::Events(args) => entries::events(&args).await,
        Command::Tail(args) => tail::run(&args).await,
        Command::Subscription(command) => subscribe::run(command).await,
        Command::Stats(args) => stats::run(&args).await,
        Command::Top(args) => top::run(&args).await,
        Command::Health(args) => health_check::run(&args).await,
        Command::Fetch(args) => fetch::run(&args).await,
        Command::Discover(args) => discover::run(&args).await,
        Command::Parse(args) => parse::run(&args),
        Command::Simulate(args) => simulate::run(&args).await,
        Command::Config(command) => config::run(command).await,
        Command::Completions(args) => completions::run(&args, Cli::command()),
        Command::Man(args) => man::run(&args, Cli::command()),
        Command::Version => {
            output::line(Cli::command().render_version().trim_end())?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// Prints what went wrong and returns the exit code for it.
fn failed(error: &anyhow::Error) -> ExitCode {
    let is_closed_pipe = |cause: &(dyn std::error::Error + 'static)| {
        cause.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
    };
    if error.chain().any(is_closed_pipe) {
        return ExitCode::SUCCESS;
    }
    output::error(error);
    // Starting again does not help either when the program is too old for the database: supervisors stop at code 2.
    let wrong_usage = error.is::<usage::Usage>()
        || error.is::<ConfigError>()
        || matches!(error.downcast_ref::<StoreError>(), Some(StoreError::TooNew { .. }))
        || error.downcast_ref::<Refused>().is_some_and(|refused| refused.status.as_u16() == 400);
    ExitCode::from(if wrong_usage { 2 } else { 1 })
}
