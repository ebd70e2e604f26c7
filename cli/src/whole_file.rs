//! Files that a command holds in memory as a whole.

use std::io::Read;
use std::path::Path;

use anyhow::{Context, ensure};

/// Bytes of a file: twice what a list of a million feeds needs. While it is read it may be in memory three times.
const MAX_BYTES: u64 = 256 << 20;

/// Reads a file; `-` is standard input.
pub(crate) fn read(file: &str) -> anyhow::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let unreadable = || format!("cannot read {file}");
    let too_large = || format!("{file} is larger than {} MiB; split it", MAX_BYTES >> 20);
    let mut source: Box<dyn Read> = if file == "-" {
        Box::new(std::io::stdin().lock())
    } else {
        let source = std::fs::File::open(Path::new(file)).with_context(unreadable)?;
        // Reported before anything is read. What is not a file has no length.
        ensure!(source.metadata().with_context(unreadable)?.len() <= MAX_BYTES, too_large());
        Box::new(source)
    };
    let length = source.by_ref().take(MAX_BYTES + 1).read_to_end(&mut bytes).with_context(unreadable)?;
    ensure!(length as u64 <= MAX_BYTES, too_large());
    Ok(bytes)
}
