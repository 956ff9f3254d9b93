//! Edits of users' manifests by place, and patches for those who keep no manifests: text in, edits and
//! problems out.
//!
//! ```text
//! Report ──────┐
//! manifests ───┴─▶ ManifestSet ─▶ EditPlan { files, problems, missing, placements } ─▶ unified_diff
//! Report ─▶ kustomize, strategic, helm_values, vpa
//! ```
//!
//! Manifests are parsed with the places of their nodes, and only the bytes of the chosen values are replaced:
//! comments, order, quotes, line ends and everything else stay as they are. What cannot be edited without a
//! guess is refused with its line.

mod amount;
mod autoscaler;
mod block_edit;
mod diff;
mod file_edit;
mod flow_edit;
pub mod helm_values;
mod kustomization;
pub mod kustomize;
mod lookup;
mod objects;
mod patch;
mod plan;
mod planner;
mod problem;
mod resources;
mod set;
pub mod strategic;
mod text_edit;
mod tree;
pub mod vpa;
mod yaml_text;

#[cfg(test)]
mod edit_cases;
#[cfg(test)]
mod edit_properties;
#[cfg(test)]
mod generated_cases;
#[cfg(test)]
mod set_cases;
#[cfg(test)]
mod test_reports;

pub use self::{
    amount::amount_text,
    diff::unified_diff,
    plan::{EditPlan, EditedFile, Placement},
    problem::{Problem, Refusal},
    set::ManifestSet,
};

/// The size of the largest file that is read.
pub const MAX_FILE_BYTES: usize = 4 << 20;
/// The number of files that are read at most.
pub const MAX_FILES: usize = 10_000;
/// The size of all files with objects of the report, which are kept in memory.
pub const MAX_KEPT_BYTES: usize = 256 << 20;

/// A file of patches or objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GeneratedFile {
    /// Its path, relative to the folder that the user named.
    pub path: String,
    /// Its content.
    pub text: String,
}
