//! Asks git which files have changes that a commit does not have.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::Command,
};

/// How many paths one command gets.
const PATHS: usize = 100;

/// The files with uncommitted changes, as git names them, and why. Files outside of any work tree have none; files that
/// git does not track, or ignores, have, because git could not bring them back.
pub(super) fn uncommitted(files: &[&Path]) -> Result<Vec<String>, String> {
    let mut by_tree: BTreeMap<PathBuf, Vec<&Path>> = BTreeMap::new();
    for file in files {
        if let Some(tree) = file.ancestors().skip(1).find(|folder| folder.join(".git").exists()) {
            by_tree.entry(tree.to_owned()).or_default().push(file);
        }
    }
    let mut found = Vec::new();
    for (tree, files) in by_tree {
        for some in files.chunks(PATHS) {
            found.extend(status(&tree, some)?);
        }
    }
    Ok(found)
}

fn status(tree: &Path, files: &[&Path]) -> Result<Vec<String>, String> {
    let output = Command::new("git")
        .arg("-C")
        .arg(tree)
        // A program that the repository names must not run for a question.
        .args(["-c", "core.fsmonitor=false", "--no-optional-locks", "--literal-pathspecs"])
        .args(["status", "--porcelain=v1", "-z", "--no-renames"])
        .args(["--untracked-files=all", "--ignored=matching", "--"])
        .args(files)
        // Set within hooks of git, where they name another repository.
        .env_remove("GIT_DIR")
        .env_remove("GIT_WORK_TREE")
        .env_remove("GIT_INDEX_FILE")
        .output()
        .map_err(|error| format!("cannot run git: {error}"))?;
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        return Err(stderr.lines().next().unwrap_or("git failed").to_owned());
    }
    let text = String::from_utf8_lossy(&output.stdout);
    // Two letters for the state, a space and the path.
    Ok(text
        .split('\0')
        .filter_map(|line| {
            let path = line.get(3..)?;
            Some(if line.starts_with("!!") {
                format!("{path} is ignored by git, which could not bring it back")
            } else {
                format!("{path} has changes that git has not committed")
            })
        })
        .collect())
}
