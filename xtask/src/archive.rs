//! Archives that are the same to the last byte whenever and wherever they are made.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use flate2::{Compression, GzBuilder};
use tar::{Builder, EntryType, Header};

/// A file of an archive.
#[derive(Debug)]
pub struct Entry {
    /// Its path in the archive.
    pub path: String,
    /// What it contains.
    pub bytes: Vec<u8>,
    /// Whether it is a program.
    pub is_program: bool,
}

impl Entry {
    /// A file of the disk.
    pub fn of(path: &Path, name: &str, is_program: bool) -> Result<Self> {
        let bytes = fs::read(path).with_context(|| path.display().to_string())?;
        Ok(Self { path: name.to_owned(), bytes, is_program })
    }
}

/// All files below a folder, under the name of the folder in the archive, sorted by path.
pub fn entries_below(folder: &Path, name: &str) -> Result<Vec<Entry>> {
    let mut entries = Vec::new();
    let mut folders = vec![(folder.to_owned(), name.to_owned())];
    while let Some((folder, prefix)) = folders.pop() {
        for file in fs::read_dir(&folder).with_context(|| folder.display().to_string())? {
            let file = file?;
            let path = format!("{prefix}/{}", file.file_name().to_string_lossy());
            if file.file_type()?.is_dir() {
                folders.push((file.path(), path));
            } else {
                entries.push(Entry::of(&file.path(), &path, false)?);
            }
        }
    }
    entries.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(entries)
}

/// Writes a `.tar.gz` without times, users and names of the machine.
pub fn write(path: &Path, entries: &[Entry]) -> Result<PathBuf> {
    let file = fs::File::create(path).with_context(|| path.display().to_string())?;
    let packed = GzBuilder::new().mtime(0).write(file, Compression::best());
    let mut archive = Builder::new(packed);
    for entry in entries {
        let mut header = Header::new_ustar();
        header.set_entry_type(EntryType::Regular);
        header.set_mode(if entry.is_program { 0o755 } else { 0o644 });
        header.set_size(entry.bytes.len() as u64);
        header.set_mtime(0);
        header.set_uid(0);
        header.set_gid(0);
        archive
            .append_data(&mut header, &entry.path, entry.bytes.as_slice())
            .with_context(|| entry.path.clone())?;
    }
    archive.into_inner()?.finish()?.sync_all()?;
    Ok(path.to_owned())
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use flate2::read::GzDecoder;

    use super::*;

    #[test]
    fn an_archive_depends_on_its_entries_alone() {
        let folder = tempfile::tempdir().expect("a folder");
        let tree = folder.path().join("tree");
        fs::create_dir_all(tree.join("b")).expect("a folder");
        fs::write(tree.join("b/two"), "2").expect("a file");
        fs::write(tree.join("one"), "1").expect("a file");
        let mut entries = entries_below(&tree, "chart").expect("readable");
        let paths: Vec<&str> = entries.iter().map(|entry| &*entry.path).collect();
        assert_eq!(paths, ["chart/b/two", "chart/one"]);
        entries[1].is_program = true;
        let first = write(&folder.path().join("1.tar.gz"), &entries).expect("written");
        let second = write(&folder.path().join("2.tar.gz"), &entries).expect("written");
        let bytes = fs::read(first).expect("the archive");
        assert_eq!(bytes, fs::read(second).expect("the archive"));

        let mut archive = tar::Archive::new(GzDecoder::new(bytes.as_slice()));
        let mut read = Vec::new();
        for entry in archive.entries().expect("entries") {
            let mut entry = entry.expect("an entry");
            let mut text = String::new();
            entry.read_to_string(&mut text).expect("text");
            let header = entry.header();
            read.push((header.mode().expect("a mode"), header.mtime().expect("a time"), text));
        }
        assert_eq!(read, [(0o644, 0, "2".to_owned()), (0o755, 0, "1".to_owned())]);
    }
}
