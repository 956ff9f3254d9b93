//! Finds manifests in folders.

use std::{
    fs::{self, File},
    io::Read,
    path::Path,
};

use plimsoll_core::manifests::{MAX_FILE_BYTES, MAX_FILES, Problem, Refusal};

use super::{ManifestFilesError, io_error};

/// The number of entries of folders that are looked at.
const MAX_ENTRIES: usize = 500_000;

/// Something below the folder.
pub(super) enum Found {
    /// The path of a manifest.
    File(String),
    /// Something that is not read.
    Problem(Problem),
}

/// The manifests in a file or folder, sorted by their path.
pub(super) fn find(root: &Path) -> Result<Vec<Found>, ManifestFilesError> {
    let metadata = fs::metadata(root).map_err(|error| io_error("find the path", root, error))?;
    if metadata.is_file() {
        return Ok(vec![named(root)]);
    }
    let real_root =
        fs::canonicalize(root).map_err(|error| io_error("find the path", root, error))?;
    let (mut found, mut files, mut entries) = (Vec::new(), 0, 0);
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        let listed = fs::read_dir(&folder).map_err(|error| io_error("list", &folder, error))?;
        for entry in listed {
            let entry = entry.map_err(|error| io_error("list", &folder, error))?;
            entries += 1;
            let path = entry.path();
            let file_type = entry.file_type().map_err(|error| io_error("find", &path, error))?;
            if files > MAX_FILES || entries > MAX_ENTRIES {
                return Err(ManifestFilesError::TooManyFiles(root.to_owned()));
            }
            if file_type.is_dir() {
                if !entry.file_name().as_encoded_bytes().starts_with(b".") {
                    folders.push(path);
                }
            } else if file_type.is_symlink() {
                found.extend(linked(&path, &real_root));
            } else if file_type.is_file() && is_manifest(&path) {
                files += 1;
                found.push(named(&path));
            }
        }
    }
    found.sort_by(|a, b| path_of(a).cmp(path_of(b)));
    Ok(found)
}

/// A file behind a link counts if it is elsewhere: within the folder it is found under its own name. It may
/// be shown, but not written.
fn linked(path: &Path, real_root: &Path) -> Option<Found> {
    let problem = |why: &str| Some(Found::Problem(unreadable(path, why)));
    match (fs::canonicalize(path), fs::metadata(path)) {
        (Ok(target), Ok(metadata)) if !target.starts_with(real_root) => {
            if metadata.is_dir() {
                problem("links to a folder elsewhere are not followed: name the folder itself")
            } else {
                (metadata.is_file() && is_manifest(path)).then(|| named(path))
            }
        }
        (Err(error), _) | (_, Err(error)) if is_manifest(path) => problem(&error.to_string()),
        _ => None,
    }
}

fn is_manifest(path: &Path) -> bool {
    let extension = path.extension().and_then(|extension| extension.to_str());
    matches!(extension, Some("yaml" | "yml" | "json"))
        || path.file_name().is_some_and(|name| name == "Kustomization")
}

fn named(path: &Path) -> Found {
    match path.to_str() {
        Some(path) => Found::File(path.to_owned()),
        None => Found::Problem(unreadable(path, "the name is not UTF-8: rename it")),
    }
}

fn unreadable(path: &Path, why: &str) -> Problem {
    Problem {
        file: path.to_string_lossy().into(),
        line: 1,
        subject: None,
        reason: Refusal::Unreadable(why.to_owned()),
    }
}

fn path_of(found: &Found) -> &str {
    match found {
        Found::File(path) => path,
        Found::Problem(problem) => &problem.file,
    }
}

/// The text of a manifest.
pub(super) fn read(path: &str) -> Result<String, Problem> {
    let refuse = |reason| Problem { file: path.into(), line: 1, subject: None, reason };
    let unreadable = |error: std::io::Error| refuse(Refusal::Unreadable(error.to_string()));
    let file = File::open(path).map_err(unreadable)?;
    let mut bytes = Vec::new();
    file.take(MAX_FILE_BYTES as u64 + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() > MAX_FILE_BYTES {
        return Err(refuse(Refusal::TooLarge));
    }
    String::from_utf8(bytes)
        .map_err(|_| refuse(Refusal::Unreadable("the text is not UTF-8: convert it".to_owned())))
}
