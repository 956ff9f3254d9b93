//! The folder for the files of one test run: it detects files that tests leave behind, and is removed at the end.

use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::suite::TestbedUsage;

/// What a run needs of the file system: a full one makes API servers time out, which does not look like a full disk.
const MIN_FREE_BYTES: u64 = 4 << 30;

/// Processes of a control plane end shortly after the test that used it.
const CLEANUP_GRACE: Duration = Duration::from_secs(15);

/// Removes the folder when its stdin is closed, which happens however this process ends. It first waits for control
/// planes that are shutting down, because they would write into a removed folder.
const SWEEPER: &str = r#"
cat >/dev/null
left=100
while [ -e "$1/files/plimsoll-beds" ] && [ "$left" -gt 0 ]; do
    left=$((left - 1))
    sleep 0.1
done
rm -rf "$1"
"#;

/// The folder of a run.
pub struct RunFolder {
    folder: PathBuf,
    sweeper: Child,
}

// === impl RunFolder ===

impl RunFolder {
    /// Creates an empty folder, if the file system has room for a run.
    pub fn new() -> Result<Self> {
        let parent = std::env::temp_dir();
        let free = free_bytes(&parent)?;
        ensure!(
            free >= MIN_FREE_BYTES,
            "{} has {} MiB left, and a run of the tests needs {} MiB: remove files there",
            parent.display(),
            free >> 20,
            MIN_FREE_BYTES >> 20
        );
        let folder = parent.join(format!("plimsoll-run-{}", std::process::id()));
        for path in ["files", "not-run"].map(|name| folder.join(name)) {
            fs::create_dir_all(&path)
                .with_context(|| format!("cannot create {}", path.display()))?;
        }
        let sweeper = Command::new("sh")
            .args(["-c", SWEEPER, "sweeper"])
            .arg(&folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // In its own process group, so that Ctrl-C does not end it.
            .process_group(0)
            .spawn()
            .context("failed to start a shell")?;
        Ok(Self { folder, sweeper })
    }

    /// Folder for the files of tests.
    pub fn files(&self) -> PathBuf {
        self.folder.join("files")
    }

    /// File to which the testbed appends its events.
    pub fn events_file(&self) -> PathBuf {
        self.folder.join("events")
    }

    /// The events that were recorded.
    pub fn events(&self) -> TestbedUsage {
        TestbedUsage::parse(&fs::read_to_string(self.events_file()).unwrap_or_default())
    }

    /// Folder for the reasons of skipped tests.
    pub fn skipped_folder(&self) -> PathBuf {
        self.folder.join("not-run")
    }

    /// The reasons of skipped tests.
    pub fn skip_reasons(&self) -> Result<Vec<String>> {
        let mut reasons = fs::read_dir(self.skipped_folder())?
            .map(|entry| Ok(fs::read_to_string(entry?.path())?.trim().to_owned()))
            .collect::<Result<Vec<_>>>()?;
        reasons.sort();
        Ok(reasons)
    }

    /// Files that tests left, after a grace period for cleanup.
    pub fn leftovers(&self) -> Vec<String> {
        let start = Instant::now();
        loop {
            let leftovers: Vec<_> = fs::read_dir(self.files())
                .into_iter()
                .flatten()
                .filter_map(|entry| Some(entry.ok()?.path().display().to_string()))
                .collect();
            if leftovers.is_empty() || start.elapsed() > CLEANUP_GRACE {
                return leftovers;
            }
            thread::sleep(Duration::from_millis(100));
        }
    }
}

impl Drop for RunFolder {
    fn drop(&mut self) {
        drop(self.sweeper.stdin.take());
        // It exits once its stdin is closed.
        let _ = self.sweeper.wait();
    }
}

/// What is free on the file system of a folder, for users without privileges.
fn free_bytes(folder: &Path) -> Result<u64> {
    let system = rustix::fs::statvfs(folder)
        .with_context(|| format!("cannot read the free space of {}", folder.display()))?;
    Ok(system.f_bavail.saturating_mul(system.f_frsize))
}
