//! A small disk for an embedded store that can be filled: a tmpfs, mounted for the run.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use super::error::ScenarioError;

/// A mounted tmpfs. Unmounted when dropped.
pub(super) struct Disk {
    folder: PathBuf,
}

impl Disk {
    /// Mounts a disk of `megabytes` megabytes on a new folder; needs root.
    pub(super) fn new(folder: &Path, megabytes: u32) -> Result<Self, ScenarioError> {
        let failed = |error| ScenarioError::Io(format!("mounting a tmpfs on {}", folder.display()), error);
        std::fs::create_dir_all(folder).map_err(failed)?;
        let size = format!("size={megabytes}m");
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(folder).output();
        let mounted = mounted.map_err(failed)?;
        if !mounted.status.success() {
            let why = String::from_utf8_lossy(&mounted.stderr);
            return Err(ScenarioError::Set(format!("a disk of its own cannot be mounted; run it as root: {why}")));
        }
        Ok(Disk { folder: folder.to_owned() })
    }

    /// Fills the disk completely, or deletes what filled it.
    pub(super) fn fill(&self, full: bool) -> Result<(), ScenarioError> {
        let path = self.folder.join("filling");
        let failed = |error| ScenarioError::Io("filling a disk".to_owned(), error);
        if !full {
            return std::fs::remove_file(path).map_err(failed);
        }
        let mut file = OpenOptions::new().create(true).append(true).open(path).map_err(failed)?;
        let mut size = 1 << 20;
        while size > 0 {
            match file.write(&vec![b'x'; size]) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::StorageFull => size /= 2,
                Err(error) => return Err(failed(error)),
            }
        }
        Ok(())
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // A process that was just killed may use it a moment longer: a lazy unmount takes effect when the last one
        // ends.
        let _ = Command::new("umount").arg("--lazy").arg(&self.folder).status();
    }
}
