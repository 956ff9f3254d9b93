//! Owns the folder of one run: tests keep their files there, so that what they leave behind is seen, and then removed.

use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::suite::TestbedUsage;

/// Processes of a bed end a moment after the test that held it.
const CLEANUP_GRACE: Duration = Duration::from_secs(15);

/// Removes the folder when its input ends, which it does however this process ends. Beds that are on their way out clean
/// up first: they would write into a folder that is gone.
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

// === impl Scratch ===

impl RunFolder {
    /// A fresh one.
    pub fn new() -> Result<Self> {
        let folder = std::env::temp_dir().join(format!("plimsoll-run-{}", std::process::id()));
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
            // Out of reach of a Ctrl-C, after which it is needed most.
            .process_group(0)
            .spawn()
            .context("there is no shell")?;
        Ok(Self { folder, sweeper })
    }

    /// For the files of tests.
    pub fn files(&self) -> PathBuf {
        self.folder.join("files")
    }

    /// Where the testbed notes what it does.
    pub fn events_file(&self) -> PathBuf {
        self.folder.join("events")
    }

    /// What it has noted.
    pub fn events(&self) -> TestbedUsage {
        TestbedUsage::parse(&fs::read_to_string(self.events_file()).unwrap_or_default())
    }

    /// For the reasons of tests that could not run.
    pub fn skipped_folder(&self) -> PathBuf {
        self.folder.join("not-run")
    }

    /// Those reasons.
    pub fn skip_reasons(&self) -> Result<Vec<String>> {
        let mut reasons = fs::read_dir(self.skipped_folder())?
            .map(|entry| Ok(fs::read_to_string(entry?.path())?.trim().to_owned()))
            .collect::<Result<Vec<_>>>()?;
        reasons.sort();
        Ok(reasons)
    }

    /// What tests left once everything had time to go away.
    pub fn leftovers(&self) -> Vec<String> {
        let start = Instant::now();
        loop {
            let left: Vec<_> = fs::read_dir(self.files())
                .into_iter()
                .flatten()
                .filter_map(|entry| Some(entry.ok()?.path().display().to_string()))
                .collect();
            if left.is_empty() || start.elapsed() > CLEANUP_GRACE {
                return left;
            }
            thread::sleep(Duration::from_millis(100));
        }
    }
}

impl Drop for RunFolder {
    fn drop(&mut self) {
        drop(self.sweeper.stdin.take());
        // It ends by itself, whatever it finds.
        let _ = self.sweeper.wait();
    }
}
