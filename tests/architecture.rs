//! Machine-checked rules of the code: layers, dependencies, file names.

mod dependencies;
mod file_names;
mod inherent_impls;
mod kind_neutrality;
mod layers;
mod tokens;
mod wall_clock;

use std::{
    fs,
    path::{Path, PathBuf},
};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// All Rust files below these folders, by path relative to the root, with their text.
fn sources(folders: &[&str]) -> Vec<(String, String)> {
    let mut pending: Vec<PathBuf> = folders.iter().map(|folder| root().join(folder)).collect();
    let mut found = Vec::new();
    while let Some(folder) = pending.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten() {
            let path = entry.expect("a readable entry").path();
            if path.is_dir() {
                pending.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path).expect("a readable source");
                let short = path.strip_prefix(root()).expect("below the root");
                found.push((short.to_string_lossy().into_owned(), text));
            }
        }
    }
    found.sort();
    found
}

/// Fails with the findings of all files.
fn assert_clean(files: &[(String, String)], check: impl Fn(&str, &str) -> Vec<String>) {
    let findings: Vec<_> = files.iter().flat_map(|(path, text)| check(path, text)).collect();
    assert!(findings.is_empty(), "\n{}", findings.join("\n"));
}
