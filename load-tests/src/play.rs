//! `scenario`: runs scenarios from files in sequence, and reports which figures missed their bounds.

use std::path::PathBuf;

use clap::Args;
use load_tests::scenario::file::Form;
use load_tests::scenario::{Setting, run};

/// What to run, and how.
#[derive(Args, Debug)]
pub(crate) struct Options {
    /// Files of scenarios
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// The program; without this the one beside this program
    #[arg(long, value_name = "PATH")]
    binary: Option<PathBuf>,
    /// The short form: about a minute
    #[arg(long)]
    short: bool,
    /// The form with a planted fault: good is a run in which a check misses
    #[arg(long)]
    planted: bool,
    /// Where reports go: NAME.txt, NAME.json and NAME.svg
    #[arg(long, value_name = "FOLDER", default_value = "target/load")]
    report: PathBuf,
}

/// Returns whether all runs had the expected result.
pub(crate) async fn play(options: &Options) -> anyhow::Result<bool> {
    let binary = match &options.binary {
        Some(binary) => binary.clone(),
        None => std::env::current_exe()?.with_file_name("feedfleet"),
    };
    let form = Form { short: options.short, planted: options.planted };
    let setting = Setting { binary, form, progress: true };
    let mut good = true;
    for file in &options.files {
        let report = run(file, &setting).await?;
        let path = report.write(&options.report)?;
        println!("{report}\nwritten: {}, .json, .svg\n", path.display());
        good &= report.is_good() != options.planted;
    }
    Ok(good)
}
