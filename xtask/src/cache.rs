//! The folder in the user's cache that holds built and downloaded test programs.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::console::timed;

/// `plimsoll` in the user's cache folder: `$XDG_CACHE_HOME`, or `.cache` at home.
pub fn folder() -> Result<PathBuf> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let cache = set("XDG_CACHE_HOME")
        .filter(|path| path.is_absolute())
        .or_else(|| set("HOME").map(|home| home.join(".cache")))
        .context(
            "neither XDG_CACHE_HOME nor HOME is set: set one, test programs are stored below it",
        )?;
    Ok(cache.join("plimsoll"))
}

/// The folder `name` of the cache; `fill` creates it if it is missing.
///
/// It is created atomically: filled under another name, then renamed. A lock prevents two processes from doing the
/// same work at once, even if one of them is killed.
pub fn fetch(
    name: &str,
    activity: &str,
    fill: impl FnOnce(&Path) -> Result<()>,
) -> Result<PathBuf> {
    fetch_in(&folder()?, name, activity, fill)
}

fn fetch_in(
    cache: &Path,
    name: &str,
    activity: &str,
    fill: impl FnOnce(&Path) -> Result<()>,
) -> Result<PathBuf> {
    let ready = cache.join(name);
    if ready.is_dir() {
        return Ok(ready);
    }
    let locks = cache.join("locks");
    fs::create_dir_all(&locks)
        .with_context(|| format!("cannot create {}: make it writable", locks.display()))?;
    let lock = File::create(locks.join(name))?;
    lock.lock().with_context(|| format!("cannot lock {name} in {}", locks.display()))?;
    // Another process may have created it while this one waited for the lock.
    if ready.is_dir() {
        return Ok(ready);
    }
    let half = cache.join(format!(".{name}.half"));
    if half.exists() {
        fs::remove_dir_all(&half)?;
    }
    fs::create_dir_all(&half)?;
    timed(activity, || fill(&half))?;
    fs::rename(&half, &ready)?;
    Ok(ready)
}

/// Writes a small file of the cache atomically: several processes may write the same file.
pub fn write_atomically(path: &Path, text: &str) -> Result<()> {
    let folder = path.parent().context("the path of a cached file has no parent folder")?;
    fs::create_dir_all(folder)
        .with_context(|| format!("cannot create {}: make it writable", folder.display()))?;
    let mut half = path.as_os_str().to_owned();
    half.push(format!(".{}.half", std::process::id()));
    fs::write(&half, text)?;
    fs::rename(&half, path)?;
    Ok(())
}

/// Removes the whole folder and returns how many bytes that freed.
pub fn clean() -> Result<u64> {
    let cache = folder()?;
    if !cache.exists() {
        return Ok(0);
    }
    if !cache.ends_with("plimsoll") {
        bail!("{} does not look like the project's cache", cache.display());
    }
    let size = size(&cache)?;
    fs::remove_dir_all(&cache).with_context(|| format!("cannot remove {}", cache.display()))?;
    Ok(size)
}

fn size(path: &Path) -> Result<u64> {
    let meta = fs::symlink_metadata(path)?;
    if !meta.is_dir() {
        return Ok(meta.len());
    }
    fs::read_dir(path)?.map(|entry| size(&entry?.path())).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cache_entry_is_built_once_and_then_found() {
        let cache = tempfile::tempdir().expect("a temporary folder");
        let make = |dir: &Path| Ok(fs::write(dir.join("part"), "made")?);
        let path =
            fetch_in(cache.path(), "a", "making a part", make).expect("the first call builds it");
        assert_eq!(fs::read_to_string(path.join("part")).expect("the part"), "made");
        let never = |_: &Path| bail!("built again");
        fetch_in(cache.path(), "a", "making a part", never).expect("the second call finds it");
    }

    #[test]
    fn a_failed_build_does_not_count_as_a_complete_entry() {
        let cache = tempfile::tempdir().expect("a temporary folder");
        let fail_half_way = |dir: &Path| {
            fs::write(dir.join("half"), "")?;
            bail!("no network")
        };
        fetch_in(cache.path(), "a", "making a part", fail_half_way).expect_err("the build failed");
        let make = |dir: &Path| Ok(fs::write(dir.join("part"), "made")?);
        let path = fetch_in(cache.path(), "a", "making a part", make).expect("built again");
        assert!(path.join("part").exists() && !path.join("half").exists());
    }
}
