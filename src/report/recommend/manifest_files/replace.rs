//! Replaces files: each is written under another name first, and renamed once all of them are complete.

use std::{
    fs,
    io::{self, Write},
    os::unix::fs::{MetadataExt, chown},
    path::{Path, PathBuf},
};

use tempfile::NamedTempFile;

use super::{ManifestFilesError, io_error};

/// A file with its new text.
pub(super) struct Replacement<'p> {
    /// The path without links.
    pub target: PathBuf,
    pub before: &'p str,
    pub after: &'p str,
}

/// The path without links, if the file may be replaced; otherwise why not.
pub(super) fn check(path: &Path, real_root: &Path, before: &str) -> Result<PathBuf, String> {
    let target = fs::canonicalize(path).map_err(|error| format!("cannot be found: {error}"))?;
    if !target.starts_with(real_root) {
        return Err(format!("is a link to {}, which is outside of the path", target.display()));
    }
    let metadata = fs::metadata(&target).map_err(|error| format!("cannot be found: {error}"))?;
    if metadata.permissions().readonly() {
        return Err("is read-only".to_owned());
    }
    let current = fs::read(&target).map_err(|error| format!("cannot be read: {error}"))?;
    if current != before.as_bytes() {
        return Err("has changed since it was read".to_owned());
    }
    Ok(target)
}

/// Replaces all files. If one cannot be renamed, those before it get their text back.
pub(super) fn all(replacements: &[Replacement<'_>]) -> Result<(), ManifestFilesError> {
    let mut staged = Vec::new();
    for Replacement { target, after, .. } in replacements {
        staged.push(stage(target, after).map_err(|error| io_error("write", target, error))?);
    }
    for (index, (file, replacement)) in staged.into_iter().zip(replacements).enumerate() {
        if let Err(error) = file.persist(&replacement.target) {
            return Err(ManifestFilesError::Interrupted {
                path: replacement.target.clone(),
                error: error.error,
                restored: restore(&replacements[..index]),
            });
        }
    }
    Ok(())
}

fn restore(written: &[Replacement<'_>]) -> String {
    let put_back = |file: &&Replacement<'_>| {
        stage(&file.target, file.before)
            .and_then(|staged| staged.persist(&file.target).map_err(|error| error.error))
            .is_err()
    };
    let lost: Vec<_> =
        written.iter().filter(put_back).map(|file| file.target.display().to_string()).collect();
    if lost.is_empty() {
        "no file was changed".to_owned()
    } else {
        format!("these files are changed already: {}", lost.join(", "))
    }
}

/// Writes a text beside a file, with the permissions and the owner of the file.
fn stage(target: &Path, text: &str) -> io::Result<NamedTempFile> {
    let metadata = fs::metadata(target)?;
    let mut staged = staged_text(target, text)?;
    let made = staged.as_file().metadata()?;
    if (made.uid(), made.gid()) != (metadata.uid(), metadata.gid()) {
        chown(staged.path(), Some(metadata.uid()), Some(metadata.gid()))?;
    }
    staged.as_file_mut().set_permissions(metadata.permissions())?;
    staged.as_file().sync_all()?;
    Ok(staged)
}

fn staged_text(target: &Path, text: &str) -> io::Result<NamedTempFile> {
    let folder = target.parent().unwrap_or(Path::new("."));
    let mut staged = tempfile::Builder::new().prefix(".plimsoll-").tempfile_in(folder)?;
    staged.write_all(text.as_bytes())?;
    Ok(staged)
}

/// Creates or replaces a file that only this program writes.
pub(super) fn new_file(path: &Path, text: &str) -> Result<(), ManifestFilesError> {
    let failed = |error| io_error("write", path, error);
    if !path.exists() {
        // With the permissions that the user's mask allows, which a temporary file does not have.
        return fs::write(path, text).map_err(failed);
    }
    let staged = stage(path, text).map_err(failed)?;
    staged.persist(path).map(|_| ()).map_err(|error| io_error("write", path, error.error))
}
