//! Programs from Debian's archive, unpacked into the cache without installing them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::cache;

/// The folder into which a package of the running Debian release is unpacked.
pub fn package(name: &str) -> Result<PathBuf> {
    let activity = format!("fetching Debian's {name}");
    cache::fetch(&format!("debian-{}-{name}", release()), &activity, |dir| {
        let archives = Archives::new(dir)?;
        archives.get(&["download", name])?;
        archives.unpack(&archives.apt)
    })
}

/// The folder into which a package is unpacked together with all packages that it depends on and that are not installed.
pub fn package_with_dependencies(name: &str) -> Result<PathBuf> {
    let activity = format!("fetching Debian's {name} and what it depends on");
    cache::fetch(&format!("debian-{}-{name}-with-dependencies", release()), &activity, |dir| {
        let archives = Archives::new(dir)?;
        // Nothing is installed, so apt needs none of the system's locks.
        let options = ["-o", "Debug::NoLocking=1", "--no-install-recommends", "--download-only"];
        archives.get(&[&options[..], &["--yes", "install", name]].concat())?;
        archives.unpack(&archives.apt.join("cache/archives"))
    })
}

fn release() -> String {
    let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let version = release.lines().find_map(|line| line.strip_prefix("VERSION_ID="));
    version.map_or("unknown", |value| value.trim_matches('"')).to_owned()
}

/// Archives on their way into a folder. apt stores its lists in our own folders, so this needs neither root nor changes to
/// the system.
struct Archives<'a> {
    dir: &'a Path,
    apt: PathBuf,
}

// === impl Archives ===

impl<'a> Archives<'a> {
    fn new(dir: &'a Path) -> Result<Self> {
        let apt = dir.join("apt");
        fs::create_dir_all(apt.join("lists/partial"))?;
        fs::create_dir_all(apt.join("cache/archives/partial"))?;
        let archives = Self { dir, apt };
        archives.get(&["update"])?;
        Ok(archives)
    }

    fn get(&self, arguments: &[&str]) -> Result<()> {
        let output = Command::new("apt-get")
            .current_dir(&self.apt)
            .arg("-o")
            .arg(format!("Dir::State::lists={}", self.apt.join("lists").display()))
            .arg("-o")
            .arg(format!("Dir::Cache={}", self.apt.join("cache").display()))
            // apt drops root for a user that cannot read our folders.
            .args(["-o", "APT::Sandbox::User=root", "-qq"])
            .args(arguments)
            .output()
            .context("apt-get not found: this program comes from the archive of Debian 12")?;
        let error = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "apt-get {}: {}", arguments.join(" "), error.trim());
        Ok(())
    }

    /// Unpacks the archives in this folder, and removes apt's files.
    fn unpack(&self, from: &Path) -> Result<()> {
        let files = fs::read_dir(from)?.filter_map(|entry| Some(entry.ok()?.path()));
        let is_archive =
            |path: &PathBuf| path.extension().is_some_and(|extension| extension == "deb");
        let archives: Vec<PathBuf> = files.filter(is_archive).collect();
        ensure!(!archives.is_empty(), "apt-get downloaded nothing into {}", from.display());
        for archive in archives {
            let status = Command::new("dpkg").arg("-x").arg(&archive).arg(self.dir).status()?;
            ensure!(status.success(), "dpkg failed to unpack {}", archive.display());
        }
        fs::remove_dir_all(&self.apt)?;
        Ok(())
    }
}
