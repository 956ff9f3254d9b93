//! The files of `--diff PATH`, `--write PATH` and `-o kustomize=DIR`: finds manifests, and replaces files
//! safely.
//!
//! Reads and writes block: call this from a thread that may.

mod git;
mod replace;
mod walk;

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use plimsoll_core::{
    manifests::{EditPlan, GeneratedFile, MAX_FILES, ManifestSet, kustomize},
    rightsizing::report::Report,
};

use self::{replace::Replacement, walk::Found};

/// Why nothing was read or written.
#[derive(Debug, thiserror::Error)]
pub enum ManifestFilesError {
    /// Something cannot be read or written.
    #[error("cannot {action} {}: {error}", .path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        error: io::Error,
    },
    /// There are too many files.
    #[error("{} has more than {MAX_FILES} manifests or too many files: name a smaller folder", .0.display())]
    TooManyFiles(PathBuf),
    /// Files that must not be written.
    #[error("nothing was written: {}", .0.join("; "))]
    Refused(Vec<String>),
    /// git does not tell whether files have changes.
    #[error("nothing was written: git cannot tell whether the files have uncommitted changes: {0}")]
    Git(String),
    /// A write failed after others.
    #[error("cannot write {}: {error}; {restored}", .path.display())]
    Interrupted {
        path: PathBuf,
        error: io::Error,
        /// What became of the files that were written before.
        restored: String,
    },
    /// The folder belongs to somebody else.
    #[error("{} was not written by plimsoll recommend: name another folder, or remove it", .0.display())]
    ForeignFolder(PathBuf),
}

fn io_error(action: &'static str, path: &Path, error: io::Error) -> ManifestFilesError {
    ManifestFilesError::Io { action, path: path.to_owned(), error }
}

/// Reads the manifests in a file or folder, and plans their edits. Hidden folders and links to folders are
/// passed over.
pub fn plan(root: &Path, report: &Report) -> Result<EditPlan, ManifestFilesError> {
    let mut manifests = ManifestSet::new(report);
    for found in walk::find(root)? {
        match found {
            Found::File(path) => match walk::read(&path) {
                Ok(text) => manifests.add(&path, &text),
                Err(problem) => manifests.add_problem(problem),
            },
            Found::Problem(problem) => manifests.add_problem(problem),
        }
    }
    Ok(manifests.plan())
}

/// Writes the files of a plan: all or, as far as the file system allows, none. Files that are read-only,
/// outside of `root`, changed since they were read, or (unless allowed) have uncommitted changes in git are
/// refused before the first write.
pub fn write(root: &Path, plan: &EditPlan, allow_dirty: bool) -> Result<(), ManifestFilesError> {
    let real_root =
        fs::canonicalize(root).map_err(|error| io_error("find the path", root, error))?;
    let mut refused = Vec::new();
    let mut replacements = Vec::new();
    for file in &plan.files {
        let path = Path::new(&*file.path);
        match replace::check(path, &real_root, &file.before) {
            Ok(target) => {
                replacements.push(Replacement { target, before: &file.before, after: &file.after });
            }
            Err(why) => refused.push(format!("{} {why}", file.path)),
        }
    }
    if !allow_dirty {
        let targets: Vec<_> = replacements.iter().map(|file| &*file.target).collect();
        let dirty = git::uncommitted(&targets).map_err(ManifestFilesError::Git)?;
        refused.extend(dirty);
    }
    if !refused.is_empty() {
        return Err(ManifestFilesError::Refused(refused));
    }
    replace::all(&replacements)
}

/// The name of a kustomization that is written, and the others that kustomize knows.
const KUSTOMIZATION: &str = "kustomization.yaml";
const OTHER_KUSTOMIZATIONS: [&str; 2] = ["kustomization.yml", "Kustomization"];

/// Writes the files of a kustomize component into a folder, which is created if needed. Kustomizations are written last,
/// so that none names a patch that is not there.
pub fn write_component(folder: &Path, files: &[GeneratedFile]) -> Result<(), ManifestFilesError> {
    let is_kustomization = |file: &&GeneratedFile| Path::new(&file.path).ends_with(KUSTOMIZATION);
    for file in files.iter().filter(is_kustomization) {
        let path = folder.join(&file.path);
        for other in OTHER_KUSTOMIZATIONS {
            let other = path.with_file_name(other);
            if fs::symlink_metadata(&other).is_ok() {
                return Err(ManifestFilesError::ForeignFolder(other));
            }
        }
        match fs::read_to_string(&path) {
            Ok(text) if text.starts_with(kustomize::HEADER) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Ok(_) => return Err(ManifestFilesError::ForeignFolder(path)),
            Err(error) => return Err(io_error("read", &path, error)),
        }
    }
    let (last, first): (Vec<_>, Vec<_>) = files.iter().partition(is_kustomization);
    let mut texts = Vec::new();
    for file in first.into_iter().chain(last) {
        let path = folder.join(&file.path);
        let parent = path.parent().unwrap_or(folder);
        fs::create_dir_all(parent).map_err(|error| io_error("create", parent, error))?;
        texts.push((path, &*file.text));
    }
    replace::own_files(&texts)
}

#[cfg(test)]
mod tests;
