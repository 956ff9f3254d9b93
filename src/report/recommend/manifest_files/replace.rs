//! Replaces files: each is written under another name first, and renamed once all of them are complete.

use std::{
    fs,
    io::{self, Write},
    os::unix::fs::{MetadataExt, PermissionsExt, chown},
    path::{Path, PathBuf},
};

use tempfile::NamedTempFile;

use super::{ManifestFilesError, io_error};

/// What everybody may do with a new file, as far as the user's mask allows.
const NEW_FILE_MODE: u32 = 0o666;

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
    let mut staged = temporary(target, None)?;
    staged.write_all(text.as_bytes())?;
    let made = staged.as_file().metadata()?;
    if (made.uid(), made.gid()) != (metadata.uid(), metadata.gid()) {
        chown(staged.path(), Some(metadata.uid()), Some(metadata.gid()))?;
    }
    staged.as_file_mut().set_permissions(metadata.permissions())?;
    staged.as_file().sync_all()?;
    Ok(staged)
}

/// A file in the folder of another one. The user's mask applies to its permissions.
fn temporary(target: &Path, permissions: Option<fs::Permissions>) -> io::Result<NamedTempFile> {
    let folder = target.parent().filter(|folder| *folder != Path::new(""));
    let mut builder = tempfile::Builder::new();
    builder.prefix(".plimsoll-");
    if let Some(permissions) = permissions {
        builder.permissions(permissions);
    }
    builder.tempfile_in(folder.unwrap_or(Path::new(".")))
}

/// Creates or replaces files that only this program writes, in this order. All of them are complete before the first one
/// is there.
pub(super) fn own_files(files: &[(PathBuf, &str)]) -> Result<(), ManifestFilesError> {
    let mut staged = Vec::new();
    for (path, text) in files {
        staged.push(stage_own(path, text).map_err(|error| io_error("write", path, error))?);
    }
    for ((file, is_new), (path, _)) in staged.into_iter().zip(files) {
        // A link that was made in the meantime must not be followed or replaced.
        let written = if is_new { file.persist_noclobber(path) } else { file.persist(path) };
        written.map_err(|error| io_error("write", path, error.error))?;
    }
    Ok(())
}

/// Writes a text beside the file that it is for; returns whether that file is new, too.
fn stage_own(path: &Path, text: &str) -> io::Result<(NamedTempFile, bool)> {
    match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.is_file() => Ok((stage(path, text)?, false)),
        Ok(_) => Err(io::Error::new(io::ErrorKind::AlreadyExists, "it is not a regular file")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let mut staged = temporary(path, Some(fs::Permissions::from_mode(NEW_FILE_MODE)))?;
            staged.write_all(text.as_bytes())?;
            staged.as_file().sync_all()?;
            Ok((staged, true))
        }
        Err(error) => Err(error),
    }
}
