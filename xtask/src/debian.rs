//! Programs from Debian's archive, unpacked into the cache without installing them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::cache;

/// The folder into which a package of the running Debian release is unpacked.
pub fn package(name: &str) -> Result<PathBuf> {
    let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let version = release
        .lines()
        .find_map(|line| line.strip_prefix("VERSION_ID="))
        .map_or("unknown", |value| value.trim_matches('"'));
    let activity = format!("fetching Debian's {name}");
    cache::fetch(&format!("debian-{version}-{name}"), &activity, |dir| unpack(name, dir))
}

fn unpack(name: &str, dir: &Path) -> Result<()> {
    // apt stores its lists in our own folders, so this needs neither root nor changes to the system.
    let apt = dir.join("apt");
    fs::create_dir_all(apt.join("lists/partial"))?;
    fs::create_dir_all(apt.join("cache/archives/partial"))?;
    let get = |arguments: &[&str]| -> Result<()> {
        let output = Command::new("apt-get")
            .current_dir(&apt)
            .arg("-o")
            .arg(format!("Dir::State::lists={}", apt.join("lists").display()))
            .arg("-o")
            .arg(format!("Dir::Cache={}", apt.join("cache").display()))
            // apt drops root for a user that cannot read our folders.
            .args(["-o", "APT::Sandbox::User=root", "-qq"])
            .args(arguments)
            .output()
            .context("apt-get not found: this program comes from the archive of Debian 12")?;
        let error = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "apt-get {}: {}", arguments.join(" "), error.trim());
        Ok(())
    };
    get(&["update"])?;
    get(&["download", name])?;
    let archive = fs::read_dir(&apt)?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .find(|path| path.extension().is_some_and(|extension| extension == "deb"))
        .with_context(|| format!("apt-get downloaded nothing for {name}"))?;
    let status = Command::new("dpkg").arg("-x").args([&archive, dir]).status()?;
    ensure!(status.success(), "dpkg failed to unpack {}", archive.display());
    fs::remove_dir_all(&apt)?;
    Ok(())
}
