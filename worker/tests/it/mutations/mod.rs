//! Seeded mutations of what strangers send: feeds, coded bodies, header fields. Nothing kills their readers, and nothing
//! takes long.
//!
//! `dev/test` runs a few hundred mutations of our own feeds; `dev/soak corpus`, which names a folder of feeds in
//! `FEEDFLEET_CORPUS`, `FEEDFLEET_MUTATIONS` of that (`common::testing::mutations`). `dev/soak fuzz` passes the same targets to
//! libFuzzer (`worker/fuzz`).

mod heads;
mod targets;

use std::path::{Path, PathBuf};

use common::testing::mutations::{count, survives, write_seeds};

/// Returns all files below a folder, in the order of their names.
fn files_below(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        let members = std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        for member in members.flatten() {
            let path = member.path();
            if path.is_dir() { folders.push(path) } else { files.push(path) }
        }
    }
    files.sort();
    files
}

#[test]
fn mutated_feeds_neither_kill_the_parser_nor_take_long() {
    let ours = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/feeds");
    let folder = std::env::var_os("FEEDFLEET_CORPUS").map_or(ours, PathBuf::from);
    let documents: Vec<Vec<u8>> = files_below(&folder).iter().map(|path| std::fs::read(path).unwrap()).collect();
    let (mut feeds, mut repaired) = (0, 0);
    survives("feeds", &documents, count(), |bytes| {
        if let Some(was_repaired) = targets::feed(bytes) {
            feeds += 1;
            repaired += usize::from(was_repaired);
        }
    });
    println!("{feeds} were feeds, {repaired} of them repaired");
}

#[test]
fn mutated_bodies_neither_kill_the_decoders_nor_take_long() {
    survives("coded bodies", &targets::body_seeds(), count(), targets::body);
}

#[test]
fn mutated_header_fields_neither_kill_their_readers_nor_take_long() {
    let seeds = targets::header_seeds();
    survives("header blocks", &seeds, 10 * count(), targets::headers);
}

#[test]
fn mutated_pages_neither_kill_their_readers_nor_take_long() {
    survives("pages", &targets::html_seeds(), 4 * count(), targets::html);
}

/// Unmutated, the seeds reach what they are meant for. `FEEDFLEET_SEEDS` names a folder that they are also written to, for
/// libFuzzer.
#[test]
fn the_seeds_are_what_the_readers_take() {
    let all = [
        ("feed", targets::feed_seeds()),
        ("body", targets::body_seeds()),
        ("headers", targets::header_seeds()),
        ("html", targets::html_seeds()),
        ("heads", heads::seeds()),
    ];
    assert!(all[0].1.iter().all(|seed| targets::feed(seed).is_some()));
    all[1].1.iter().for_each(|seed| targets::body(seed));
    all[2].1.iter().for_each(|seed| targets::headers(seed));
    all[3].1.iter().for_each(|seed| targets::html(seed));
    all.iter().for_each(|(target, seeds)| write_seeds(target, seeds));
}
