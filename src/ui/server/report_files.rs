//! The files of `--reports`.

use std::{fs, path::Path};

use plimsoll_core::types::Time;

use crate::ui::{pages::ReportFile, router::is_file_stem};

/// The largest report file.
const MAX_REPORT_BYTES: u64 = 64 << 20;
/// Report files in the list.
const MAX_REPORTS: usize = 1_000;

/// The HTML files of a folder.
pub(super) fn list_reports(folder: &Path) -> Vec<ReportFile> {
    let entries = fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
    let files = entries.filter_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        let is_report = name.strip_suffix(".html").is_some_and(is_file_stem);
        // The files of a ConfigMap are links.
        let data = fs::metadata(entry.path()).ok().filter(|data| is_report && data.is_file())?;
        let written = data.modified().ok()?.duration_since(std::time::UNIX_EPOCH).ok();
        let written_at = written.map(|since| Time::EPOCH.later(since));
        Some(ReportFile { name, bytes: data.len(), written_at })
    });
    files.take(MAX_REPORTS).collect()
}

/// The text of a report; `None` if there is no such file in the folder.
pub(super) fn read_report(folder: &Path, name: &str) -> Option<Vec<u8>> {
    name.strip_suffix(".html").filter(|stem| is_file_stem(stem))?;
    let folder = folder.canonicalize().ok()?;
    let path = folder.join(name).canonicalize().ok()?;
    if !path.starts_with(&folder) {
        return None;
    }
    let data = fs::metadata(&path).ok()?;
    let fits = data.is_file() && data.len() <= MAX_REPORT_BYTES;
    fits.then(|| fs::read(&path).ok()).flatten()
}
