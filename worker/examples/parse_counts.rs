//! Counts what the parser allocates for each document of a folder: `parse_counts FOLDER`, beside `parse_bench`, which
//! writes the documents. Run by `dev/bench parse`.

use allocation_counter::measure;
use anyhow::Context;
use worker::parse::{ParseLimits, parse};

fn main() -> anyhow::Result<()> {
    let folder = std::env::args().nth(1).context("usage: parse_counts FOLDER")?;
    let mut paths: Vec<_> =
        std::fs::read_dir(folder)?.map(|file| file.map(|file| file.path())).collect::<Result<_, _>>()?;
    paths.sort();
    println!("{:<34}{:>14}{:>14}{:>14}", "feed", "allocations", "bytes", "at once");
    for path in paths {
        let document = std::fs::read(&path)?;
        let read = || drop(parse(&document, Some("application/xml"), "https://a.example/", &ParseLimits::default()));
        // what is made once for all
        read();
        let counted = measure(read);
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        println!("{name:<34}{:>14}{:>14}{:>14}", counted.count_total, counted.bytes_total, counted.bytes_max);
    }
    Ok(())
}
