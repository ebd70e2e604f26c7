//! `feedfleet setup`: users of PostgreSQL, Redis and RabbitMQ that may do what their role needs, and nothing else.
//!
//! Each server has a file here, which prints its commands or executes them. What a role needs is known where the server is used:
//! [`common::redis::rights`], [`common::queue::rabbitmq::Rights`], [`store::postgres::setup`].

mod postgres;
mod rabbitmq;
mod redis;
mod user;

use std::io::Read;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, anyhow};
use clap::{Args, ValueEnum};
use common::server_password::ServerPassword;

use self::user::{Role, User, user_name};
use crate::output;
use crate::settings::SettingsArgs;
use crate::usage::Usage;

/// Prints or applies the users and rights that schedulers and workers need at a server
///
/// Prints commands for the server's own tool, with a user for one role: what the role needs, and nothing else. With --apply it executes
/// them over an administrator's URL instead. Both may be repeated: an existing user gets these rights and a new password, or keeps its own
/// with --keep-password.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    feedfleet setup redis --role worker                      for redis-cli\n  \
    feedfleet setup rabbitmq --role scheduler                for a shell with rabbitmqctl\n  \
    feedfleet setup postgres --role scheduler | psql -d postgres\n  \
    FEEDFLEET_ADMIN_URL=postgres://postgres:SECRET@db/postgres feedfleet setup postgres --role scheduler --apply\n  \
    FEEDFLEET_ADMIN_URL=https://admin:SECRET@mq:15671 feedfleet setup rabbitmq --role worker --apply\n\n\
    Standard output has the commands; standard error the role's settings with the password, which is shown this one time. With --apply \
    the settings are on standard output, as lines of an environment file. Workers do not connect to PostgreSQL.")]
pub(crate) struct SetupArgs {
    /// The server
    #[arg(value_enum)]
    server: Server,

    /// The role that the user is for
    #[arg(long, value_enum)]
    role: Role,

    /// Executes the commands instead of printing them
    #[arg(long)]
    apply: bool,

    /// Administrator's URL for --apply: postgres://, redis:// (with several hosts each of them), or for RabbitMQ that of its management
    /// plugin, such as http://HOST:15672. The variable keeps its password out of the list of processes
    #[arg(long, value_name = "URL", env = "FEEDFLEET_ADMIN_URL", hide_env_values = true)]
    admin_url: Option<String>,

    /// Name of the user [default: NAMESPACE-scheduler or NAMESPACE-worker]
    #[arg(long, value_name = "NAME", value_parser = user_name)]
    user: Option<String>,

    /// File with the user's password; `-` reads standard input [default: a random password]
    #[arg(long, value_name = "FILE")]
    password_file: Option<PathBuf>,

    /// The user exists and keeps its password: only its rights are set
    #[arg(long, conflicts_with = "password_file")]
    keep_password: bool,

    /// The workers have secrets.key: at RabbitMQ they also receive the jobs that need a feed's login
    #[arg(long)]
    logins: bool,

    /// Virtual host of RabbitMQ [default: that of queue.url, or /]
    #[arg(long, value_name = "NAME")]
    vhost: Option<String>,

    /// Database of PostgreSQL [default: that of store.url, or feedfleet]
    #[arg(long, value_name = "NAME", value_parser = user_name)]
    database: Option<String>,

    #[command(flatten)]
    settings: SettingsArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Server {
    Postgres,
    Redis,
    Rabbitmq,
}

/// Runs it.
pub(crate) async fn run(args: &SetupArgs) -> anyhow::Result<ExitCode> {
    let config = args.settings.load(&[])?.config;
    if (args.server, args.role) == (Server::Postgres, Role::Worker) {
        output::line("-- Workers do not connect to PostgreSQL: they need no role, and no store.url.")?;
        return Ok(ExitCode::SUCCESS);
    }
    let user = User {
        role: args.role,
        name: args.user.clone().unwrap_or_else(|| format!("{}-{}", config.namespace, args.role.name())),
        password: password(args)?,
        logins: args.logins,
    };
    let setup = match args.server {
        Server::Postgres => postgres::setup(&config, &user, args.database.as_deref()),
        Server::Redis => redis::setup(&config, &user),
        Server::Rabbitmq => rabbitmq::setup(&config, &user, args.vhost.as_deref())?,
    };
    if args.apply {
        let url = args.admin_url.as_deref().ok_or_else(|| {
            anyhow!(Usage("--apply needs an administrator's URL: set FEEDFLEET_ADMIN_URL, or --admin-url URL".into()))
        })?;
        match args.server {
            Server::Postgres => postgres::apply(&config, &user, args.database.as_deref(), url).await?,
            Server::Redis => redis::apply(&config, &user, url).await?,
            Server::Rabbitmq => rabbitmq::apply(&config, &user, args.vhost.as_deref(), url).await?,
        }
        setup.settings.iter().try_for_each(|setting| output::line(setting))?;
        let rest = if args.keep_password { " and keeps its password" } else { "; the lines above are its settings" };
        note!("user {} has the rights of a {}{rest}", user.name, user.role.name());
    } else {
        output::line(&setup.commands)?;
        note!("{}", setup.paste);
        if !setup.settings.is_empty() {
            note!("then for each {}, with the server's own host:", user.role.name());
            setup.settings.iter().for_each(|setting| note!("{setting}"));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the password to set; `None` if the user keeps its own.
fn password(args: &SetupArgs) -> anyhow::Result<Option<ServerPassword>> {
    if args.keep_password {
        return Ok(None);
    }
    let Some(file) = &args.password_file else { return Ok(Some(ServerPassword::random())) };
    let text = if file.as_os_str() == "-" {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).context("cannot read the password from standard input")?;
        text
    } else {
        std::fs::read_to_string(file).with_context(|| format!("cannot read the password file {}", file.display()))?
    };
    ServerPassword::read(text.trim_end()).map(Some).map_err(|error| anyhow!(Usage(error.to_string())))
}
